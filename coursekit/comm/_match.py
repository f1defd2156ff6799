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


def pairs(logs: Sequence[Log]) -> list[Message]:
    """Sends and the receives that take them: in the order of their posts between two ranks, by tag.

    Among them are receives that nobody has waited for yet, and guesses: of a receive from anybody
    that ended in MPI's Waitall, nobody can tell any more from whom it came.
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
        for src in range(len(logs)) if event.peer < 0 else (event.peer,):
            sent = _take(waiting[src, dst, event.context], event.tag)
            if sent is not None:
                messages.append(Message(src, dst, sent, event))
                break
    return messages


def match(logs: Sequence[Log]) -> tuple[list[Message], list[str]]:
    """The messages that are known to have arrived; and what is left over, in words."""
    met = pairs(logs)
    sources = {id(m.got): m.src for m in met}
    arrived = [m for m in met if m.got.done >= 0 and m.got.peer >= 0]
    sent, known = {id(m.sent) for m in met}, {id(m.got) for m in arrived}
    left = [
        _words(log, event, sources.get(id(event), -1))
        for log in logs
        for event in log.events
        if event.kind == "recv" and id(event) not in known
    ]
    lost = [
        (log.rank, event.peer, _words(log, event))
        for log in logs
        for event in log.events
        if event.kind == "send" and id(event) not in sent
    ]
    left += [words for *_, words in sorted(lost, key=lambda send: send[:2])]
    return arrived, left


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
    tag = f", tag {event.tag}" if event.tag > 0 else ""
    place = f"rank {log.rank}: bytes {event.place.start} to {event.place.stop} of {name}"
    if event.kind == "send":
        return f"{place}, sent to rank {event.peer}{tag}, was never received"
    peer = event.peer if event.done >= 0 else max(event.peer, src)
    came = "anybody" if peer < 0 else f"rank {peer}"
    return f"{place}, received from {came}{tag}, {_fate(event, src >= 0)}"


def _fate(event: Event, sent: bool) -> str:
    """What became of a message that is not known to have arrived."""
    if event.done >= 0:
        return "was never sent" if event.peer >= 0 else "came from a rank that is not known"
    if not sent:
        return "never came"
    return "was sent, but had not come yet" if event.awaited else "was sent, but not waited for"
