"""What is wrong with torchrun's lines.

Source: torch/distributed/run.py of PyTorch 2.13: --nnodes is 1 unless said; the static rendezvous
meets at --master-addr, 127.0.0.1 unless said; c10d without an endpoint meets at localhost:29400;
--node-rank counts with the static one only; --standalone puts localhost over any endpoint; all
behind the script belongs to the script.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from difflib import get_close_matches

from ._context import Block, Launch
from ._facts import everything, finding, is_local, nodes_of, per_node, visible
from ._finding import Finding
from ._options import TORCHRUN, Line, Option, taken_apart
from ._shell import Word

__all__ = ["rules"]

_PORT = 29500


def rules(block: Block) -> Iterator[Finding]:
    """All findings about torchrun."""
    launches = list(everything(block, "torchrun"))
    for launch in launches:
        yield from _unknown(launch)
        yield from _script(launch)
        nodes = nodes_of(launch, block)
        if nodes == 1:
            yield from _one_node(launch)
        elif nodes is None or nodes > 1:
            yield from _meeting(launch, nodes)
        yield from _gpus(launch, block)
    yield from _same_rank([x for x in launches if (nodes_of(x, block) or 2) > 1])


def _unknown(launch: Launch) -> Iterator[Finding]:
    for option in launch.line.unknown:
        near = get_close_matches(option.name, TORCHRUN, 1, 0.6)
        words = launch.line.words
        if near:
            raw = words[option.start].raw
            new = raw.replace(raw.partition("=")[0], near[0], 1)
            text = " ".join(new if i == option.start else w.raw for i, w in enumerate(words))
        else:
            text = ""
        yield finding(launch, "torchrun.unknown_option", text, option=option.name,
                      near=near[0] if near else "--help")  # fmt: skip


def _script(launch: Launch) -> Iterator[Finding]:
    line, program = launch.line, launch.line.program
    if line.all("-h", "--help"):
        return
    raws = [w.raw for w in line.words]
    if not program:
        if not line.unknown:
            yield finding(launch, "torchrun.no_script", " ".join([*raws, "train.py"]))
        return
    if re.fullmatch(r"(.*/)?python[0-9.]*", program[0].value) and not line.all("--no-python"):
        kept = [*raws[: line.program_at], *(w.raw for w in program[1:])]
        yield finding(launch, "torchrun.python", " ".join(kept), word=program[0].value)
        return
    late = _late(line)
    if late:
        places = {i for o in late for i in range(o.start, o.stop)}
        front = [raws[i] for i in sorted(places)]
        rest = [raws[i] for i in range(line.program_at, len(raws)) if i not in places]
        fixed = " ".join([*raws[: line.program_at], *front, *rest])
        told = {"option": late[0].name, "script": program[0].value}
        yield finding(launch, "torchrun.late_option", fixed, **told)


_OURS = ("--nnodes", "--nproc-per-node", "--rdzv-backend", "--rdzv-endpoint", "--node-rank")


def _late(line: Line) -> list[Option]:
    """Options of torchrun's behind the script that are absent before it."""
    found = []
    for at in range(line.program_at + 1, len(line.words)):
        name, equals, value = line.words[at].value.partition("=")
        name = name.replace("_", "-")
        if name in _OURS and not line.all(name):
            stop = min(at + (1 if equals else 2), len(line.words))
            values = (value,) if equals else tuple(w.value for w in line.words[at + 1 : stop])
            found.append(Option(name, values, at, stop))
    return found


def _one_node(launch: Launch) -> Iterator[Finding]:
    line = launch.line
    if line.all("--node-rank") and not line.all("--nnodes", "--standalone"):
        rank = line.number("--node-rank")
        least = max(2, (rank or 0) + 1)
        fixed = line.put("--nnodes", f"--nnodes={least}")
        if not line.all("--master-addr", "--rdzv-endpoint"):
            fixed = fixed.replace(" ", " --master-addr=node1 ", 1)
        yield finding(launch, "torchrun.node_rank_alone", fixed)
    nodes = line.get("--nnodes")
    if line.all("--standalone") and nodes and nodes != "1":
        gone = line.all("--standalone")
        fixed = _meet(taken_apart(_words(line, gone), TORCHRUN, folded=True))
        yield finding(launch, "torchrun.standalone_nodes", fixed, nodes=nodes)


