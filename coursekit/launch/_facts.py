"""What a launch says about nodes, processes and GPUs, and how its line is changed."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ._context import Block, Launch, Set, walk
from ._finding import Finding
from ._options import Line

__all__ = ["asked_gpus", "everything", "finding", "found_set", "hosts", "is_local", "nodes_of",
           "nodes_of_block", "per_node", "ranks_per_node", "refilled", "slots", "tasks", "visible",
           "whole"]  # fmt: skip

_LOCAL = re.compile(r"localhost|127\.\d+\.\d+\.\d+|\[?::1\]?|0\.0\.0\.0")


def everything(block: Block, *tools: str) -> Iterable[Launch]:
    """All launches of these tools, inner ones too."""
    return [x for x in walk(block.launches) if x.tool in tools]


def is_local(host: str) -> bool:
    """Whether every node takes this name for itself."""
    return bool(_LOCAL.fullmatch(host))


def finding(launch: Launch, id: str, fixed: str = "", **values: object) -> Finding:
    """A finding about a launch; `fixed` is its own line, put back into the whole command."""
    command = launch.command
    number = launch.command.number if launch.outer is None else _outermost(launch).command.number
    return Finding(id, number, command.text if launch.outer is None else
                   _outermost(launch).command.text, whole(launch, fixed), values)  # fmt: skip


def _outermost(launch: Launch) -> Launch:
    while launch.outer is not None:
        launch = launch.outer
    return launch


def whole(launch: Launch, fixed: str) -> str:
    """The whole command with this launch's part of it changed."""
    if not fixed:
        return ""
    text = _outermost(launch).command.text
    old = " ".join(w.raw for w in launch.line.words)
    return text.replace(old, fixed, 1) if old in text else fixed


def found_set(setting: Set, id: str, fixed: str = "", **values: object) -> Finding:
    """A finding about a variable's value."""
    return Finding(id, setting.command.number, setting.command.text, fixed,
                   {"name": setting.name, "value": setting.value, **values})  # fmt: skip


def refilled(setting: Set, value: str | None, name: str = "") -> str:
    """The command with another value, or another name; None takes the variable out."""
    text, old = setting.command.text, setting.name
    place = rf"(?<![\w])((?:-x\s+)?){old}=(\"[^\"]*\"|'[^']*'|\S*)"
    if value is not None:
        new = f"{name or old}={value}"
        return re.sub(place, lambda m: m[1] + new, text, count=1)
    if re.fullmatch(rf"(export\s+)?{place}", text):
        return f"unset {old}"
    return " ".join(re.sub(place, "", text, count=1).split())


def nodes_of(launch: Launch, block: Block) -> int | None:
    """Over how many nodes one launch goes; None if it does not say."""
    line = launch.line
    if launch.tool == "torchrun":
        if line.all("--standalone"):
            return 1
        given = line.get("--nnodes")
        if given is None:
            return 1
        most = given.rpartition(":")[2]
        return int(most) if most.isdigit() else None
    if launch.tool == "srun":
        return line.number("-N", "--nodes") or block.job.number("-N", "--nodes")
    names = hosts(line, block)
    if names is not None:
        return len(names)
    return None if line.all(*_FILES) or block.script.sbatch else 1


def nodes_of_block(block: Block) -> int | None:
    """The most nodes that a launch of the block names; None if none says."""
    known = [nodes_of(x, block) for x in walk(block.launches)]
    if not known or None in known:
        return max([n for n in known if n and n > 1], default=None)
    return max(n for n in known if n)


_FILES = ("--hostfile", "-hostfile", "--machinefile", "-machinefile", "-f")
_HOSTS = ("--host", "-host", "-H", "-hosts")


def slots(line: Line, block: Block) -> dict[str, int | None] | None:
    """Hosts with their slots, as far as they are known; None without hosts."""
    found: dict[str, int | None] = {}
    for option in line.all(*_HOSTS):
        for entry in filter(None, option.value.split(",")):
            host, _, number = entry.partition(":")
            more = int(number) if number.isdigit() else 1
            found[host] = (found.get(host) or 0) + more
    if found:
        return found
    name = line.get(*_FILES)
    content = block.script.files.get(name or "")
    if content is None:
        return None
    for entry in _entries(content):
        match = re.search(r"\bslots\s*=\s*(\d+)", entry)
        host = entry.split()[0]
        if block.setup.mpi == "mpich":
            host, _, number = host.partition(":")
            match = re.fullmatch(r"(\d+)", number)
        found[host] = int(match[1]) if match else None
    return found or None


def _entries(content: str) -> list[str]:
    lines = (line.split("#")[0].strip() for line in content.splitlines())
    return [line for line in lines if line]


def hosts(line: Line, block: Block) -> list[str] | None:
    """The hosts by name."""
    found = slots(line, block)
    return None if found is None else list(found)


def ranks_per_node(launch: Launch, block: Block) -> int | None:
    """How many processes mpirun or srun starts on a node."""
    line = launch.line
    if launch.tool == "srun":
        return tasks(launch, block)
    ppr = re.match(r"ppr:(\d+):node", line.get("--map-by", "-map-by") or "")
    if ppr:
        return int(ppr[1])
    each = line.number("-N", "-npernode", "--npernode", "-ppn", "-perhost")
    if each:
        return each
    ranks, nodes = line.number("-n", "-np", "--n", "--np", "-c"), nodes_of(launch, block)
    return -(-ranks // nodes) if ranks and nodes else None


def tasks(launch: Launch, block: Block) -> int | None:
    """Tasks that srun starts on a node; None if it does not say."""
    names = ("--ntasks-per-node", "--tasks-per-node")
    for line in (launch.line, block.job):
        if (each := line.number(*names)) is not None:
            return each
        all_, nodes = line.number("-n", "--ntasks"), nodes_of(launch, block)
        if all_ is not None and nodes:
            return -(-all_ // nodes)
    return None


def asked_gpus(line: Line) -> int | None:
    """The GPUs a node that srun or #SBATCH asks for."""
    given = line.get("--gpus-per-node") or ""
    gres = line.get("--gres") or ""
    for text in (given, gres if gres.startswith("gpu") else ""):
        number = re.fullmatch(r"(?:.*:)?(\d+)", text)
        if number:
            return int(number[1])
    return None


def visible(launch: Launch) -> int | None:
    """How many GPUs CUDA_VISIBLE_DEVICES leaves; None where that is not said."""
    held = launch.variables.get("CUDA_VISIBLE_DEVICES")
    if held is None or "$" in held.value:
        return None
    return len([d for d in held.value.split(",") if d.strip() and d.strip() != "-1"])


def per_node(launch: Launch, block: Block) -> int | None:
    """How many GPUs a node has for this launch."""
    known = [block.setup.gpus, asked_gpus(block.job)]
    up: Launch | None = launch
    while up is not None:
        known.append(asked_gpus(up.line) if up.tool == "srun" else None)
        up = up.outer
    return min((k for k in known if k is not None), default=None)
