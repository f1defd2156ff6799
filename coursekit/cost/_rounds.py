"""A schedule as rounds: who sends how many bytes to whom, and how often the same comes again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from coursekit.cost._model import CostError
from coursekit.schedule import REDUCE, Schedule, build, collective_name, options

__all__ = ["Round", "rounds", "rounds_of"]

# Rings are the same round again and again: written down without their transfers.
_RINGS = {"all_reduce": (2, 1), "all_gather": (1, 0), "reduce_scatter": (1, 1)}


@dataclass(frozen=True, eq=False)
class Round:
    """One step, and how many of them follow each other.

    Attributes:
        src, dst: ranks, one entry a message.
        nbytes: bytes of each message.
        adds: bytes of each that are added at the receiver.
        times: how many such steps follow each other.
    """

    src: npt.NDArray[np.int64]
    dst: npt.NDArray[np.int64]
    nbytes: npt.NDArray[np.int64]
    adds: npt.NDArray[np.int64]
    times: int = 1

    @property
    def key(self) -> bytes:
        """Equal for rounds that are alike."""
        return b"".join(x.tobytes() for x in (self.src, self.dst, self.nbytes, self.adds))


def rounds_of(
    schedule: Schedule, elements: int | Sequence[int], itemsize: int = 1
) -> Iterator[Round]:
    """The rounds of any schedule; steps that are alike and follow each other come as one.

    Args:
        schedule: any schedule.
        elements: the length of the buffer, or of each of its chunks.
        itemsize: bytes an element.

    Raises:
        ScheduleError: the schedule needs chunks of equal length, and these are not.
    """
    lengths = schedule.lengths(elements, itemsize)
    waiting: Round | None = None
    for rows in schedule.steps():
        rows = rows[rows["src"] != rows["dst"]]
        if not len(rows):
            continue
        heads = rows[["src", "dst", "op"]]
        first = np.flatnonzero(np.concatenate([[True], heads[1:] != heads[:-1]]))
        nbytes = np.add.reduceat(lengths[rows["chunk"]], first).astype(np.int64)
        adds = np.where(rows["op"][first] == REDUCE, nbytes, 0)
        made = Round(
            rows["src"][first].astype(np.int64), rows["dst"][first].astype(np.int64), nbytes, adds
        )
        if waiting is not None and waiting.key == made.key:
            waiting = replace(waiting, times=waiting.times + 1)
            continue
        if waiting is not None:
            yield waiting
        waiting = made
    if waiting is not None:
        yield waiting


def rounds(
    collective: str, algorithm: str, size: int, nbytes: int, **given: int | None
) -> Iterator[Round]:
    """The rounds of a collective by an algorithm; of rings for any number of ranks, at once.

    Args:
        collective, algorithm, given: as in `coursekit.schedule.build`.
        size: the number of ranks.
        nbytes: bytes of the whole buffer. A ring of more than 1,024 ranks takes them as divided
            evenly, as the closed form does.

    Raises:
        CostError: `nbytes` is no whole number from 0 up.
        ScheduleError: a name, the size or an option is wrong.
    """
    if isinstance(nbytes, bool) or not isinstance(nbytes, int) or nbytes < 0:
        raise CostError(f"nbytes must be a whole number from 0 up, got {nbytes!r}; try 1 << 20")
    collective = collective_name(collective)
    options(collective, algorithm, size, **given)
    if algorithm == "ring" and size > 1024 and collective in _RINGS:
        yield from _ring(collective, size, nbytes)
        return
    yield from rounds_of(build(collective, algorithm, size, **given), nbytes)


def _ring(collective: str, size: int, nbytes: int) -> Iterator[Round]:
    turns, adding = _RINGS[collective]
    src = np.arange(size, dtype=np.int64)
    each = np.full(size, -(-nbytes // size), dtype=np.int64)
    for turn in range(turns):
        adds = each if turn < adding else np.zeros_like(each)
        yield Round(src, (src + 1) % size, each, adds, size - 1)
