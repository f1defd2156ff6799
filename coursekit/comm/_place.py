"""Where the chunks of a rank lie."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from coursekit.schedule import Schedule, chunk_bounds


class Place:
    """Where each chunk of a rank lies: in the buffer, the output, or beside them."""

    def __init__(self, schedule: Schedule, buffer: Any, output: Any) -> None:
        spans = _spans(buffer.numel(), schedule.chunks)
        self._chunks = [(buffer, span) for span in spans]
        self.result = buffer
        if schedule.output:
            self.result = buffer.new_empty(buffer.numel()) if output is None else output
            self._chunks += [(self.result, span) for span in spans]
        longest = max((s.stop - s.start for s in spans), default=0)
        for _ in range(schedule.scratch):
            self._chunks.append((buffer.new_empty(longest), slice(0, longest)))

    def view(self, chunk: int) -> Any:
        """The chunk's own memory."""
        base, span = self._chunks[chunk]
        return base[span]

    def piece(self, chunks: Sequence[int]) -> Any | None:
        """The memory of several chunks if it is one piece, else None."""
        if len(chunks) == 1:
            return self.view(chunks[0])
        base, first = self._chunks[chunks[0]]
        end = first.start
        for chunk in chunks:
            other, span = self._chunks[chunk]
            if other is not base or span.start != end:
                return None
            end = span.stop
        return base[first.start : end]

    def packed(self, chunks: Sequence[int]) -> Any:
        """What the chunks hold, in one piece: their own memory where it is one, else a copy."""
        import torch

        whole = self.piece(chunks)
        return torch.cat([self.view(c) for c in chunks]) if whole is None else whole

    def beside(self, chunks: Sequence[int]) -> Any:
        """New memory that is as long as the chunks together."""
        views = [self.view(c) for c in chunks]
        return views[0].new_empty(sum(v.numel() for v in views))


@functools.lru_cache(maxsize=64)
def _spans(elements: int, chunks: int) -> tuple[slice, ...]:
    return tuple(slice(a, b) for a, b in pairwise(chunk_bounds(elements, chunks).tolist()))
