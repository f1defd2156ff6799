"""From the logs of all ranks to one schedule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import gcd
from typing import Any

from coursekit.schedule import Deadlock, Schedule, Transfer

from ._errors import CommError
from ._fold import Act, Piece, fold
from ._itself import moved
from ._log import Event, Log
from ._match import Message, match, uneven
from ._order import Node, number_steps
from ._pieces import Pieces
from ._replay import hang, unbuffered

MOST_ALIKE = 512


@dataclass(frozen=True, repr=False)
class Recording:
    """What all ranks did, as a schedule.

    Attributes
    ----------
    schedule : Schedule
        The messages that arrived. `prove` tells whether it is right, `show.player` plays it.
    lengths : tuple of int
        Elements of each chunk; `schedule.count(lengths, itemsize)` counts bytes.
    itemsize : int
        Bytes an element.
    times : list of tuple
        Of each message in the order of the schedule's messages: step, src, dst, seconds from the
        first post of any message to its own, and to its arrival. Clocks of one machine agree.
    unmatched : list of str
        Messages that were sent and not received, or the reverse, in words.
    notes : list of str
        What could not be followed.
    logs : list of Log
        What it was made of.
    error : Exception or None
        Why the program did not come to its end.
    """

    schedule: Schedule
    lengths: tuple[int, ...]
    itemsize: int
    times: list[tuple[int, int, int, float, float]]
    unmatched: list[str]
    notes: list[str]
    logs: list[Log]
    error: Exception | None = None

    @property
    def deadlock(self) -> Deadlock | None:
        """Who waits for whom, when some rank's call never ended; None when all did."""
        return hang(self.logs)

    @property
    def deadlock_if_unbuffered(self) -> Deadlock | None:
        """Who would wait for whom if every send waited for its receive, as large ones do."""
        return unbuffered(self.logs)

    def __repr__(self) -> str:
        lines = [f"recorded: {self.schedule!r}", *self.unmatched, *self.notes]
        if (found := self.deadlock) is not None:
            lines.append(str(found))
        return "\n  ".join(lines)


def merge(
    logs: Sequence[Log],
    collective: str = "all_reduce",
    *,
    root: int | None = None,
    error: Exception | None = None,
) -> Recording:
    """Put the logs of all ranks together.

    Parameters
    ----------
    logs : sequence of Log
        One a rank, in any order, from `record`.
    collective : str
        What the ranks meant to do: `prove` measures the schedule against it.
    root : int, optional
        Of a collective that has one.

    Raises
    ------
    CommError
        Logs of another number of ranks or of buffers of different lengths, or more pieces or
        other orders than can be followed.
    """
    logs = _checked(logs)
    messages, unmatched = match(logs)
    given, (logs, messages) = logs, moved(logs, messages)
    notes = list(dict.fromkeys(f"rank {log.rank}: {n}" for log in logs for n in log.notes))
    notes += [words for message in messages if (words := uneven(message))]
    schedule, nodes, lengths = _scheduled(logs, messages, Pieces(logs, messages), collective, root)
    if schedule.needs_equal_chunks and len(set(lengths)) > 1:
        # Bytes can only be counted of chunks that are alike.
        if logs[0].elements // gcd(*lengths) <= MOST_ALIKE:
            finer = Pieces(logs, messages, gcd(*lengths) * logs[0].itemsize)
            schedule, nodes, lengths = _scheduled(logs, messages, finer, collective, root)
        else:
            notes.append(
                "bytes cannot be counted: data lie beside the buffer and its chunks are of "
                f"different lengths; record a length that is a multiple of {logs[0].chunks}"
            )
    itemsize = logs[0].itemsize
    times = _times(nodes)
    return Recording(schedule, lengths, itemsize, times, unmatched, notes, given, error)


