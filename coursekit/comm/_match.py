"""Which send met which receive."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ._log import Event, Log


@dataclass(eq=False)
class Message:
    """A send and the receive that took it."""

    src: int
    dst: int
    sent: Event
    got: Event


def pairs(logs: Sequence[Log]) -> list[Message]:
    """Sends and the receives that take them: in the order of their posts between two ranks, by tag.

    A receive that nobody has waited for yet is among them.
    """
    waiting: dict[tuple[int, int, str], deque[Event]] = defaultdict(deque)
    for log in logs:
        for event in log.events:
            if event.kind == "send":
                waiting[log.rank, event.peer, event.context].append(event)
    messages: list[Message] = []
    receives = [(log.rank, e) for log in logs for e in log.events if e.kind == "recv"]
    # What anybody may have sent is looked for among what is left.
    for dst, event in sorted(receives, key=lambda pair: pair[1].peer < 0):
        for src in _sources(event, len(logs)):
            sent = _take(waiting[src, dst, event.context], event.tag)
            if sent is not None:
                messages.append(Message(src, dst, sent, event))
                break
    return messages


def _sources(event: Event, size: int) -> Iterable[int]:
    if event.peer >= 0:
        return (event.peer,)
    # Of one that was received, nobody can tell any more from whom.
    return range(size) if event.done < 0 else ()


def match(logs: Sequence[Log]) -> tuple[list[Message], list[str]]:
    """The messages that arrived; and what is left over, in words."""
    met = pairs(logs)
    unawaited = {id(m.got): m for m in met if m.got.done < 0}
    paired = {id(event) for m in met for event in (m.sent, m.got)}
    left: list[str] = []
    sends: list[tuple[int, int, str]] = []
    for log in logs:
        for event in log.events:
            if id(event) in unawaited:
                left.append(_words(log, event, unawaited[id(event)].src))
            elif event.kind == "recv" and id(event) not in paired:
                left.append(_words(log, event))
            elif event.kind == "send" and id(event) not in paired:
                sends.append((log.rank, event.peer, _words(log, event)))
    left += [words for *_, words in sorted(sends, key=lambda send: send[:2])]
    return [m for m in met if m.got.done >= 0], left


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


def _words(log: Log, event: Event, src: int = -1) -> str:
    where = {0: "the buffer", 1: "the output" if log.has_output else "a temporary tensor"}
    name = where.get(event.place.memory, "a temporary tensor")
    peer = event.peer if src < 0 else src
    way = f"sent to rank {peer}" if event.kind == "send" else f"received from {_from(peer)}"
    tag = f", tag {event.tag}" if event.tag > 0 else ""
    place = f"bytes {event.place.start} to {event.place.stop} of {name}"
    return f"rank {log.rank}: {place}, {way}{tag}, {_verb(event, sent=src >= 0)}"


def _verb(event: Event, sent: bool) -> str:
    if event.kind == "send":
        return "was never received"
    if sent:
        return "was sent, but had not come yet" if event.awaited else "was sent, never waited for"
    if event.done < 0:
        return "never came"
    return "was never sent" if event.peer >= 0 else "came from a rank that is not known"


def _from(peer: int) -> str:
    return "anybody" if peer < 0 else f"rank {peer}"
