"""What a schedule costs in messages and bytes when its ranks outnumber the cores."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from coursekit.schedule import Schedule, build


@dataclass(frozen=True)
class Load:
    """The way that decides: ``T(n) = alphas * a + betas * n * b``, n bytes of the whole buffer.

    `factor` is how many times longer than without crowding the most crowded step takes.
    """

    alphas: float
    betas: float
    factor: float


@functools.lru_cache(maxsize=256)
def load(collective: str, algorithm: str, size: int, cores: int | None) -> Load:
    """Sum over the steps of what decides: the busiest rank, or the cores where they are too few.

    A message keeps a core busy at either end. n messages of one step are 2n such ends, which C
    cores work off in the time of 2n / C messages: where every rank sends one and receives one,
    the step takes max(1, 2n / C) times as long as a message alone. Bytes likewise. `cores` None
    leaves this out, and gives what `coursekit.cost.price` gives. Raises ScheduleError for unknown
    names.
    """
    return _load(build(collective, algorithm, size), cores)


def _load(schedule: Schedule, cores: int | None) -> Load:
    alphas = betas = 0.0
    most = 1.0
    for rows in schedule.steps():
        rows = rows[rows["src"] != rows["dst"]]
        if not len(rows):
            continue
        pairs = np.unique(rows[["src", "dst", "op"]])
        alone, chunks = _busiest(pairs, schedule.size), _busiest(rows, schedule.size)
        crowd = [2 * len(part) / cores if cores else 0.0 for part in (pairs, rows)]
        alphas += max(alone, crowd[0])
        betas += max(chunks, crowd[1]) / schedule.chunks
        most = max(most, crowd[0] / alone)
    return Load(alphas, betas, most)


def _busiest(rows: np.ndarray, size: int) -> int:
    return max(int(np.bincount(rows[end], minlength=size).max()) for end in ("src", "dst"))
