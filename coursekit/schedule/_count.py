"""Counting what a schedule sends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from coursekit.schedule._chunks import chunk_bounds
from coursekit.schedule._errors import ScheduleError, whole

if TYPE_CHECKING:
    from coursekit.schedule._schedule import Schedule

__all__ = ["Counts", "between_ranks", "count", "lengths", "matrix", "message_starts"]

Ints = npt.NDArray[np.int64]
_ONE = np.ones(1, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Counts:
    """What every rank sends, receives and reduces.

    Attributes:
        steps: how many steps have messages.
        messages_sent, messages_received: one number a rank; several chunks of one step with the
            same source, destination and op are one message.
        sent, received: one amount a rank, in `unit`.
        reduced: how much arrives to be added, one amount a rank, in `unit`.
        reductions: how many chunks are added, one number a rank.
        unit: `chunks` or `bytes`.
    """

    steps: int
    messages_sent: Ints
    messages_received: Ints
    sent: Ints
    received: Ints
    reduced: Ints
    reductions: Ints
    unit: str

    @property
    def messages(self) -> int:
        """All messages of all ranks."""
        return int(self.messages_sent.sum())

    @property
    def total(self) -> int:
        """All that is sent by all ranks, in `unit`."""
        return int(self.sent.sum())

    def __str__(self) -> str:
        head = ("rank", "messages sent", "received", f"{self.unit} sent", "received", "reduced")
        columns = (self.messages_sent, self.messages_received, self.sent, self.received)
        rows = [
            (str(rank), *(str(number) for number in row))
            for rank, row in enumerate(zip(*columns, self.reduced, strict=True))
        ]
        widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        lines = (
            "  ".join(c.rjust(w) for c, w in zip(r, widths, strict=True)) for r in (head, *rows)
        )
        return "\n".join(lines)


def between_ranks(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The transfers that are messages."""
    apart = rows["src"] != rows["dst"]
    return rows if apart.all() else rows[apart]


def message_starts(rows: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """True at the first transfer of each message; `rows` are sorted and between ranks."""
    new = np.zeros(len(rows), dtype=np.bool_)
    new[:1] = True
    for field in ("step", "src", "dst", "op"):
        column = rows[field]
        new[1:] |= column[1:] != column[:-1]
    return new


def lengths(
    schedule: Schedule, elements: int | Sequence[int] | None, itemsize: int = 1
) -> tuple[Ints, str]:
    """How long each of a rank's `slots` chunks is, and in which unit."""
    if elements is None:
        return np.ones(schedule.slots, dtype=np.int64), "chunks"
    each = _chunk_lengths(schedule, elements) * whole(itemsize, "itemsize")
    if schedule.needs_equal_chunks and (each != each[0]).any():
        fitting = int(each.sum()) // itemsize // schedule.chunks * schedule.chunks
        raise ScheduleError(
            f"{schedule.collective} by {schedule.algorithm} puts chunks into chunks of another "
            f"number, so its {schedule.chunks} chunks must be equally long, got {each.tolist()} "
            f"bytes; try {fitting} elements"
        )
    buffers = (schedule.output + schedule.chunks) // schedule.chunks
    beside = np.repeat(each.max(), schedule.scratch)
    return np.concatenate([np.tile(each, buffers), beside]), "bytes"


def _chunk_lengths(schedule: Schedule, elements: int | Sequence[int]) -> Ints:
    if not isinstance(elements, Sequence):
        return np.diff(chunk_bounds(elements, schedule.chunks))
    if len(elements) != schedule.chunks:
        raise ScheduleError(
            f"elements must give one length for each of {schedule.chunks} chunks, got "
            f"{len(elements)}; give a number to cut the buffer evenly"
        )
    return np.array([whole(length, "elements", 0) for length in elements], dtype=np.int64)


def _sums(index: npt.NDArray[Any], amounts: Ints, size: int) -> Ints:
    return np.bincount(index, weights=amounts, minlength=size).astype(np.int64)


def count(schedule: Schedule, elements: int | Sequence[int] | None, itemsize: int) -> Counts:
    each, unit = lengths(schedule, elements, itemsize)
    rows = between_ranks(schedule.transfers)
    firsts = rows[message_starts(rows)]
    adds = rows[rows["op"] == 1]
    size = schedule.size
    return Counts(
        steps=len(np.unique(rows["step"])),
        messages_sent=np.bincount(firsts["src"], minlength=size),
        messages_received=np.bincount(firsts["dst"], minlength=size),
        sent=_sums(rows["src"], each[rows["chunk"]], size),
        received=_sums(rows["dst"], each[rows["chunk"]], size),
        reduced=_sums(adds["dst"], each[adds["chunk"]], size),
        reductions=np.bincount(adds["dst"], minlength=size),
        unit=unit,
    )


def matrix(
    schedule: Schedule, elements: int | Sequence[int] | None, itemsize: int, messages: bool
) -> Ints:
    rows = between_ranks(schedule.transfers)
    if messages:
        rows = rows[message_starts(rows)]
        amounts = np.broadcast_to(_ONE, len(rows))
    else:
        amounts = lengths(schedule, elements, itemsize)[0][rows["chunk"]]
    size = schedule.size
    links = rows["src"].astype(np.int64) * size + rows["dst"]
    return _sums(links, amounts, size * size).reshape(size, size)
