"""The price of any schedule, by looking at every transfer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from coursekit.cost._model import Cost
from coursekit.schedule import REDUCE, Schedule

__all__ = ["price"]


def price(schedule: Schedule, elements: int | Sequence[int], itemsize: int = 1) -> Cost:
    """What a schedule costs, built by the course, read from a file or recorded from a run.

    Args:
        schedule: any schedule, right or wrong.
        elements: the length of the buffer, or of each of its chunks.
        itemsize: bytes an element.

    Raises:
        ScheduleError: the schedule needs chunks of equal length, and these are not.
    """
    counts = schedule.count(elements, itemsize)
    total = sum(elements) if isinstance(elements, Sequence) else elements
    rows = schedule.transfers[schedule.transfers["src"] != schedule.transfers["dst"]]
    nbytes = schedule.lengths(elements, itemsize)[rows["chunk"]]
    first = np.ones(len(rows), dtype=np.bool_)
    heads = rows[["step", "src", "dst", "op"]]
    first[1:] = heads[1:] != heads[:-1]
    adds = rows["op"] == REDUCE
    return Cost(
        schedule.collective,
        schedule.algorithm,
        schedule.size,
        int(total) * itemsize,
        steps=counts.steps,
        messages=int(counts.messages_sent.max()),
        messages_total=counts.messages,
        sent=int(counts.sent.max()),
        received=int(counts.received.max()),
        sent_total=counts.total,
        alphas=_busiest(schedule, rows, first, ("src", "dst")),
        betas=_busiest(schedule, rows, nbytes, ("src", "dst")),
        gammas=_busiest(schedule, rows[adds], nbytes[adds], ("dst",)),
    )


def _busiest(
    schedule: Schedule, rows: npt.NDArray[Any], amounts: npt.NDArray[Any], ends: tuple[str, ...]
) -> int:
    """The sum over the steps of the amount of the rank that has most to do in the step."""
    shape = (schedule.step_count, schedule.size)
    most = np.zeros(shape[0], dtype=np.int64)
    for end in ends:
        place = rows["step"].astype(np.int64) * schedule.size + rows[end]
        done = np.bincount(place, weights=amounts, minlength=shape[0] * shape[1])
        most = np.maximum(most, done.reshape(shape).max(axis=1).astype(np.int64))
    return int(most.sum())
