"""Which memory an address belongs to."""

from __future__ import annotations

from typing import Any

from ._blank import Blank
from ._log import Range


class Memories:
    """The memories of a rank that were seen, kept alive so that no address is used twice."""

    def __init__(self, *own: Any) -> None:
        self._known: list[tuple[int, int, Any]] = []
        self.blank = Blank()
        for buffer in own:
            address, nbytes = extent(buffer)
            self._known.append((address, address + nbytes, buffer))

    @property
    def own(self) -> Range:
        """The whole buffer."""
        start, stop, _ = self._known[0]
        return Range(0, 0, stop - start)

    def find(self, value: Any) -> Range | None:
        """The bytes of a tensor or an array if its memory is known and it lies in one piece."""
        address, nbytes = extent(value)
        for number, (start, stop, _) in enumerate(self._known):
            if start <= address and address + nbytes <= stop and contiguous(value):
                return Range(number, address - start, address - start + nbytes)
        return None

    def touched(self, value: Any) -> int | None:
        """The memory that a tensor reaches into, also one in several pieces; None if unknown."""
        first, end = _reach(value)
        for number, (start, stop, _) in enumerate(self._known):
            if first < stop and start < end:
                return number
        return None

    def get(self, value: Any) -> Range:
        """The same; memory that is new is remembered as a temporary one."""
        found = self.find(value)
        if found is not None:
            return found
        root, address, nbytes = _whole(value)
        self._known.append((address, address + nbytes, root))
        found = self.find(value)
        return Range(len(self._known) - 1, 0, 0) if found is None else found


def extent(value: Any) -> tuple[int, int]:
    """Address and bytes of a torch tensor or a numpy array."""
    if hasattr(value, "data_ptr"):
        return int(value.data_ptr()), int(value.nbytes)
    return int(value.__array_interface__["data"][0]), int(value.nbytes)


def is_array(value: Any) -> bool:
    """Whether it is a torch tensor or a numpy array, or like one."""
    return hasattr(value, "data_ptr") or hasattr(value, "__array_interface__")


def contiguous(value: Any) -> bool:
    """Whether a tensor or an array lies in one piece."""
    if hasattr(value, "is_contiguous"):
        return bool(value.is_contiguous())
    return bool(value.flags.c_contiguous)


def _reach(tensor: Any) -> tuple[int, int]:
    """The first address and the one after the last."""
    first = int(tensor.data_ptr())
    if not tensor.numel():
        return first, first
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    last = sum((length - 1) * stride for length, stride in steps)
    return first, first + (last + 1) * int(tensor.itemsize)


def _whole(value: Any) -> tuple[Any, int, int]:
    if hasattr(value, "untyped_storage"):
        storage = value.untyped_storage()
        return value, int(storage.data_ptr()), int(storage.nbytes())
    root = value
    while getattr(root, "base", None) is not None and hasattr(root.base, "__array_interface__"):
        root = root.base
    return root, *extent(root)
