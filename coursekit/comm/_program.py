"""What one rank does in a schedule, step by step, ready to be run."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise

from coursekit.schedule import REDUCE, Schedule


@dataclass(frozen=True)
class Leg:
    """A message to or from `peer`.

    `early` is true of what may be added before the step's other messages are done: it is the only
    use of its chunks in that step.
    """

    peer: int
    reduce: bool
    chunks: tuple[int, ...]
    early: bool = False


@dataclass(frozen=True)
class Move:
    """A chunk that goes into another one of the same rank."""

    chunk: int
    into: int
    reduce: bool


@dataclass(frozen=True)
class Step:
    """One step of a rank.

    `ahead` is true when the receives may be posted while the step before still runs: it does not
    use the memory in which they land.
    """

    receives: tuple[Leg, ...]
    sends: tuple[Leg, ...]
    moves: tuple[Move, ...]
    ahead: bool = False


@functools.lru_cache(maxsize=64)
def program(schedule: Schedule, rank: int) -> tuple[Step, ...]:
    """The steps of one rank; kept, because the same schedule runs again and again."""
    rows = schedule.of(rank).tolist()
    steps = [_step(list(part), rank) for _, part in groupby(rows, key=lambda row: row[0])]
    return tuple(_mark(steps))


def _step(rows: list[tuple[int, ...]], rank: int) -> Step:
    receives: list[Leg] = []
    sends: list[Leg] = []
    moves: list[Move] = []
    for (_, src, dst, op), part in groupby(rows, key=lambda row: row[:4]):
        transfers = list(part)
        chunks, into = (tuple(t[i] for t in transfers) for i in (4, 5))
        if src == dst:
            moves += [Move(a, b, op == REDUCE) for a, b in zip(chunks, into, strict=True)]
        elif src == rank:
            sends.append(Leg(dst, op == REDUCE, chunks))
        else:
            receives.append(Leg(src, op == REDUCE, into))
    return Step(_with_early(receives, sends, moves), tuple(sends), tuple(moves))


def _with_early(receives: list[Leg], sends: list[Leg], moves: list[Move]) -> tuple[Leg, ...]:
    used = Counter(c for leg in (*receives, *sends) for c in leg.chunks)
    used.update(c for move in moves for c in (move.chunk, move.into))
    return tuple(
        Leg(leg.peer, True, leg.chunks, all(used[c] == 1 for c in leg.chunks))
        if leg.reduce
        else leg
        for leg in receives
    )


def _mark(steps: list[Step]) -> Iterator[Step]:
    yield from steps[:1]
    for before, step in pairwise(steps):
        in_place = {c for leg in step.receives if not leg.reduce for c in leg.chunks}
        ahead = in_place.isdisjoint(_chunks(before))
        yield Step(step.receives, step.sends, step.moves, ahead)


def _chunks(step: Step) -> set[int]:
    legs = {c for leg in (*step.receives, *step.sends) for c in leg.chunks}
    return legs | {c for move in step.moves for c in (move.chunk, move.into)}
