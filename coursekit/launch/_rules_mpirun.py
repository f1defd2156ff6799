"""What is wrong with mpirun's lines and their hostfiles.

Sources: Open MPI's mpirun(1), 4.1 and 5.0, and its release notes on networks (openib went in 5.0);
PRRTE's docs/hosts; NCCL's runtime_and_mpi_issues; MPICH's Hydra. What 5.0.11 does was tried.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ._context import Block, Launch
from ._facts import everything, finding, hosts, is_local, per_node, ranks_per_node, slots
from ._finding import Finding
from ._options import HYDRA, OPEN_MPI, Line

__all__ = ["rules"]

_FORWARDED = re.compile(r"(NCCL|TORCH|GLOO|CUDA|UCX|RCCL|HSA|MASTER)_\w+|LD_LIBRARY_PATH|PYTHONPATH"
                        r"|OMP_NUM_THREADS")  # fmt: skip
_GPU = re.compile(r"(NCCL|CUDA)_\w+")
_COUNT = ("-n", "-np", "--n", "--np", "-c")


def rules(block: Block) -> Iterator[Finding]:
    """All findings about mpirun."""
    open_mpi = block.setup.mpi != "mpich"
    for launch in everything(block, "mpirun"):
        foreign = list(_foreign(launch, block, open_mpi))
        yield from foreign
        yield from _hostfile(launch, block, open_mpi)
        if open_mpi and not foreign:
            yield from _root(launch, block)
            yield from _mca(launch, block)
            yield from _forwarding(launch, block)
        yield from _room(launch, block, open_mpi)


def _foreign(launch: Launch, block: Block, open_mpi: bool) -> Iterator[Finding]:
    """Options of the other MPI, or of none."""
    own, other = (OPEN_MPI, HYDRA) if open_mpi else (HYDRA, OPEN_MPI)
    line = launch.line
    for option in (*line.options, *line.unknown):
        if option.name in own:
            continue
        if option.name in other:
            raws = [w.raw for w in line.words]
            raws[option.start : option.stop] = _translated(option.name, option.values, open_mpi)
            fixed = " ".join(r for r in raws if r)
            told = {"option": option.name, "mpi": _title(block), "other": _other(open_mpi)}
            yield finding(launch, "mpirun.other_mpi", fixed, **told)
        else:
            yield finding(launch, "mpirun.unknown_option", line.without(option),
                          option=option.name, mpi=_title(block))  # fmt: skip


def _translated(name: str, values: tuple[str, ...], open_mpi: bool) -> list[str]:
    first = values[0] if values else ""
    if open_mpi:
        table = {"-ppn": f"--map-by ppr:{first}:node", "-perhost": f"--map-by ppr:{first}:node",
                 "-f": f"--hostfile {first}", "-hosts": f"--host {first}",
                 "-genv": f"-x {'='.join(values)}", "-env": f"-x {'='.join(values)}",
                 "-genvlist": " ".join(f"-x {n}" for n in first.split(",")),
                 "-iface": f"--mca btl_tcp_if_include {first}"}  # fmt: skip
    else:
        ppr = re.fullmatch(r"ppr:(\d+):node", first)
        value = first.partition("=")
        table = {"-x": f"-genv {value[0]} {value[2]}" if value[1] else f"-genvlist {first}",
                 "-N": f"-ppn {first}", "-npernode": f"-ppn {first}", "--np": f"-n {first}",
                 "--map-by": f"-ppn {ppr[1]}" if ppr else "", "--hostfile": f"-f {first}",
                 "--host": f"-hosts {first}", "-H": f"-hosts {first}"}  # fmt: skip
    return [table.get(name, "")]


def _title(block: Block) -> str:
    return "MPICH" if block.setup.mpi == "mpich" else f"Open MPI {block.setup.mpi}"


def _other(open_mpi: bool) -> str:
    return "MPICH" if open_mpi else "Open MPI"


def _hostfile(launch: Launch, block: Block, open_mpi: bool) -> Iterator[Finding]:
    name = launch.line.get("--hostfile", "-hostfile", "--machinefile", "-machinefile", "-f")
    content = block.script.files.get(name or "")
    for entry in (content or "").splitlines():
        entry = entry.split("#")[0].strip()
        mpich = re.fullmatch(r"([\w.-]+):(\d+)", entry)
        ours = re.fullmatch(r"([\w.-]+)\s+.*?slots\s*=\s*(\d+).*", entry)
        if open_mpi and mpich:
            found = finding(launch, "mpirun.hostfile_mpich", "", file=name, entry=entry)
            yield Finding(found.id, found.line, entry, f"{mpich[1]} slots={mpich[2]}", found.values)
            return
        if not open_mpi and ours:
            found = finding(launch, "mpirun.hostfile_open_mpi", "", file=name, entry=entry)
            yield Finding(found.id, found.line, entry, f"{ours[1]}:{ours[2]}", found.values)
            return


def _root(launch: Launch, block: Block) -> Iterator[Finding]:
    root = block.setup.root or launch.sudo or launch.command.prompt.startswith("root@")
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"} <= set(launch.variables)
    if root and not allowed and not launch.line.all("--allow-run-as-root"):
        fixed = launch.line.put("--allow-run-as-root", "--allow-run-as-root")
        yield finding(launch, "mpirun.root", fixed)


def _mca(launch: Launch, block: Block) -> Iterator[Finding]:
    line = launch.line
    chosen = {}
    for option in line.all("--mca", "-mca", "--gmca"):
        if "=" in option.value:
            raws = [w.raw for w in line.words]
            raws[option.start + 1] = raws[option.start + 1].replace("=", " ", 1)
            yield finding(launch, "mpirun.mca_equals", " ".join(raws), pair=option.value)
            return
        chosen[option.value] = option
    btl = chosen.get("btl")
    if btl and "openib" in btl.values[-1] and block.setup.mpi == "5":
        gone = [btl, *([chosen["pml"]] if chosen.get("pml") else [])]
        gone = [o for o in gone if o is btl or o.values[-1] == "ucx"]
        yield finding(launch, "mpirun.openib", line.without(*gone), value=btl.values[-1])
    both = [chosen.get(f"btl_tcp_if_{n}") for n in ("include", "exclude")]
    if both[0] and both[1]:
        yield finding(launch, "mpirun.both_interfaces", line.without(both[1]))
    names = hosts(line, block)
    if both[0] and both[0].values[-1] == "lo" and names and not all(map(is_local, names)):
        yield finding(launch, "mpirun.interface_lo", line.without(both[0]))


def _forwarding(launch: Launch, block: Block) -> Iterator[Finding]:
    """Exported here and wanted there. A scheduler hands all on, ssh nothing."""
    line = launch.line
    named = line.all("--hostfile", "-hostfile", "--machinefile", "-machinefile")
    names = hosts(line, block)
    if block.script.sbatch or launch.outer is not None or not (named or names):
        return
    if names and all(map(is_local, names)):
        return
    given = [o.value.partition("=")[0] for o in line.all("-x")]
    sent = set(given) | {"OMPI_"}
    prefixes = tuple(g[:-1] for g in given if g.endswith("*"))
    lost = [n for n, s in launch.variables.items()
            if _FORWARDED.fullmatch(n) and s.how != "x" and n not in sent
            and not (prefixes and n.startswith(prefixes))]  # fmt: skip
    if lost:
        raws = [w.raw for w in line.words]
        raws[line.program_at : line.program_at] = [f"-x {n}" for n in lost]
        yield finding(launch, "mpirun.not_forwarded", " ".join(raws), lost=", ".join(lost))


def _room(launch: Launch, block: Block, open_mpi: bool) -> Iterator[Finding]:
    line = launch.line
    over = line.all("--oversubscribe", "-oversubscribe")
    by = line.all("--map-by", "-map-by")
    loose = bool(over) or any("oversubscribe" in o.value.lower() for o in by)
    gpus, each = per_node(launch, block), ranks_per_node(launch, block)
    if open_mpi and not loose:
        yield from _slots(launch, block, each)
    if loose and (gpus or any(_GPU.fullmatch(n) for n in launch.variables)):
        fixed = line.without(*over) if over else re.sub(r"(?i):oversubscribe", "", line.without())
        yield finding(launch, "mpirun.oversubscribe", fixed)
    if gpus is not None and each and each > gpus and launch.inner is None:
        yield finding(launch, "mpirun.more_than_gpus", "", each=each, have=gpus)


def _slots(launch: Launch, block: Block, each: int | None) -> Iterator[Finding]:
    line, found = launch.line, slots(launch.line, block)
    if not found or None in found.values():
        return
    room = sum(n or 0 for n in found.values())
    ranks = line.number(*_COUNT) or (each or 0) * len(found)
    if ranks > room:
        yield finding(launch, "mpirun.slots", _roomy(line, ranks, room, list(found)), ranks=ranks,
                      room=room)  # fmt: skip


def _roomy(line: Line, ranks: int, room: int, names: list[str]) -> str:
    """Slots for all if the line names hosts without a number, else as many ranks as there are."""
    listed = line.all("--host", "-host", "-H")
    if len(listed) == 1 and ":" not in listed[0].value and ranks % len(names) == 0:
        more = ",".join(f"{name}:{ranks // len(names)}" for name in names)
        return line.put(listed[0].name, f"{listed[0].name} {more}")
    counted = line.all(*_COUNT)
    return line.put(counted[-1].name, f"{counted[-1].name} {room}") if counted else ""
