"""Following data through numpy arrays: no operation can be seen there, so values are compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coursekit.schedule import chunk_bounds

from ._log import Event, Log, Range

_COMBINE: tuple[Callable[..., Any], ...] = (np.add, np.maximum, np.minimum, np.multiply)


class Values:
    """Explains what changed in a buffer by what was received since it was last looked at.

    Notes
    -----
    An array that was received and added where it changes nothing (zeros) leaves no trace; ranks
    should hold different values, as `record_own` gives them.
    """

    def __init__(self, buffer: Any, log: Log) -> None:
        self._now = buffer.reshape(-1)
        self._before = self._now.copy()
        self._log = log
        self._landed: list[tuple[Range, Any]] = []

    def look(self) -> None:
        """Write down what happened to the buffer since the last look."""
        for landed in list(self._landed):
            if np.array_equal(self._now, self._before):
                return
            if self._explains(*landed):
                self._landed.remove(landed)
        if not np.array_equal(self._now, self._before):
            self._log.note("the buffer changed in a way that no received message explains")
            self._before[:] = self._now

    def came(self, place: Range, array: Any) -> None:
        """A message has landed: in the buffer itself, or in an array beside it."""
        if place.memory == 0:
            part = slice(place.start // self._log.itemsize, place.stop // self._log.itemsize)
            self._before[part] = self._now[part]
        else:
            self._landed = [known for known in self._landed if known[0] != place]
            self._landed.append((place, np.array(array).reshape(-1)))

    def origin(self, place: Range, array: Any) -> None:
        """An array beside the buffer is sent: write down which part of the buffer it repeats."""
        flat = np.asarray(array).reshape(-1)
        if flat.dtype != self._now.dtype or any(known[0] == place for known in self._landed):
            return
        for start in self._starts(len(flat)):
            if np.array_equal(self._now[start : start + len(flat)], flat):
                self._log.add(Event("copy", place, self._range(start, len(flat))))
                return

    def _explains(self, place: Range, array: Any) -> bool:
        if array.dtype != self._now.dtype:
            return False
        for start in self._starts(len(array)):
            part = slice(start, start + len(array))
            old, new = self._before[part], self._now[part]
            if np.array_equal(old, new):
                continue
            for combine in (None, *_COMBINE):
                expected = array if combine is None else combine(old, array)
                if np.array_equal(new, expected):
                    kind = "copy" if combine is None else "reduce"
                    self._log.add(Event(kind, self._range(start, len(array)), place))
                    self._before[part] = new
                    return True
        return False

    def _starts(self, length: int) -> list[int]:
        """Where a piece of that length may begin: at chunks, and where messages began."""
        log = self._log
        starts = set(chunk_bounds(log.elements, log.chunks).tolist())
        starts |= {e.place.start // log.itemsize for e in log.events if e.place.memory == 0}
        return sorted(start for start in starts if start + length <= log.elements)

    def _range(self, start: int, length: int) -> Range:
        item = self._log.itemsize
        return Range(0, start * item, (start + length) * item)
