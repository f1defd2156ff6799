"""Recorded messages, posted and waited for once more: who waits for whom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

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
    calls = {log.rank: _calls(log) for log in logs}
    # A receive took one message, whatever tags it would have taken: each message gets its own.
    own = {id(e): n for n, e in enumerate(e for events in calls.values() for e in events)}
    own.update({id(m.got): own[id(m.sent)] for m in pairs(logs) if id(m.got) in own})
    found = deadlock([list(_program(calls[log.rank], own, ended)) for log in logs])
    if found is None:
        return None
    tags = {(rank, n): max(e.tag, 0) for rank, events in calls.items() for n, e in enumerate(events)}
    waits = tuple(wait._replace(tag=tags[wait.rank, wait.number]) for wait in found.waits)
    return replace(found, waits=waits)


def _calls(log: Log) -> list[Event]:
    return [e for e in log.events if e.kind in ("send", "recv") and e.peer >= 0]


def _program(calls: Sequence[Event], own: dict[int, int], ended: bool) -> Iterator[Entry]:
    """A rank's posts and waits in the order in which they were."""
    entries: list[tuple[int, Entry]] = []
    for number, event in enumerate(calls):
        entries.append((event.begun, (f"i{event.kind}", event.peer, own[id(event)])))
        if ended and event.done >= 0:
            entries.append((event.done, ("wait", number)))
    for _, entry in sorted(entries):
        yield entry
    if last := _last(calls):
        yield ("wait", *last)


def _last(calls: Sequence[Event]) -> list[int]:
    """The calls in which a rank still is: those that it waits for, or all where that is unseen."""
    still = [(number, event) for number, event in enumerate(calls) if event.done < 0]
    awaited = [number for number, event in still if event.awaited]
    return awaited or [number for number, _ in still]
