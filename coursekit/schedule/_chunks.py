"""How a buffer is cut into chunks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from coursekit.schedule._errors import whole

__all__ = ["chunk_bounds"]


def chunk_bounds(count: int, chunks: int) -> npt.NDArray[np.int64]:
    """Where each chunk of a buffer of `count` elements begins and ends, as numpy.array_split cuts.

    Chunk `i` is `buffer[bounds[i]:bounds[i + 1]]`; the first `count % chunks` chunks have one
    element more than the others, and chunks may be empty.

    Returns:
        `chunks + 1` rising offsets in elements, from 0 to `count`.

    Raises:
        ScheduleError: `count` is negative or `chunks` is less than one.
    """
    count = whole(count, "count", least=0)
    each, more = divmod(count, whole(chunks, "chunks"))
    index = np.arange(chunks + 1, dtype=np.int64)
    return index * each + np.minimum(index, more)
