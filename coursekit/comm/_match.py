"""Which send met which receive."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass

from ._log import Event, Log


@dataclass(eq=False)
class Message:
    """A send and the receive that took it."""

    src: int
    dst: int
    sent: Event
    got: Event


def match(logs: Sequence[Log]) -> tuple[list[Message], list[str]]:
    """Pair sends and receives: in order between two ranks, by tag; and name what is left over."""
    waiting: dict[tuple[int, int], deque[Event]] = defaultdict(deque)
    for log in logs:
        for event in log.events:
            if event.kind == "send":
                waiting[log.rank, event.peer].append(event)
    messages: list[Message] = []
    left: list[str] = []
    for log in logs:
        for event in log.events:
            if event.kind != "recv":
                continue
            sent = _take(waiting[event.peer, log.rank], event.tag) if event.done >= 0 else None
            if sent is None:
                left.append(_words(log, event))
            else:
                messages.append(Message(event.peer, log.rank, sent, event))
    for (src, _), sends in sorted(waiting.items()):
        left += [_words(logs[src], event) for event in sends]
    return messages, left


def uneven(message: Message) -> str:
    """What is to be said of a message whose receiver expected another length."""
    sent, got = message.sent.place.length, message.got.place.length
    if sent == got:
        return ""
    return f"rank {message.src} sent {sent} bytes to rank {message.dst}, which expected {got}"


def _take(sends: deque[Event], tag: int) -> Event | None:
    for number, event in enumerate(sends):
        if tag in (event.tag, -1):
            del sends[number]
            return event
    return None


def _words(log: Log, event: Event) -> str:
    where = {0: "the buffer", 1: "the output" if log.has_output else "a temporary tensor"}
    name = where.get(event.place.memory, "a temporary tensor")
    way = f"sent to rank {event.peer}" if event.kind == "send" else f"received from {_from(event)}"
    tag = f", tag {event.tag}" if event.tag > 0 else ""
    verb = "was never received" if event.kind == "send" else "was never sent"
    if event.kind == "recv" and event.done < 0:
        verb = "never came"
    place = f"bytes {event.place.start} to {event.place.stop} of {name}"
    return f"rank {log.rank}: {place}, {way}{tag}, {verb}"


def _from(event: Event) -> str:
    return "anybody" if event.peer < 0 else f"rank {event.peer}"
