"""Races: a copy that lands in a chunk which its step also reads or writes otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from coursekit.schedule._transfer import COPY, REDUCE

if TYPE_CHECKING:
    from coursekit.schedule._schedule import Schedule

__all__ = ["Race", "first_race"]


class Race(NamedTuple):
    """The chunk of a rank over which two transfers of a step race."""

    step: int
    rank: int
    slot: int
    told: str


def first_race(schedule: Schedule) -> Race | None:
    """The first race, None if there is none.

    A barrier has none: nobody reads what its messages carry.
    """
    rows = schedule.transfers
    if schedule.collective == "barrier" or not len(rows):
        return None
    slots = schedule.slots
    place = rows["step"].astype(np.int64) * schedule.size
    writes = (place + rows["dst"]) * slots + rows["into"]
    reads = (place + rows["src"]) * slots + rows["chunk"]
    copies = np.sort(writes[rows["op"] == COPY])
    again = copies[1:][copies[1:] == copies[:-1]]
    added = np.intersect1d(copies, writes[rows["op"] == REDUCE])
    read = np.intersect1d(copies, reads)
    found = [
        (int(keys.min()), told)
        for keys, told in (
            (again, "receives two copies of it at once"),
            (added, "receives a copy of it and adds to it at once"),
            (read, "sends it while a copy of it arrives"),
        )
        if len(keys)
    ]
    if not found:
        return None
    key, told = min(found)
    place_of, slot = divmod(key, slots)
    step, rank = divmod(place_of, schedule.size)
    return Race(step, rank, slot, told)
