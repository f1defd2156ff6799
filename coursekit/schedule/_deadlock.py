"""Deadlocks: ranks that wait for each other in a circle."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from coursekit.schedule._errors import ScheduleError, near, ranks_text, whole
from coursekit.schedule._schedule import Schedule

__all__ = ["Call", "Deadlock", "Wait", "deadlock", "programs"]

OTHER = {"send": "recv", "recv": "send"}


class Call(NamedTuple):
    """One operation of a rank: `kind` is send or recv, `peer` the other rank."""

    kind: str
    peer: int
    tag: int = 0


class Wait(NamedTuple):
    """A rank that cannot go on: its call `number`, from 0 up, waits for `peer`."""

    rank: int
    number: int
    kind: str
    peer: int
    tag: int

    def __str__(self) -> str:
        way = "send to" if self.kind == "send" else "receive from"
        tag = f", tag {self.tag}" if self.tag else ""
        return f"rank {self.rank} waits in its call {self.number}, {way} rank {self.peer}{tag}"


@dataclass(frozen=True)
class Deadlock:
    """Ranks that wait for ever.

    Attributes:
        cycle: the ranks of a shortest circle, each waiting for the next and the last for the first;
            empty where ranks wait only for such as have finished.
        waits: all calls that wait, by rank.
        finished: the ranks that came to their end.
    """

    cycle: tuple[int, ...]
    waits: tuple[Wait, ...]
    finished: tuple[int, ...]

    def __str__(self) -> str:
        if self.cycle:
            circle = " -> ".join(str(rank) for rank in (*self.cycle, self.cycle[0]))
            head = f"deadlock: ranks {circle} wait for each other"
            shown = [self._toward(*pair) for pair in _pairs(self.cycle)]
        else:
            head = f"hang: {ranks_text(self.finished)} came to the end, others still wait"
            shown = list(self.waits)
        return "\n  ".join([head, *(str(wait) for wait in shown)])

    def _toward(self, rank: int, peer: int) -> Wait:
        return next(wait for wait in self.waits if (wait.rank, wait.peer) == (rank, peer))


def programs(schedule: Schedule, *, blocking: bool = False) -> list[list[list[Call]]]:
    """What every rank calls when a schedule is run.

    Args:
        schedule: what is run.
        blocking: False: each step's messages are posted together, which cannot deadlock. True: one
            after another, the sends of a step first, as a first attempt often does.

    Returns:
        For every rank its batches of calls; those of a batch are posted together.
    """
    calls: list[list[list[Call]]] = [[] for _ in range(schedule.size)]
    last = [-1] * schedule.size
    sends = [(m.step, 0, m.src, m.dst) for m in schedule.messages()]
    recvs = [(m.step, 1, m.dst, m.src) for m in schedule.messages()]
    for step, way, rank, peer in sorted(sends + recvs):
        if blocking or last[rank] != step:
            calls[rank].append([])
            last[rank] = step
        calls[rank][-1].append(Call("recv" if way else "send", peer))
    return calls


def deadlock(program: Schedule | Sequence[Any], *, buffered: bool = False) -> Deadlock | None:
    """Run the ranks' calls against each other, and find who waits for whom if they get stuck.

    Messages from one rank to another with one tag arrive in the order in which they were sent.

    Args:
        program: for every rank its calls in order, each blocking: `[("send", 1), ("recv", 1)]`,
            or with a tag `("send", 1, 7)`. A list among them is posted together and waited for
            together: `[[("send", 1), ("recv", 1)]]`. A schedule stands for `programs(schedule)`.
        buffered: False: a send waits until it is received, as large messages do. True: a send
            returns at once, as small ones may.

    Returns:
        The deadlock, or None if all ranks come to their end.

    Raises:
        ScheduleError: a call is neither send nor recv, or its peer is not another rank.
    """
    given = programs(program) if isinstance(program, Schedule) else program
    run = _Run(
        [_Rank(rank, _batches(rank, calls, len(given))) for rank, calls in enumerate(given)],
        buffered,
    )
    run.to_the_end()
    return _verdict(run.ranks)


class _Rank:
    """Where a rank stands: its batches, and the calls of the present one that are not done."""

    def __init__(self, rank: int, batches: list[list[Call]]) -> None:
        self.rank = rank
        self.batches = batches
        self.done = 0
        self.open: dict[int, Call] = {}
        self.go_on()

    def go_on(self) -> None:
        """Post the next batch if the present one is done."""
        if not self.open and self.batches:
            batch = self.batches.pop(0)
            self.open = dict(enumerate(batch, self.done))
            self.done += len(batch)

    def first(self, call: Call) -> int | None:
        """The number of the first open call that is this one."""
        return next((number for number, open_ in self.open.items() if open_ == call), None)

    def finish(self, number: int) -> None:
        del self.open[number]
        self.go_on()


class _Run:
    """All ranks, and the messages that are under way."""

    def __init__(self, ranks: list[_Rank], buffered: bool) -> None:
        self.ranks = ranks
        self.buffered = buffered
        self.sent: Counter[tuple[int, int, int]] = Counter()

    def to_the_end(self) -> None:
        # What one rank does wakes its peers only, so only they are looked at again.
        awake = deque(self.ranks)
        while awake:
            rank = awake.popleft()
            for number, call in list(rank.open.items()):
                if number in rank.open and self._met(rank, number, call):
                    awake.extend((self.ranks[call.peer], rank))

    def _met(self, rank: _Rank, number: int, call: Call) -> bool:
        """Finish a call, and its counterpart, if it can be finished."""
        peer = self.ranks[call.peer]
        if not self.buffered:
            match = peer.first(Call(OTHER[call.kind], rank.rank, call.tag))
            if match is None:
                return False
            peer.finish(match)
        elif call.kind == "send":
            self.sent[rank.rank, call.peer, call.tag] += 1
        elif self.sent[call.peer, rank.rank, call.tag]:
            self.sent[call.peer, rank.rank, call.tag] -= 1
        else:
            return False
        rank.finish(number)
        return True


def _batches(rank: int, program: Iterable[Any], size: int) -> list[list[Call]]:
    batches = []
    for entry in program:
        calls = [entry] if _is_call(entry) else entry
        if not isinstance(calls, Sequence) or isinstance(calls, str):
            raise _no_call(rank, entry)
        if calls:
            batches.append([_call(rank, call, size) for call in calls])
    return batches


def _is_call(entry: Any) -> bool:
    return isinstance(entry, tuple) and bool(entry) and isinstance(entry[0], str)


def _no_call(rank: int, call: object) -> ScheduleError:
    return ScheduleError(f"a call must be like ('send', 1), got {call!r} of rank {rank}")


def _call(rank: int, call: Any, size: int) -> Call:
    if not _is_call(call) or len(call) not in (2, 3):
        raise _no_call(rank, call)
    kind, peer, tag = Call(*call)
    if kind not in OTHER:
        raise ScheduleError(
            f"a call must be send or recv, got {kind!r} of rank {rank}; {near(kind, OTHER)}"
        )
    if whole(peer, f"the peer of rank {rank}", 0, size - 1) == rank:
        raise ScheduleError(f"a peer must be another rank, got {call!r} of rank {rank}")
    return Call(kind, peer, tag)


def _verdict(ranks: list[_Rank]) -> Deadlock | None:
    waits = [Wait(rank.rank, number, *call) for rank in ranks for number, call in rank.open.items()]
    if not waits:
        return None
    after: dict[int, list[int]] = {}
    for wait in waits:
        after.setdefault(wait.rank, []).append(wait.peer)
    cycles = [cycle for rank in after if (cycle := _circle(rank, after))]
    finished = tuple(rank.rank for rank in ranks if not rank.open)
    return Deadlock(min(cycles, key=len, default=()), tuple(waits), finished)


def _circle(start: int, after: dict[int, list[int]]) -> tuple[int, ...]:
    """The shortest way from a rank back to itself, empty if there is none."""
    paths: deque[tuple[int, ...]] = deque([(start,)])
    seen = set()
    while paths:
        path = paths.popleft()
        for peer in after.get(path[-1], ()):
            if peer == start:
                return path
            if peer not in seen:
                seen.add(peer)
                paths.append((*path, peer))
    return ()


def _pairs(cycle: tuple[int, ...]) -> Iterable[tuple[int, int]]:
    return zip(cycle, (*cycle[1:], cycle[0]), strict=True)
