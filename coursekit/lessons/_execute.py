"""Runs a notebook from its first cell to its last in a fresh kernel."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from nbformat import NotebookNode

from coursekit.lessons._source import Lesson, LessonError

if TYPE_CHECKING:
    from nbclient import NotebookClient

TIMEOUT = 300.0

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def execute(notebook: NotebookNode, lesson: Lesson, folder: Path, timeout: float = TIMEOUT) -> None:
    """Run `notebook` in place, in `folder`, within `timeout` seconds for all cells together.

    Raises:
        LessonError: a cell failed (unless tagged `raises-exception`), hung, or nbclient is missing.
    """
    try:
        from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
    except ImportError as error:
        raise LessonError(
            "running lessons needs nbclient, which is not installed; run: pip install -e '.[test]'"
        ) from error
    started: list[NotebookNode] = []
    client = _client(notebook, folder, timeout, started)
    try:
        client.execute(env={**os.environ, "COURSEKIT_LIVE": "0"})
    except CellTimeoutError as error:
        raise _failure(notebook, lesson, started, f"not done after {timeout:g} s") from error
    except DeadKernelError as error:
        raise _failure(notebook, lesson, started, "the kernel died") from error
    except CellExecutionError as error:
        value = _COLOURS.sub("", error.evalue).strip()
        raise _failure(notebook, lesson, started, f"{error.ename}: {value}") from error
    notebook.metadata.coursekit.ran = lesson.code_digest


def _client(
    notebook: NotebookNode, folder: Path, timeout: float, started: list[NotebookNode]
) -> NotebookClient:
    """A client that notes in `started` every cell it comes to."""
    from nbclient import NotebookClient

    folder.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + timeout
    return NotebookClient(
        notebook,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        timeout_func=lambda cell: max(1, round(deadline - time.monotonic())),
        on_cell_start=lambda cell, cell_index: started.append(cell),
        record_timing=False,
        coalesce_streams=True,
    )


def _failure(
    notebook: NotebookNode, lesson: Lesson, started: list[NotebookNode], what: str
) -> LessonError:
    lang = notebook.metadata.coursekit.lang
    stopped = next((cell for cell in reversed(started) if cell.cell_type == "code"), None)
    if stopped is None:
        return LessonError(f"{lesson.path}: {lesson.name} ({lang}) must start, got: {what}")
    line = next(cell.line for cell in lesson.code if cell.id == stopped.id)
    first = stopped.source.strip().split("\n")[0]
    return LessonError(
        f"{lesson.path}:{line}: {lesson.name} ({lang}) must run to its end, got in the cell "
        f"{first!r}: {what}; mend the cell (the notebook that was there is kept)"
    )
