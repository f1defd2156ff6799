"""The launches of a block: each line with the variables that hold there, and what it starts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ._options import HYDRA, OPEN_MPI, SRUN, TORCHRUN, Line, taken_apart
from ._shell import Script, Simple, Word, read, split

__all__ = ["Block", "Launch", "Set", "Setup", "block_of", "walk"]

_WRAPPERS = {"sudo": "-", "env": "-", "nohup": "", "exec": "", "stdbuf": "-", "numactl": "-",
             "timeout": "1"}  # fmt: skip
# They start another command in a place of their own: a container, an environment, a profiler.
_AROUND = frozenset({"uv", "conda", "mamba", "poetry", "pixi", "docker", "podman", "kubectl",
                     "nsys", "ncu", "singularity", "apptainer", "enroot", "perf"})  # fmt: skip
_TOOLS = ("torchrun", "mpirun", "mpiexec", "srun")
_PYTHON = re.compile(r"(.*/)?python[0-9.]*")
_ASSIGN = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


@dataclass(frozen=True)
class Setup:
    """What is known beside the text: see `check`."""

    nccl: str
    mpi: str
    gpus: int | None
    root: bool
    files: Mapping[str, str]


@dataclass(frozen=True)
class Set:
    """A variable that gets a value: by `export`, in front of a command, by `-x` or `env`."""

    name: str
    value: str
    how: str
    command: Simple


@dataclass
class Launch:
    """One launcher's line.

    Attributes:
        tool: torchrun, mpirun or srun.
        command, line: where it stands, and taken apart.
        sudo: whether root runs it by sudo.
        variables: all that hold for it, by name.
        inner: what it starts, if that is a launcher too.
        outer: what starts it.
    """

    tool: str
    command: Simple
    line: Line
    sudo: bool
    variables: dict[str, Set]
    inner: Launch | None = None
    outer: Launch | None = None
    nested: str = ""


@dataclass
class Block:
    """A block read: its commands, launches and all settings of variables, in order."""

    script: Script
    setup: Setup
    launches: list[Launch] = field(default_factory=list)
    sets: list[Set] = field(default_factory=list)
    exported: set[str] = field(default_factory=set)

    @property
    def job(self) -> Line:
        """The #SBATCH lines as if they were options of srun."""
        return taken_apart((Word("srun", "srun"), *self.script.sbatch), SRUN)


def block_of(text: str, setup: Setup) -> Block:
    """Read a text into its launches."""
    block = Block(read(text), setup)
    for name, content in setup.files.items():
        block.script.files.setdefault(name, content)
    held: dict[str, Set] = {}
    for command in block.script.commands:
        _one(block, command, held)
    return block


def _one(block: Block, command: Simple, held: dict[str, Set]) -> None:
    words = command.words
    if not words or words[0].value in ("export", "declare", "set", "setenv"):
        how = "export" if words and words[0].value in ("export", "declare") else "line"
        made = [Set(n, v, how, command) for n, v in command.assigned.items()]
        made += [Set(m[1], m[2], how, command) for w in words[1:]
                 if (m := _ASSIGN.fullmatch(w.value))]  # fmt: skip
        if words and words[0].value == "export":
            block.exported |= {w.value.partition("=")[0] for w in words[1:]}
        held.update({s.name: s for s in made})
        block.sets += made
        return
    if words[0].value == "unset":
        for word in words[1:]:
            held.pop(word.value, None)
        return
    front = {n: Set(n, v, "front", command) for n, v in command.assigned.items()}
    block.sets += front.values()
    launch = _launch(command, words, {**held, **front}, None, block)
    if launch:
        block.launches.append(launch)


def _launch(
    command: Simple, words: tuple[Word, ...], held: dict[str, Set], outer: Launch | None,
    block: Block,
) -> Launch | None:  # fmt: skip
    sudo, words, more = _unwrapped(command, words)
    block.sets += more
    held = {**held, **{s.name: s for s in more}}
    if not words:
        return None
    found = _tool(words, block.setup.mpi)
    if not found:
        return None
    tool, line = found
    launch = Launch(tool, command, line, sudo, held, outer=outer)
    if tool == "mpirun":
        _handed_over(launch, block)
    if tool != "torchrun":
        launch.inner = _inner(launch, block)
    return launch


