"""What is wrong with srun's lines, and with a launcher that starts a launcher.

Sources: srun(1): without a count of tasks it starts one a node, exported variables go on unless
--export leaves ALL out; the shell fills in $SLURM_PROCID before srun starts anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ._context import Block, Launch
from ._facts import asked_gpus, everything, finding, nodes_of, ranks_per_node, tasks
from ._finding import Finding

__all__ = ["rules"]

_PER_TASK = re.compile(r"\$\{?(SLURM_(?:PROCID|NODEID|LOCALID))\}?")


def rules(block: Block) -> Iterator[Finding]:
    """All findings about srun, and about mpirun or srun with torchrun inside."""
    for launch in everything(block, "srun"):
        yield from _early(launch)
        yield from _export(launch)
        yield from _idle(launch, block)
        yield from _nodes(launch, block)
    for launch in everything(block, "srun", "mpirun"):
        yield from _squared(launch, block)


def _squared(launch: Launch, block: Block) -> Iterator[Finding]:
    """One torchrun a GPU, and each starts a process a GPU itself."""
    inner = launch.inner
    if inner is None or inner.tool != "torchrun":
        return
    starts = ranks_per_node(launch, block)
    each = inner.line.number("--nproc-per-node")
    if starts is None or starts < 2:
        return
    total = f"{starts} x {each} = {starts * each}" if each else f"{starts} x n"
    yield finding(launch, f"{launch.tool}.squared", _once(launch, block), starts=starts,
                  total=total)  # fmt: skip


def _once(launch: Launch, block: Block) -> str:
    line = launch.line
    if launch.tool == "srun":
        gone = line.all("-n", "--ntasks", "--tasks-per-node", "--ntasks-per-node")
        kept = line.without(*gone)
        return kept.replace(line.words[0].raw, f"{line.words[0].raw} --ntasks-per-node=1", 1)
    gone = line.all("-n", "-np", "--n", "--np", "-c", "-N", "-npernode", "--npernode", "--map-by")
    nodes = nodes_of(launch, block)
    count = f"-np {nodes} " if nodes else ""
    return line.without(*gone).replace(
        line.words[0].raw, f"{line.words[0].raw} {count}--map-by ppr:1:node", 1
    )


def _early(launch: Launch) -> Iterator[Finding]:
    """$SLURM_PROCID and its like outside of single quotes: the batch shell's, the same for all."""
    text = " ".join(w.raw for w in launch.line.words[1:] if not w.raw.startswith("'"))
    found = _PER_TASK.search(text)
    if found and launch.outer is None:
        line = launch.line
        raws = [w.raw for w in line.words]
        inside = " ".join(raws[line.program_at :])
        fixed = ""
        program = line.program
        if len(program) == 3 and program[2].raw.startswith('"') and "'" not in program[2].value:
            fixed = " ".join([*raws[:-1], f"'{program[2].value}'"])
        elif "'" not in inside:
            fixed = " ".join([*raws[: line.program_at], "bash", "-c", f"'{inside}'"])
        yield finding(launch, "srun.early", fixed, name=found[1])


def _export(launch: Launch) -> Iterator[Finding]:
    given = launch.line.get("--export")
    if given is None or "ALL" in given.split(",") or "$" in given:
        return
    fixed = "--export=ALL" if given in ("NONE", "") else f"--export=ALL,{given}"
    yield finding(launch, "srun.export", launch.line.put("--export", fixed), given=given)


def _idle(launch: Launch, block: Block) -> Iterator[Finding]:
    """No count of tasks: one a node, so all but one GPU of a node stay idle."""
    line, inner = launch.line, launch.inner
    if (
        tasks(launch, block) is not None
        or line.all("-n", "--ntasks")
        or "$" in str(line.get("--ntasks-per-node"))
    ):
        if inner and inner.tool == "torchrun" and _scattered(launch, block):
            fixed = line.put("--ntasks-per-node", "--ntasks-per-node=1")
            yield finding(launch, "srun.scattered", fixed)
        return
    gpus = asked_gpus(line) or asked_gpus(block.job) or block.setup.gpus
    if inner is None and gpus and gpus > 1 and launch.line.program:
        fixed = line.put("--ntasks-per-node", f"--ntasks-per-node={gpus}")
        yield finding(launch, "srun.one_task", fixed, gpus=gpus)
    elif inner and inner.tool == "torchrun" and not nodes_of(launch, block):
        if any("SLURM_" in w.raw for w in line.words):
            return  # a step of a job whose nodes are said elsewhere
        nodes = nodes_of(inner, block)
        if nodes and nodes > 1:
            fixed = f"{line.words[0].raw} --nodes={nodes} --ntasks-per-node=1 " + " ".join(
                w.raw for w in line.words[1:]
            )
            yield finding(launch, "srun.no_nodes", fixed, nodes=nodes)


def _scattered(launch: Launch, block: Block) -> bool:
    """Some tasks with torchrun, and nothing says that each gets a node of its own."""
    each = launch.line.all("--ntasks-per-node", "--tasks-per-node")
    there = block.job.all("--ntasks-per-node", "--tasks-per-node")
    several = (launch.line.number("-n", "--ntasks") or 1) > 1
    return several and not each and not there and not nodes_of(launch, block)


def _nodes(launch: Launch, block: Block) -> Iterator[Finding]:
    inner = launch.inner
    if inner is None or inner.tool != "torchrun":
        return
    given, meant = nodes_of(launch, block), nodes_of(inner, block)
    if given and meant and given != meant and not inner.line.unknown:
        line = inner.line
        if line.all("--standalone"):
            fixed = ""
        else:
            fixed = line.put("--nnodes", f"--nnodes={given}")
        yield finding(inner, "srun.nodes_differ", fixed, given=given, meant=meant)
