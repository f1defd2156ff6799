"""What a rank did when: the raw material of Gantt charts."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple


class Span(NamedTuple):
    """One piece of work of a rank.

    `lane` is ``compute`` or ``communicate``; `kind` says what, such as ``forward``; `label` tells
    it apart from others. `start` and `end` are seconds of the machine's steady clock, which all
    ranks of one machine share.
    """

    rank: int
    lane: str
    kind: str
    start: float
    end: float
    label: str = ""


class Clock:
    """Collects the spans of one rank: the last thousand."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self._spans: deque[Span] = deque(maxlen=1000)

    @property
    def spans(self) -> list[Span]:
        """What was put down, oldest first: a copy."""
        return list(self._spans)

    def clear(self) -> None:
        """Forget what was put down."""
        self._spans.clear()

    def add(self, lane: str, kind: str, start: float, end: float, label: str = "") -> None:
        """Put down a span that has ended."""
        self._spans.append(Span(self.rank, lane, kind, start, end, label))

    @contextmanager
    def span(self, lane: str, kind: str, label: str = "") -> Iterator[None]:
        """Put down the block's time; host time: on a GPU, of the launches."""
        start = time.perf_counter()
        yield
        self.add(lane, kind, start, time.perf_counter(), label)

    @property
    def now(self) -> float:
        """Seconds of the steady clock."""
        return time.perf_counter()


def utilisation(spans: Sequence[Sequence[Span]]) -> list[float]:
    """The share of the time between the first span's start and the last one's end that each rank
    computed: 0 to 1, one number a rank. `spans` has one list a rank.
    """
    flat = [s for rank in spans for s in rank]
    if not flat:
        return [0.0 for _ in spans]
    whole = max(s.end for s in flat) - min(s.start for s in flat)
    return [sum(s.end - s.start for s in rank if s.lane == "compute") / whole for rank in spans]