def _unwrapped(
    command: Simple, words: tuple[Word, ...]
) -> tuple[bool, tuple[Word, ...], list[Set]]:
    """Past sudo, env, ssh HOST and their like."""
    sudo, more = False, list[Set]()
    while words:
        first = words[0].value
        if first == "ssh":
            rest = next((i for i, w in enumerate(words[1:], 1) if not w.value.startswith("-")), 0)
            words = words[rest + 1 :] if rest else ()
            if len(words) == 1:
                words = tuple(split(words[0].value) or ())
        elif first in _WRAPPERS:
            sudo |= first == "sudo"
            words = words[1:]
            while words and words[0].value.startswith("-"):
                words = words[1:]
            words = words[1:] if _WRAPPERS[first] == "1" else words
        elif first in _AROUND:
            names = [w.value.rsplit("/", 1)[-1] for w in words]
            at = next((i for i, n in enumerate(names) if n in _TOOLS or _PYTHON.fullmatch(n)), None)
            words = words[at:] if at else ()
        elif found := _ASSIGN.fullmatch(first):
            more.append(Set(found[1], found[2], "front", command))
            words = words[1:]
        else:
            break
    return sudo, words, more


def _tool(words: tuple[Word, ...], mpi: str) -> tuple[str, Line] | None:
    name = words[0].value.rsplit("/", 1)[-1]
    if name == "torchrun":
        return "torchrun", taken_apart(words, TORCHRUN, folded=True)
    if _PYTHON.fullmatch(words[0].value):
        for at, word in enumerate(words[1:3], 1):
            if word.value == "-m" and at + 1 < len(words):
                if words[at + 1].value in ("torch.distributed.run", "torch.distributed.launch"):
                    # The three words stand for one, so that a changed line stays whole.
                    raw = " ".join(w.raw for w in words[: at + 2])
                    words = (Word(raw, "torchrun"), *words[at + 2 :])
                    return "torchrun", taken_apart(words, TORCHRUN, folded=True)
                return None
    if name in ("mpirun", "mpiexec", "mpiexec.hydra", "mpirun.openmpi", "orterun", "prterun"):
        return "mpirun", _mpi_line(words, mpi)
    if name == "srun":
        return "srun", taken_apart(words, SRUN)
    return None


def _mpi_line(words: tuple[Word, ...], mpi: str) -> Line:
    own, other = (HYDRA, OPEN_MPI) if mpi == "mpich" else (OPEN_MPI, HYDRA)
    return taken_apart(words, {**other, **own})


def _handed_over(launch: Launch, block: Block) -> None:
    for option in launch.line.all("-x", "-genv", "-env"):
        name, equals, value = option.value.partition("=")
        if option.name != "-x":
            equals, value = "=", option.values[1] if len(option.values) > 1 else ""
        if equals:
            given = Set(name, value, "x", launch.command)
            launch.variables = {**launch.variables, name: given}
            block.sets.append(given)


def _inner(launch: Launch, block: Block) -> Launch | None:
    program = launch.line.program
    names = [w.value.rsplit("/", 1)[-1] for w in program[:3]]
    if len(names) == 3 and names[0] in ("bash", "sh") and re.fullmatch(r"-[a-z]*c", names[1]):
        for command in read(program[2].value).commands:
            found = _launch(command, command.words, launch.variables, launch, block)
            if found:
                found.nested = program[2].raw
                return found
        return None
    return _launch(launch.command, program, launch.variables, launch, block)


def walk(launches: list[Launch]) -> Iterator[Launch]:
    """All launches, inner ones after the outer."""
    for launch in launches:
        yield launch
        if launch.inner:
            yield from walk([launch.inner])
