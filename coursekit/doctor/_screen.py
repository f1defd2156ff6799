"""The doctor's lines as one screen, or as JSON."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Callable, Sequence

from ._lines import Line, State, can_run

WIDTH = 100


def as_text(lines: Sequence[Line], paint: Callable[[State, str], str] | None = None) -> str:
    """One line each: state, name, value; below it the next step where one is needed.

    `paint` may colour the word of a state.
    """
    told = [row for line in lines for row in _rows(line, paint or (lambda _, word: word))]
    return "\n".join([*told, "", verdict(lines)])


def _rows(line: Line, paint: Callable[[State, str], str]) -> list[str]:
    margin = " " * 23
    head = f"{paint(line.state, line.state.ljust(9))}  {line.name:<10}  "
    value = textwrap.wrap(
        line.value, WIDTH - len(margin), break_on_hyphens=False, break_long_words=False
    )
    step = textwrap.wrap(f"-> {line.step}", WIDTH - len(margin), subsequent_indent="   ")
    first, *more = value or [""]
    return [head + first, *(margin + row for row in (more + (step if line.step else [])))]


def verdict(lines: Sequence[Line]) -> str:
    """The last line: whether the course can run, and what keeps it."""
    if can_run(lines):
        return "The course can run here."
    lacking = [line.name for line in lines if line.needed and line.state == "missing"]
    return f"The course cannot run here yet; missing: {', '.join(lacking)}."


def as_json(lines: Sequence[Line]) -> str:
    """``{"can_run": ..., "lines": [...]}``; a line has name, state, value, step, needed."""
    told = [dataclasses.asdict(line) for line in lines]
    return json.dumps({"can_run": can_run(lines), "lines": told}, indent=2)
