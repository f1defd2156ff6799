"""What stands beside the proof: schedules run with numbers, in step and out of step."""

from __future__ import annotations

import random
from collections import deque
from itertools import groupby
from typing import Any

from hypothesis import strategies as st

from coursekit.schedule import Schedule, algorithms, build, options

PAIRS = [(collective, name) for collective in algorithms() for name in algorithms(collective)]

Memory = list[list[Any]]


class UnreadError(Exception):
    pass


@st.composite
def schedules(draw: st.DrawFn, most: int = 20) -> Schedule:
    """Any algorithm with any size, root, segments and groups."""
    collective, algorithm = draw(st.sampled_from(PAIRS))
    size = draw(st.integers(1, most))
    ranges = {"root": (0, size - 1), "groups": (1, size), "segments": (1, 9)}
    given = {
        name: draw(st.integers(*ranges[name])) for name in options(collective, algorithm, size)
    }
    return build(collective, algorithm, size, **given)


def inputs(schedule: Schedule) -> Memory:
    """Numbers so large that no wrong sum is right by chance; None where a rank has no data."""
    draw = random.Random(5)
    memory: Memory = []
    for rank in range(schedule.size):
        mine: list[Any] = [draw.getrandbits(64) for _ in range(schedule.chunks)]
        if schedule.collective in {"all_gather", "gather"}:
            block = schedule.chunks // schedule.size
            mine = [x if c // block == rank else None for c, x in enumerate(mine)]
        if schedule.collective in {"broadcast", "scatter"} and rank != schedule.root:
            mine = [None] * schedule.chunks
        memory.append(mine + [None] * (schedule.slots - schedule.chunks))
    return memory


def is_right(schedule: Schedule, before: Memory, after: Memory) -> bool:
    """Whether `after` is what the collective makes of `before`, said once more in plain words."""
    size, chunks, root = schedule.size, schedule.chunks, schedule.root
    block = chunks // size
    total = [sum(before[r][c] or 0 for r in range(size)) for c in range(chunks)]
    for rank in range(size):
        mine = range(rank * block, (rank + 1) * block)
        have = after[rank][schedule.output : schedule.output + chunks]
        match schedule.collective:
            case "all_reduce":
                good = have == total
            case "reduce":
                good = rank != root or have == total
            case "reduce_scatter":
                good = all(have[c] == total[c] for c in mine)
            case "all_gather":
                good = all(have[c] == before[c // block][c] for c in range(chunks))
            case "gather":
                good = rank != root or all(have[c] == before[c // block][c] for c in range(chunks))
            case "broadcast":
                good = have == before[root or 0][:chunks]
            case "scatter":
                good = all(have[c] == before[root or 0][c] for c in mine)
            case "all_to_all":
                good = all(
                    have[c] == before[c // block][rank * block + c % block] for c in range(chunks)
                )
            case _:
                raise AssertionError(schedule.collective)
        if not good:
            return False
    return True


def in_step(schedule: Schedule) -> bool:
    """Run all ranks in step, every transfer reading what was there before; whether it is right."""
    before = inputs(schedule)
    after = [list(row) for row in before]
    for part in schedule.steps():
        old = [list(row) for row in after]
        for _, src, dst, op, chunk, into in part.tolist():
            sent = old[src][chunk]
            if sent is None or (op == 1 and after[dst][into] is None):
                raise UnreadError
            after[dst][into] = after[dst][into] + sent if op == 1 else sent
    return is_right(schedule, before, after)


def has_race(schedule: Schedule) -> bool:
    """Whether a copy lands where its step also reads or writes."""
    for part in schedule.steps():
        rows = part.tolist()
        for number, (_, _, dst, op, _, into) in enumerate(rows):
            others = rows[:number] + rows[number + 1 :]
            reads = {(row[1], row[4]) for row in rows}
            writes = {(row[2], row[5]) for row in others}
            if op == 0 and (dst, into) in reads | writes:
                return True
    return False


class OutOfStep:
    """Ranks that know their own steps only, and do what can be done in an order drawn by chance.

    A send reads its chunks at any time between its being posted and the end of its step, a copy
    lands at any time at which its message is there; messages between two ranks stay in order.
    """

    def __init__(self, schedule: Schedule, seed: int) -> None:
        self.chance = random.Random(seed)
        self.memory = inputs(schedule)
        self.wires: dict[tuple[int, int], deque[list[Any]]] = {}
        self.plans = [
            [list(group) for _, group in groupby(schedule.of(rank).tolist(), key=lambda r: r[0])]
            for rank in range(schedule.size)
        ]
        self.open = [self._post(rank) for rank in range(schedule.size)]
        self.sums: list[list[tuple[int, Any]]] = [[] for _ in range(schedule.size)]

    def _post(self, rank: int) -> dict[tuple[str, int], deque[list[Any]]]:
        """The messages of the rank's next step: a queue for each peer and way."""
        queues: dict[tuple[str, int], deque[list[Any]]] = {}
        step = self.plans[rank][0] if self.plans[rank] else []
        for (src, dst, _), rows in groupby(step, key=lambda row: row[1:4]):
            way = ("move", rank) if src == dst else ("send", dst) if src == rank else ("recv", src)
            queues.setdefault(way, deque()).append(list(rows))
        return queues

    def run(self) -> Memory:
        while True:
            able = [
                (rank, way, peer)
                for rank, queues in enumerate(self.open)
                for way, peer in queues
                if way != "recv" or self.wires.get((peer, rank))
            ]
            if not able:
                assert not any(self.plans), "ranks wait for ever"
                return self.memory
            self._do(*self.chance.choice(able))

    def _do(self, rank: int, way: str, peer: int) -> None:
        queue = self.open[rank][way, peer]
        message = queue.popleft()
        if way == "send":
            data = [self.memory[rank][row[4]] for row in message]
            self.wires.setdefault((rank, peer), deque()).append(data)
        else:
            own = [self.memory[rank][row[4]] for row in message]
            data = own if way == "move" else self.wires[peer, rank].popleft()
            assert len(data) == len(message)
            for row, value in zip(message, data, strict=True):
                if row[3] == 1:
                    self.sums[rank].append((row[5], value))
                else:
                    self.memory[rank][row[5]] = value
        if not queue:
            del self.open[rank][way, peer]
        if not self.open[rank]:
            self._end_step(rank)

    def _end_step(self, rank: int) -> None:
        for slot, value in self.sums[rank]:
            self.memory[rank][slot] += value
        self.sums[rank] = []
        self.plans[rank].pop(0)
        self.open[rank] = self._post(rank)


def out_of_step(schedule: Schedule, seed: int) -> bool:
    """Whether the schedule is right when ranks drift apart."""
    return is_right(schedule, inputs(schedule), OutOfStep(schedule, seed).run())