def _words(line: Line, gone: list[Option]) -> tuple[Word, ...]:
    places = {i for o in gone for i in range(o.start, o.stop)}
    return tuple(w for i, w in enumerate(line.words) if i not in places)


def _meet(line: Line) -> str:
    """The line with a meeting point, for the learner to fill in a node's name."""
    if _static(line) and line.all("--node-rank"):
        return line.put("--master-addr", "--master-addr=node1")
    gone = line.all("--master-addr", "--master-port", "--rdzv-backend", "--rdzv-endpoint",
                    "--node-rank")  # fmt: skip
    port = line.number("--master-port") or _PORT
    more = ["--rdzv-backend=c10d", f"--rdzv-endpoint=node1:{port}"]
    if not line.all("--rdzv-id"):
        more.append("--rdzv-id=job1")
    kept = taken_apart(_words(line, gone), TORCHRUN, folded=True)
    raws = [w.raw for w in kept.words]
    return " ".join([*raws[: kept.program_at], *more, *raws[kept.program_at :]])


def _static(line: Line) -> bool:
    return (line.get("--rdzv-backend") or "static") == "static"


def _meeting(launch: Launch, nodes: int | None) -> Iterator[Finding]:
    line = launch.line
    where = line.get("--rdzv-endpoint")
    if where is None and _static(line):
        where = line.get("--master-addr")
    elif where is None and line.all("--master-addr"):
        yield finding(launch, "torchrun.master_ignored", _meet(line))
        return
    if not where:
        yield finding(launch, "torchrun.no_endpoint", _meet(line), nodes=nodes or "?")
        return
    host = re.sub(r":\d*$", "", where)
    if is_local(host):
        yield finding(launch, "torchrun.endpoint_localhost", _meet(line), where=where)
    elif _static(line) and not line.all("--node-rank"):
        yield finding(launch, "torchrun.no_node_rank", _dynamic(line, where))


def _dynamic(line: Line, where: str) -> str:
    """The same with c10d, which gives the nodes their ranks itself."""
    new = taken_apart(_words(line, line.all("--master-addr", "--master-port", "--rdzv-backend",
                                            "--rdzv-endpoint")), TORCHRUN, folded=True)  # fmt: skip
    if not re.search(r":\d+$", where):
        where = f"{where}:{line.get('--master-port') or _PORT}"
    raws = [w.raw for w in new.words]
    more = ["--rdzv-backend=c10d", f'--rdzv-endpoint="{where}"' if "$" in where else
            f"--rdzv-endpoint={where}"]  # fmt: skip
    return " ".join([*raws[: new.program_at], *more, *raws[new.program_at :]])


def _gpus(launch: Launch, block: Block) -> Iterator[Finding]:
    each = launch.line.number("--nproc-per-node")
    if each is None:
        return
    have, seen = per_node(launch, block), visible(launch)
    fewest = min(n for n in (have, seen, each) if n is not None)
    fixed = launch.line.put("--nproc-per-node", f"--nproc-per-node={max(fewest, 1)}")
    if seen is not None and seen < each and (have is None or seen <= have):
        held = launch.variables["CUDA_VISIBLE_DEVICES"].value
        yield finding(launch, "torchrun.visible_fewer", fixed, each=each, seen=seen, held=held)
    elif have is not None and have < each:
        yield finding(launch, "torchrun.more_than_gpus", fixed, each=each, have=have)


def _same_rank(launches: list[Launch]) -> Iterator[Finding]:
    """Two lines of one job with the same node rank."""
    jobs: dict[tuple[str | None, ...], dict[str, Launch]] = defaultdict(dict)
    for launch in launches:
        rank = launch.line.get("--node-rank")
        if not _static(launch.line) or rank is None or "$" in rank:
            continue
        job = tuple(launch.line.get(n) for n in ("--nnodes", "--master-addr", "--master-port",
                                                 "--rdzv-endpoint", "--rdzv-id"))  # fmt: skip
        if rank in jobs[job]:
            free = next(str(n) for n in range(len(jobs[job]) + 1) if str(n) not in jobs[job])
            jobs[job][free] = launch
            fixed = launch.line.put("--node-rank", f"--node-rank={free}")
            yield finding(launch, "torchrun.same_node_rank", fixed, rank=rank)
        else:
            jobs[job][rank] = launch