def _scheduled(
    logs: Sequence[Log],
    messages: Sequence[Message],
    pieces: Pieces,
    collective: str,
    root: int | None,
) -> tuple[Schedule, list[Node], tuple[int, ...]]:
    nodes = _ordered(logs, messages, pieces)
    bounds = pieces.bounds
    chunks = len(bounds) - 1
    slots = _Slots(chunks, 2 if logs[0].has_output else 1)
    transfers = [t for node in nodes for t in _transfers(node, slots)]
    schedule = Schedule(
        collective, "recorded", len(logs), chunks, transfers, root=root, scratch=slots.scratch
    )
    return schedule, nodes, tuple((b - a) // logs[0].itemsize for a, b in pairwise(bounds))


def _checked(logs: Sequence[Log]) -> list[Log]:
    ordered = sorted(logs, key=lambda log: log.rank)
    size = ordered[0].size if ordered else 0
    if not ordered or [log.rank for log in ordered] != list(range(size)):
        raise CommError(
            f"merge needs the log of every rank once, got ranks {[log.rank for log in ordered]} "
            f"of {size}; give it what ranks.run returned"
        )
    kinds = {(log.size, log.elements, log.itemsize, log.chunks, log.has_output) for log in ordered}
    if ordered[0].elements == 0:
        raise CommError("a recorded buffer must have elements, got none; record a longer one")
    if len(kinds) > 1:
        sizes = sorted({log.elements for log in ordered})
        raise CommError(
            f"all ranks must record buffers of one length, dtype and number of chunks, got "
            f"lengths {sizes}; make them alike"
        )
    return ordered


def _ordered(logs: Sequence[Log], messages: Sequence[Message], pieces: Pieces) -> list[Node]:
    """The nodes with their steps; ranks that swap data need the memory that folding takes out."""
    for folded in (True, False):
        nodes = _nodes(logs, messages, pieces, folded)
        try:
            number_steps(nodes, range(len(logs)))
        except CommError:
            if not folded:
                raise
        else:
            break
    return nodes


def _nodes(
    logs: Sequence[Log], messages: Sequence[Message], pieces: Pieces, folded: bool
) -> list[Node]:
    """Messages and the moves that are left, their acts folded rank by rank."""
    ends = {id(e): (m, number) for number, m in enumerate(messages) for e in (m.sent, m.got)}
    nodes: dict[Any, Node] = {}
    own = 2 if logs[0].has_output else 1
    for log in logs:
        acts = [a for e in log.events for a in _acts(log.rank, e, ends, pieces)]
        for act in fold(acts, own) if folded else acts:
            key = ends[id(act.event)][1] if id(act.event) in ends else (log.rank, id(act.event))
            node = nodes.setdefault(key, Node(len(nodes)))
            node.acts.setdefault(log.rank, []).append(act)
    return list(nodes.values())


def _acts(
    rank: int, event: Event, ends: dict[int, tuple[Message, int]], pieces: Pieces
) -> list[Act]:
    if event.source is not None:
        parts = zip(pieces.of(rank, event.source), pieces.of(rank, event.place), strict=True)
        adds = event.kind == "reduce"
        return [
            Act(event, event.kind, b, event.begun, number, a, adds)
            for number, (a, b) in enumerate(parts)
        ]
    if id(event) not in ends:
        return []
    message, _ = ends[id(event)]
    length = min(message.sent.place.length, message.got.place.length)
    tick = event.begun if event.kind == "send" else event.done
    parts_here = pieces.of(rank, event.place, length)
    return [Act(event, event.kind, p, tick, number) for number, p in enumerate(parts_here)]


class _Slots:
    """Chunk numbers: of the buffer, the output, and scratch for what else is left, rank by rank."""

    def __init__(self, chunks: int, own: int) -> None:
        self._chunks, self._own = chunks, own
        self._taken: dict[int, dict[Piece, int]] = {}

    def of(self, rank: int, piece: Piece) -> int:
        memory, number = piece
        if memory < self._own:
            return memory * self._chunks + number
        taken = self._taken.setdefault(rank, {})
        return self._own * self._chunks + taken.setdefault(piece, len(taken))

    @property
    def scratch(self) -> int:
        return max((len(taken) for taken in self._taken.values()), default=0)


def _transfers(node: Node, slots: _Slots) -> list[Transfer]:
    found = []
    if len(node.acts) == 2:
        (src, sent), (dst, got) = sorted(node.acts.items(), key=lambda i: i[1][0].kind != "send")
        for a, b in zip(_in_order(sent), _in_order(got), strict=True):
            op = "reduce" if b.reduce else "copy"
            slot = slots.of(src, a.piece), slots.of(dst, b.piece)
            found.append(Transfer(node.step, src, dst, slot[0], op, slot[1]))
        return found
    ((rank, moves),) = node.acts.items()
    for act in moves:
        assert act.source is not None
        op = "reduce" if act.reduce else "copy"
        slot = slots.of(rank, act.source), slots.of(rank, act.piece)
        found.append(Transfer(node.step, rank, rank, slot[0], op, slot[1]))
    return found


def _in_order(acts: list[Act]) -> list[Act]:
    return sorted(acts, key=lambda act: act.number)


def _times(nodes: Sequence[Node]) -> list[tuple[int, int, int, float, float]]:
    both = [n for n in nodes if len(n.acts) == 2]
    rows = []
    for node in both:
        (src, sent), (dst, got) = sorted(node.acts.items(), key=lambda i: i[1][0].kind != "send")
        rows.append((node.step, src, dst, sent[0].event.start, got[0].event.end))
    zero = min((row[3] for row in rows), default=0.0)
    return sorted((step, src, dst, a - zero, b - zero) for step, src, dst, a, b in rows)
