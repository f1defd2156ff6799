"""Recorded messages, posted and waited for once more: who waits for whom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from coursekit.schedule import Deadlock, deadlock

from ._log import Event, Log
from ._match import pairs

Entry = tuple[Any, ...]


def hang(logs: Sequence[Log]) -> Deadlock | None:
    """Who waits for whom in the calls that never ended.

    What ended did so: only what was posted counts of it.
    """
    found = _replayed(logs, ended=False)
    if found is None:
        return None
    return replace(found, finished=tuple(log.rank for log in logs if log.ended))


def unbuffered(logs: Sequence[Log]) -> Deadlock | None:
    """Who would wait for whom if every send waited until its receive has been posted."""
    return _replayed(logs, ended=True)


def _replayed(logs: Sequence[Log], ended: bool) -> Deadlock | None:
    met = pairs(logs)
    sources = {id(m.got): m.src for m in met}
    calls = [[c for e in log.events if (c := _call(e, sources)) is not None] for log in logs]
    # A receive may take several tags, and communicators may share them: here each message has one.
    own = {id(c.event): number for number, c in enumerate(c for mine in calls for c in mine)}
    own.update({id(m.got): own[id(m.sent)] for m in met})
    found = deadlock([list(_program(mine, own, ended)) for mine in calls])
    if found is None:
        return None
    waits = [w._replace(tag=max(calls[w.rank][w.number].event.tag, 0)) for w in found.waits]
    return replace(found, waits=tuple(waits))


class _Call(NamedTuple):
    event: Event
    peer: int


def _call(event: Event, sources: dict[int, int]) -> _Call | None:
    """A message's end; none for a receive from anybody that got nothing."""
    peer = sources.get(id(event), event.peer)
    return _Call(event, peer) if event.kind in ("send", "recv") and peer >= 0 else None


def _program(calls: Sequence[_Call], own: dict[int, int], ended: bool) -> Iterator[Entry]:
    """A rank's posts and waits in the order in which they were."""
    entries: list[tuple[int, Entry]] = []
    for number, (event, peer) in enumerate(calls):
        entries.append((event.begun, (f"i{event.kind}", peer, own[id(event)])))
        if ended and event.done >= 0:
            entries.append((event.done, ("wait", number)))
    for _, entry in sorted(entries):
        yield entry
    if last := _last(calls):
        yield ("wait", *last)


def _last(calls: Sequence[_Call]) -> list[int]:
    """The calls in which a rank still is: those that it waits for, or all where that is unseen."""
    still = [(number, event) for number, (event, _) in enumerate(calls) if event.done < 0]
    awaited = [number for number, event in still if event.awaited]
    return awaited or [number for number, _ in still]
