"""A schedule as text."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coursekit.schedule._schedule import Schedule
    from coursekit.schedule._transfer import Message

__all__ = ["summary", "table"]


def plural(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def summary(schedule: Schedule) -> str:
    root = "" if schedule.root is None else f" from root {schedule.root}"
    if schedule.collective in {"reduce", "gather"}:
        root = f" to root {schedule.root}"
    parts = (
        plural(schedule.size, "rank"),
        plural(schedule.chunks, "chunk"),
        f"{plural(len(schedule), 'transfer')} in {plural(schedule.step_count, 'step')}",
    )
    return f"<Schedule {schedule.collective} {schedule.algorithm}{root}: {', '.join(parts)}>"


def table(schedule: Schedule, limit: int | None) -> str:
    """One line a step: `0->1 +3` adds chunk 3 of rank 0 to that of rank 1, `=3` replaces it."""
    lines = [summary(schedule)]
    for shown, (step, group) in enumerate(groupby(schedule.messages(), key=lambda m: m.step)):
        if limit is not None and shown == limit:
            lines.append(f"... to step {schedule.step_count - 1}; table(None) shows all")
            break
        lines.append(f"step {step}: " + "  ".join(_message(message) for message in group))
    return "\n".join(lines)


def _message(message: Message) -> str:
    sign = "+" if message.op == "reduce" else "="
    chunks, into = message.chunk.tolist(), message.into.tolist()
    what = _runs(chunks) if chunks == into else f"{_runs(chunks)}:{_runs(into)}"
    return f"{message.src}->{message.dst} {sign}{what}"


def _runs(numbers: list[int]) -> str:
    runs = groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    spans = [[number for _, number in run] for _, run in runs]
    return ",".join(str(s[0]) if len(s) == 1 else f"{s[0]}-{s[-1]}" for s in spans)
