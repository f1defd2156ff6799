"""Which bytes a message of mpi4py means: a buffer, or a list of it with count and datatype."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from ._errors import CommError
from ._memory import contiguous, is_array


def part(spec: Any) -> tuple[Any, bool]:
    """The tensor or array that is sent or received into, and whether it is exactly that.

    A list is `[buffer, datatype]`, `[buffer, count]`, `[buffer, count, datatype]` or
    `[buffer, count, displacement, datatype]`, and `(count, displacement)` may stand for a count
    (https://mpi4py.readthedocs.io/en/stable/tutorial.html). It is not exact for a datatype that
    leaves gaps.
    """
    buffer, count, displacement, kind = _unpacked(spec)
    whole = _array(buffer)
    if (count, displacement, kind) == (None, 0, None) or not contiguous(whole):
        return whole, True
    size, extent = (whole.itemsize,) * 2 if kind is None else _sizes(kind)
    start = displacement * extent
    if size != extent:
        return cut(whole, start), False
    return cut(whole, start, None if count is None else start + count * size), True


def cut(array: Any, start: int = 0, stop: int | None = None) -> Any:
    """Some bytes of a tensor or an array, as elements where they end between two."""
    stop = array.nbytes if stop is None else stop
    flat, item = array.reshape(-1), array.itemsize
    if start % item or stop % item:
        flat, item = flat.view(_byte(array)), 1
    return flat[start // item : stop // item]


def like(array: Any) -> Any:
    """New memory of the same length and dtype."""
    return array.new_empty(array.shape) if hasattr(array, "data_ptr") else np.empty_like(array)


def _unpacked(spec: Any) -> tuple[Any, int | None, int, Any]:
    if not isinstance(spec, list | tuple):
        return spec, None, 0, None
    buffer, *rest = spec or [None]
    kind = rest.pop() if rest and isinstance(rest[-1], MPI.Datatype | str) else None
    numbers = [n for entry in rest for n in (entry if isinstance(entry, list | tuple) else [entry])]
    count, displacement = (*numbers, None, None)[:2]
    return buffer, count, displacement or 0, kind


def _sizes(kind: Any) -> tuple[int, int]:
    datatype = MPI.Datatype.fromcode(kind) if isinstance(kind, str) else kind
    return datatype.Get_size(), datatype.Get_extent()[1]


def _array(buffer: Any) -> Any:
    if buffer is None:
        return np.empty(0, "u1")
    if is_array(buffer):
        return buffer
    try:
        return np.asarray(memoryview(buffer))
    except TypeError:
        raise CommError(
            "a recorded message must lie in a torch tensor, a numpy array or another object with "
            f"Python's buffer protocol, got {type(buffer).__name__}; pass a numpy array"
        ) from None


def _byte(array: Any) -> Any:
    if not hasattr(array, "data_ptr"):
        return np.uint8
    import torch

    return torch.uint8
