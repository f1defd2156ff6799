"""What one rank did while it was recorded."""

from __future__ import annotations

import contextlib
import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, BinaryIO, NamedTuple


class Range(NamedTuple):
    """Bytes `start` to `stop` of a memory: 0 is the buffer, 1 the output, others are temporary."""

    memory: int
    start: int
    stop: int

    @property
    def length(self) -> int:
        """Bytes."""
        return self.stop - self.start


@dataclass
class Event:
    """One thing that a rank did.

    Attributes
    ----------
    kind : {"send", "recv", "copy", "reduce"}
        A message's end, or a move in the rank's own memory.
    place : Range
        What is sent, or where it lands; the target of a move.
    source : Range or None
        What a move reads.
    peer, tag : int
        Of a message; `peer` is a rank of the recorded group, -1 for a receive from anybody that
        has not come.
    begun, done : int
        The order of the rank's own doings: when a message was posted and when it was waited for.
        `done` is -1 as long as it was not.
    awaited : bool
        Whether the rank has begun to wait for the message.
    context : str
        Which communicator or group carried the message: only receives of the same one take it.
    start, end : float
        The same as seconds of the system's monotonic clock.
    number : int
        Its place in the log.
    """

    kind: str
    place: Range
    source: Range | None = None
    peer: int = -1
    tag: int = 0
    begun: int = 0
    done: int = -1
    awaited: bool = False
    context: str = ""
    start: float = 0.0
    end: float = 0.0
    number: int = -1


@dataclass
class Log:
    """A rank's events; what `record` gives. It can be sent to the notebook.

    Attributes
    ----------
    rank, size : int
        Who, of how many.
    elements, itemsize, chunks : int
        The buffer's length, the bytes of an element, and in how many chunks it was said to be.
    events : list of Event
        In order.
    notes : list of str
        What could not be followed.
    ended : bool
        Whether the recorded block came to its end.
    comm : object
        Of mpi4py: the communicator to call, which records; not sent to the notebook.
    """

    rank: int
    size: int
    elements: int
    itemsize: int
    chunks: int
    has_output: bool = False
    events: list[Event] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    ended: bool = False
    comm: Any = None
    _clock: int = 0
    _before: Callable[[], None] | None = None
    _spill: BinaryIO | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "comm": None, "_before": None, "_spill": None}

    def call_before(self, hook: Callable[[], None]) -> None:
        """Let `hook` finish what is over before the next event is added."""
        self._before = hook

    def spill(self, path: str) -> None:
        """Write everything to a file as it happens, for the case that the process is lost."""
        self._spill = open(path, "wb", buffering=0)  # noqa: SIM115 - open as long as the log is
        self._write(self)

    @staticmethod
    def recover(path: str) -> Log:
        """Read such a file; what was being written when the process ended is left out."""
        with open(path, "rb") as file:
            log: Log = pickle.load(file)
            with contextlib.suppress(EOFError, pickle.UnpicklingError):
                while True:
                    log._take(pickle.load(file))
        return log

    def _take(self, what: Event | dict[str, Any]) -> None:
        if isinstance(what, dict):
            vars(self).update(what)
        elif what.number == len(self.events):
            self.events.append(what)
        else:
            self.events[what.number] = what

    def _write(self, what: Any) -> None:
        if self._spill is not None:
            self._spill.write(pickle.dumps(what))

    def add(self, event: Event) -> Event:
        """Append an event that begins now; a move is done at once."""
        if self._before is not None:
            self._before()
        event.begun, event.start = self._now()
        if event.kind in ("copy", "reduce"):
            event.done, event.end = event.begun, event.start
        event.number = len(self.events)
        self.events.append(event)
        self._write(event)
        return event

    def wait(self, event: Event) -> None:
        """The rank begins to wait for a message."""
        if event.done < 0 and not event.awaited:
            event.awaited = True
            self._write(event)

    def finish(self, event: Event) -> None:
        """A message was waited for."""
        if event.done < 0:
            event.done, event.end = self._now()
            self._write(event)

    def note(self, words: str) -> None:
        """Remember what could not be followed, once."""
        if words not in self.notes:
            self.notes.append(words)
            self._write({"notes": self.notes})

    def end(self) -> None:
        """The recorded block came to its end."""
        self.ended = True
        self._write({"ended": True})

    def _now(self) -> tuple[int, float]:
        self._clock += 1
        return self._clock, time.monotonic()
