"""The errors of the package.

ScheduleError (a ValueError)
    WrongSchedule: a schedule that can be run, and gives a wrong result
"""

from __future__ import annotations

import difflib
import operator
from collections.abc import Iterable

__all__ = ["ScheduleError", "WrongSchedule", "near", "ranks_text", "whole"]


class ScheduleError(ValueError):
    """A schedule, or what was asked of one, breaks a rule; the message says which one."""


class WrongSchedule(ScheduleError):  # noqa: N818 - the name says what it is
    """A schedule does not do what its collective promises.

    Attributes:
        kind: `unread` (a chunk is sent or added to before it was received), `race` (a chunk is
            overwritten in the step that also uses it), `twice` (a contribution is added again),
            `mixed` (different chunks are added together), `unfinished` (a chunk ends without what
            it should hold).
        step: when the chunk went wrong; None: it was never written.
        rank, chunk: which chunk, in whose buffer.
        holds: the ranks whose contributions the chunk holds then.
        wants: the ranks whose contributions it should hold.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str,
        step: int | None,
        rank: int,
        chunk: int,
        holds: tuple[int, ...],
        wants: tuple[int, ...],
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.step = step
        self.rank = rank
        self.chunk = chunk
        self.holds = holds
        self.wants = wants


def near(name: str, known: Iterable[str]) -> str:
    """What to try in place of `name`: the likest of the known ones, or all of them."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(close)}? There are {', '.join(known)}"
    return f"there are {', '.join(known) or 'none'}"


def whole(value: object, name: str, least: int = 1, most: int | None = None) -> int:
    """`value` as an int between the bounds, or an error that names it."""
    span = f"from {least} up" if most is None else f"from {least} to {most}"
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or number < least or (most is not None and number > most):
        raise ScheduleError(
            f"{name} must be a whole number {span}, got {value!r}; try {name}={least}"
        )
    return number


def ranks_text(ranks: Iterable[int]) -> str:
    """`rank 3`, `ranks 0-3, 6`, or `no rank`."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    if not runs:
        return "no rank"
    text = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
    return f"rank {text}" if len(runs) == 1 and runs[0][0] == runs[0][1] else f"ranks {text}"
