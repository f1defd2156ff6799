"""Cutting the recorded memories so that every message and every move has whole pieces."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence

from coursekit.schedule import chunk_bounds

from ._errors import CommError
from ._log import Log, Range
from ._match import Message

MOST = 4096
Place = tuple[int, int, int]


class Pieces:
    """The pieces of all memories of all ranks.

    A piece is named by `(memory, number)`: memory 0 is the buffer, 1 the output where there is
    one, and all ranks' buffers have the same pieces. They are cut at least `every` so many bytes.
    """

    def __init__(
        self, logs: Sequence[Log], messages: Sequence[Message], every: int | None = None
    ) -> None:
        self._cuts: dict[tuple[int, int], set[int]] = defaultdict(set)
        first = logs[0]
        nominal = [b * first.itemsize for b in chunk_bounds(first.elements, first.chunks)]
        own = (0, 1) if first.has_output else (0,)
        whole = Range(0, 0, first.elements * first.itemsize)
        self._links: list[tuple[Place, Place, int]] = []
        for log in logs:
            for memory in own:
                self._link((0, whole), (log.rank, Range(memory, whole.start, whole.stop)))
            for event in log.events:
                if event.source is not None:
                    self._link((log.rank, event.source), (log.rank, event.place))
                else:
                    self._cut(log.rank, event.place)
        for m in messages:
            self._link((m.src, m.sent.place), (m.dst, m.got.place))
        self._cuts[0, 0].update(nominal)
        if every is not None:
            self._cuts[0, 0].update(range(0, whole.stop, every))
        self._settle()
        self._sorted = {key: sorted(cuts) for key, cuts in self._cuts.items()}

    def of(self, rank: int, part: Range, length: int | None = None) -> list[tuple[int, int]]:
        """The pieces of a range, or of its first `length` bytes."""
        cuts = self._sorted[rank, part.memory]
        stop = part.stop if length is None else min(part.stop, part.start + length)
        numbers = range(bisect_left(cuts, part.start), bisect_left(cuts, stop))
        return [(part.memory, number) for number in numbers]

    @property
    def bounds(self) -> list[int]:
        """Where the buffer is cut, in bytes."""
        return self._sorted[0, 0]

    def _cut(self, rank: int, part: Range) -> None:
        self._cuts[rank, part.memory].update((part.start, part.stop))

    def _link(self, one: tuple[int, Range], other: tuple[int, Range]) -> None:
        self._cut(*one)
        self._cut(*other)
        length = min(one[1].length, other[1].length)
        ends = [(rank, part.memory, part.start) for rank, part in (one, other)]
        self._links.append((ends[0], ends[1], length))

    def _settle(self) -> None:
        changed = True
        while changed:
            changed = False
            for one, other, length in self._links:
                for a, b in ((one, other), (other, one)):
                    changed |= self._carry(a, b, length)
            if len(self._cuts[0, 0]) > MOST:
                raise CommError(
                    f"the recorded messages cut the buffer into more than {MOST} pieces, too many "
                    "to follow; record with a shorter buffer"
                )

    def _carry(self, one: Place, other: Place, length: int) -> bool:
        mine, theirs = self._cuts[one[:2]], self._cuts[other[:2]]
        ordered = sorted(mine)
        low, high = bisect_left(ordered, one[2]), bisect_right(ordered, one[2] + length)
        moved = {cut - one[2] + other[2] for cut in ordered[low:high]}
        if moved <= theirs:
            return False
        theirs |= moved
        return True
