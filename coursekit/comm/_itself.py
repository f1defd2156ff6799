"""Messages that ranks send themselves: they are moves in their own memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ._log import Event, Log, Range
from ._match import Message


def moved(logs: Sequence[Log], messages: Sequence[Message]) -> tuple[list[Log], list[Message]]:
    """The logs with moves in the place of such messages, and the other messages."""
    own = [m for m in messages if m.src == m.dst]
    if not own:
        return list(logs), list(messages)
    gone = {id(event) for m in own for event in (m.sent, m.got)}
    left = []
    for log in logs:
        events = [e for e in log.events if id(e) not in gone]
        spare = 2 + max((e.place.memory for e in log.events), default=0)
        for number, message in enumerate(m for m in own if m.src == log.rank):
            events += _moves(message, spare + number)
        left.append(replace(log, events=sorted(events, key=lambda event: event.begun)))
    return left, [m for m in messages if m.src != m.dst]


def _moves(message: Message, spare: int) -> list[Event]:
    """One copy; two by way of other memory if the sender went on before the receive began."""
    sent, got = message.sent, message.got
    length = min(sent.place.length, got.place.length)
    source, target, beside = (
        Range(memory, start, start + length)
        for memory, start, _ in (sent.place, got.place, Range(spare, 0, 0))
    )
    if 0 <= sent.done < got.begun:
        return [_copy(source, beside, sent), _copy(beside, target, got)]
    return [_copy(source, target, max(sent, got, key=lambda event: event.begun))]


def _copy(source: Range, target: Range, when: Event) -> Event:
    return Event(
        "copy", target, source, begun=when.begun, done=when.begun, start=when.start, end=when.start
    )
