"""Deadlocks: ranks that wait for each other in a circle."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from coursekit.schedule._errors import ScheduleError, near, ranks_text, whole
from coursekit.schedule._schedule import Schedule

__all__ = ["Call", "Deadlock", "Wait", "deadlock", "programs"]

OTHER = {"send": "recv", "recv": "send"}
BLOCKS = {"send": True, "recv": True, "isend": False, "irecv": False}


class Call(NamedTuple):
    """One operation of a rank: `kind` is send, recv, isend or irecv, `peer` the other rank."""

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
        if len(self.cycle) == 1:
            head = f"deadlock: rank {self.cycle[0]} waits for itself"
            shown = [self._toward(*self.cycle, *self.cycle)]
        elif self.cycle:
            circle = " -> ".join(str(rank) for rank in (*self.cycle, self.cycle[0]))
            head = f"deadlock: ranks {circle} wait for each other"
            shown = [self._toward(*pair) for pair in _pairs(self.cycle)]
        else:
            ended = f"{ranks_text(self.finished)} came to the end, others still wait"
            head = f"hang: {ended if self.finished else 'ranks wait for others in vain'}"
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
            or with a tag `("send", 1, 7)`. After `("isend", 1)` or `("irecv", 1)` the rank goes on,
            until `("wait", 0)` waits for its call 0; `("wait", 0, 1)` waits for two. Calls are
            counted from 0, waits not. A list among the calls is posted together and waited for
            together: `[[("send", 1), ("recv", 1)]]`. A schedule stands for `programs(schedule)`.
        buffered: False: a send is over when its receive has been posted, as large messages are.
            True: it is over at once, as small ones may be.

    Returns:
        The deadlock, or None if all ranks come to their end.

    Raises:
        ScheduleError: a call of another kind, a peer that is no rank, or a wait for a call that
            was not posted before.
    """
    given = programs(program) if isinstance(program, Schedule) else program
    ranks = [_Rank(rank, _parts(rank, calls, len(given))) for rank, calls in enumerate(given)]
    _Run(ranks, buffered).to_the_end()
    return _verdict(ranks)


class _Part(NamedTuple):
    """What a rank does at once: calls that it posts, then the numbers of those it waits for."""

    posts: tuple[Call, ...]
    waits: tuple[int, ...]


class _Rank:
    """Where a rank stands: what is left of its program, and the calls that it waits for now."""

    def __init__(self, rank: int, parts: list[_Part]) -> None:
        self.rank = rank
        self.left = deque(parts)
        self.calls: list[Call] = []
        self.over: set[int] = set()
        self.waits: list[int] = []

    def finish(self, number: int) -> None:
        self.over.add(number)
        if number in self.waits:
            self.waits.remove(number)


class _Run:
    """All ranks, and the calls that have met no counterpart yet."""

    def __init__(self, ranks: list[_Rank], buffered: bool) -> None:
        self.ranks = ranks
        self.buffered = buffered
        self.posted: dict[tuple[int, Call], deque[int]] = defaultdict(deque)
        self.awake = deque(ranks)

    def to_the_end(self) -> None:
        # What one rank posts wakes its peers only, so only they are looked at again.
        while self.awake:
            self._go_on(self.awake.popleft())

    def _go_on(self, rank: _Rank) -> None:
        while rank.left and not rank.waits:
            part = rank.left.popleft()
            for call in part.posts:
                self._post(rank, call)
            rank.waits = [number for number in part.waits if number not in rank.over]

    def _post(self, rank: _Rank, call: Call) -> None:
        number, peer = len(rank.calls), self.ranks[call.peer]
        rank.calls.append(call)
        if self.buffered and call.kind == "send":
            rank.finish(number)
        counterparts = self.posted[peer.rank, Call(OTHER[call.kind], rank.rank, call.tag)]
        if not counterparts:
            self.posted[rank.rank, call].append(number)
            return
        rank.finish(number)
        peer.finish(counterparts.popleft())
        self.awake.append(peer)


def _parts(rank: int, program: Iterable[Any], size: int) -> list[_Part]:
    parts: list[_Part] = []
    posted = 0
    for entry in program:
        if _is_call(entry) and entry[0] == "wait":
            parts.append(_Part((), _waits(rank, entry, posted)))
            continue
        calls = [entry] if _is_call(entry) else entry
        if not isinstance(calls, Sequence) or isinstance(calls, str):
            raise _no_call(rank, entry)
        checked = [_call(rank, call, size) for call in calls]
        waits = tuple(n for n, call in enumerate(checked, posted) if BLOCKS[call.kind])
        posts = tuple(call._replace(kind=call.kind.removeprefix("i")) for call in checked)
        parts.append(_Part(posts, waits))
        posted += len(posts)
    return parts


def _is_call(entry: Any) -> bool:
    return isinstance(entry, tuple) and bool(entry) and isinstance(entry[0], str)


def _no_call(rank: int, call: object) -> ScheduleError:
    return ScheduleError(f"a call must be like ('send', 1), got {call!r} of rank {rank}")


def _call(rank: int, call: Any, size: int) -> Call:
    if not _is_call(call) or len(call) not in (2, 3):
        raise _no_call(rank, call)
    kind, peer, tag = Call(*call)
    if kind not in BLOCKS:
        raise ScheduleError(
            f"a call must be send, recv, isend, irecv or wait, got {kind!r} of rank {rank}; "
            f"{near(kind, BLOCKS)}"
        )
    return Call(kind, whole(peer, f"the peer of rank {rank}", 0, size - 1), tag)


def _waits(rank: int, entry: tuple[Any, ...], posted: int) -> tuple[int, ...]:
    numbers = entry[1:]
    if not numbers or any(number not in range(posted) for number in numbers):
        raise ScheduleError(
            f"a wait must name calls that its rank posted before, got {entry!r} of rank {rank} "
            f"after {posted} calls; they are counted from 0, like ('wait', 0)"
        )
    return numbers


def _verdict(ranks: list[_Rank]) -> Deadlock | None:
    waits = [Wait(rank.rank, n, *rank.calls[n]) for rank in ranks for n in rank.waits]
    if not waits:
        return None
    after: dict[int, list[int]] = {}
    for wait in waits:
        after.setdefault(wait.rank, []).append(wait.peer)
    cycles = [cycle for rank in after if (cycle := _circle(rank, after))]
    finished = tuple(rank.rank for rank in ranks if not rank.waits)
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
