"""Which memory is known to hold zeros: what is added there first is only copied."""

from __future__ import annotations

from ._log import Range


class Blank:
    """The zeros of a rank's memories, as ranges that are cut when something is written."""

    def __init__(self) -> None:
        self._parts: list[Range] = []

    def add(self, part: Range) -> None:
        """It was filled with zeros."""
        self.written(part)
        if part.length:
            self._parts.append(part)

    def written(self, part: Range) -> None:
        """It holds something else now."""
        left = []
        for own in self._parts:
            if own.memory != part.memory:
                left.append(own)
                continue
            before = Range(own.memory, own.start, min(own.stop, part.start))
            after = Range(own.memory, max(own.start, part.stop), own.stop)
            left += [piece for piece in (before, after) if piece.length > 0]
        self._parts = left

    def inside(self, part: Range) -> list[Range]:
        """The zeros within a range, in order."""
        cuts = (
            Range(own.memory, max(own.start, part.start), min(own.stop, part.stop))
            for own in self._parts
            if own.memory == part.memory
        )
        return sorted(cut for cut in cuts if cut.length > 0)

    def covers(self, part: Range) -> bool:
        """Whether all of a range holds zeros."""
        return sum(cut.length for cut in self.inside(part)) == part.length
