"""Tracebacks as data: packed on a rank, put into words in the notebook.

The notebook renders them because it alone knows the source of its cells.
"""

from __future__ import annotations

import linecache
import re
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

_OWN = str(Path(__file__).parent)
_PACKAGE = _OWN.rpartition("ranks")[0]
# What a fault injected into a call adds to its stack is no part of the learner's program.
_HIDDEN = (_OWN, f"{_PACKAGE}faults")
_CELL = re.compile(r"ipykernel_\d+[/\\](\d+)\.py$")


@dataclass(frozen=True)
class Frame:
    """One stack frame; `source` is empty where the rank could not read the file."""

    file: str
    line: int
    function: str
    source: str = ""

    @property
    def place(self) -> str:
        """The file as a reader of the notebook knows it."""
        return cell_name(self.file)

    def text(self) -> str:
        """The source line, from the notebook's own cells when the rank had none."""
        return self.source or linecache.getline(self.file, self.line).strip()


@dataclass(frozen=True)
class Failure:
    """An exception of a rank: its class, what it says, its frames, what caused it."""

    type_name: str
    says: str
    frames: tuple[Frame, ...]
    cause: Failure | None = None
    link: str = ""
    notes: tuple[str, ...] = field(default=())

    def render(self) -> str:
        """The traceback as Python prints it, with the notebook's names for cells."""
        lines = []
        if self.cause is not None:
            lines += [self.cause.render(), "", self.link, ""]
        if self.frames:
            lines.append("Traceback (most recent call last):")
        for f in self.frames:
            lines.append(f"  {f.place}, line {f.line}, in {f.function}")
            source = f.text()
            if source:
                lines.append(f"    {source}")
        lines.append(self.says)
        return "\n".join(lines)


def cell_name(file: str) -> str:
    """Return ``Cell In[5]`` for a cell's file name, the path for any other."""
    if file.startswith("In["):
        return f"Cell {file}"
    match = _CELL.search(file)
    if match:
        return f"Cell In[{_execution_count(file) or '?'}]"
    return f'File "{file}"'


def _execution_count(file: str) -> int | None:
    try:
        from IPython.core.getipython import get_ipython
    except ImportError:
        return None
    shell = get_ipython()
    names = getattr(getattr(shell, "compile", None), "_filename_map", {})
    return names.get(file)


def pack(error: BaseException) -> Failure:
    """Make an exception into data; frames of this package are left out."""
    cause, link = error.__cause__, "The above exception was the direct cause of this one:"
    if cause is None and not error.__suppress_context__:
        cause, link = error.__context__, "While handling the above exception, this one was raised:"
    says = "".join(traceback.format_exception_only(error)).rstrip()
    module = type(error).__module__
    frames = _frames(error.__traceback__)
    if module.startswith("coursekit."):
        # A rule was broken: the learner's line matters, not ours; and the name as it is imported.
        says = says.replace(module, module.partition("._")[0], 1)
        while len(frames) > 1 and frames[-1].file.startswith(_PACKAGE):
            frames = frames[:-1]
    return Failure(
        type_name=type(error).__name__,
        says=says,
        frames=frames,
        cause=pack(cause) if cause is not None else None,
        link=link,
    )


def _frames(trace: TracebackType | None) -> tuple[Frame, ...]:
    summaries = traceback.extract_tb(trace)
    return tuple(
        Frame(s.filename, s.lineno or 0, s.name, s.line or "")
        for s in summaries
        if not s.filename.startswith(_HIDDEN)
    )


_CRASH_LINE = re.compile(r'\s+File "(.+)", line (\d+) in (\S+)')
_LIBRARY = re.compile(r"/site-packages/|/coursekit/ranks/|/lib/python3\.\d+/|^<frozen")


def crash_frames(crash: str) -> tuple[Frame, ...]:
    """The learner's own frames in what the fault handler wrote, innermost last."""
    found = (_CRASH_LINE.match(line) for line in reversed(crash.splitlines()))
    return tuple(
        Frame(m[1], int(m[2]), m[3]) for m in found if m is not None and not _LIBRARY.search(m[1])
    )
