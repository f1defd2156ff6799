"""A command that was written: its lines, its files, and a sentence for each option."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from coursekit.i18n import text

from ._errors import LaunchError

__all__ = ["WIDTH", "Command", "Part", "count", "exports", "laid_out", "own", "safe"]

WIDTH = 92
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Part:
    """One piece of a command, such as `--nnodes=2`, and the key of its sentence."""

    shown: str
    key: str
    values: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Command:
    """A launcher's command. `str(command)` is the line, or lines, as they stand in a shell.

    Attributes:
        tool: torchrun, mpirun or srun.
        before: lines that must run first, such as exports.
        parts: the pieces of the line itself, the first one the tool.
        files: files that must be there first: a name and its text.
    """

    tool: str
    before: tuple[Part, ...]
    parts: tuple[Part, ...]
    files: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return "\n".join([*(p.shown for p in self.before), laid_out([p.shown for p in self.parts])])

    @property
    def block(self) -> str:
        """The lines with the files in front, each written by `cat`."""
        files = [f"cat > {own(n)} <<'EOF'\n{t.rstrip()}\nEOF" for n, t in self.files.items()]
        return "\n".join([*files, str(self)])

    def explain(self) -> str:
        """Every piece with one sentence, in the current language (`coursekit.i18n`)."""
        pieces = [*self.before, *self.parts]
        width = max((len(p.shown) for p in pieces if len(p.shown) <= 40), default=0)
        return "\n".join(_told(p, width) for p in pieces)


def _told(part: Part, width: int) -> str:
    sentence = text(f"launch.opt_{part.key}", **part.values)
    if len(part.shown) > width:
        return f"{part.shown}\n{'':{width}}  {sentence}"
    return f"{part.shown:{width}}  {sentence}"


def laid_out(words: Sequence[str]) -> str:
    """One line if it fits, else lines that end in a backslash."""
    lines = [words[0]]
    for word in words[1:]:
        longer = f"{lines[-1]} {word}"
        if len(longer) <= WIDTH - 2:
            lines[-1] = longer
        else:
            lines.append(f"  {word}")
    return " \\\n".join(lines)


def own(word: str) -> str:
    """The learner's word, quoted where a shell would read something into it."""
    return shlex.quote(word)


def safe(host: str, what: str = "a host") -> str:
    """A host's name or address without a port."""
    if not _HOST.fullmatch(host):
        raise LaunchError(f"{what} must be a name or an address without a port, got {host!r}; "
                          "try 'node1'")  # fmt: skip
    return host


def count(what: str, number: int, least: int = 1) -> int:
    """A number that makes sense for what is counted."""
    if isinstance(number, bool) or not isinstance(number, int) or number < least:
        raise LaunchError(f"{what} must be {least} or more, got {number!r}; try {what}={least}")
    return number


def exports(environment: Mapping[str, str]) -> list[Part]:
    """A line `export NAME=VALUE` for every variable."""
    for name in environment:
        if not _NAME.fullmatch(name):
            raise LaunchError(
                f"a variable's name has letters, digits and _, got {name!r}; try 'NCCL_DEBUG'"
            )
    return [
        Part(f"export {n}={own(v)}", f"env_{n}" if n in _TOLD else "export", {"name": n})
        for n, v in environment.items()
    ]


_TOLD = ("NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
