"""Following data through a rank's own memory, by the operations that torch dispatches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from ._log import Event, Log, Range
from ._memory import Memories

_COMBINE = ("add", "maximum", "minimum", "mul")
_COPY = ("clone", "_to_copy", "copy")
# They write, and what they write is nobody's data: that matters in the buffer only.
_FRESH = ("fill_", "zero_", "uniform_", "normal_", "random_")


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Writes down as copies and reductions what happens to memory that messages use."""

    def __init__(self, log: Log, memories: Memories) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._log, self._memories = log, memories

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Run the operation, then write it down."""
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if func.namespace == "aten":
            self._follow(func.overloadpacket.__name__, args, out)
        return out

    def _follow(self, name: str, args: Sequence[Any], out: Any) -> None:
        plain = name.rstrip("_")
        if name == "copy_":
            self._move("copy", args[1], args[0])
        elif name in ("cat", "stack"):
            self._cat(args[0], out)
        elif name == "sum" and _over_rows(args):
            self._sum(args[0], out)
        elif plain in _COPY:
            self._move("copy", args[0], out)
        elif plain in _COMBINE and len(args) > 1:
            # A number as second operand, as in an average, changes nobody's share.
            if _is_tensor(args[1]):
                self._combine(args[0], args[1], out)
        elif name.endswith("_") and plain != "div" and args:
            place = self._known(args[0])
            if place is not None and (name not in _FRESH or place.memory == 0):
                self._log.note(f"torch's {name} changed memory in a way that is not followed")

    def _combine(self, one: Any, other: Any, out: Any) -> None:
        first, second, target = (self._known(t) for t in (one, other, out))
        if first is None and second is None:
            return
        if target is not None and target == first:
            self._move("reduce", other, out)
        elif target is not None and target == second:
            self._move("reduce", one, out)
        else:
            self._move("copy", one, out)
            self._move("reduce", other, out)

    def _cat(self, parts: Sequence[Any], out: Any) -> None:
        if all(self._known(part) is None for part in parts) or not out.is_contiguous():
            return
        at = 0
        flat = out.view(-1)
        for part in parts:
            self._move("copy", part, flat[at : at + part.numel()])
            at += part.numel()

    def _sum(self, rows: Any, out: Any) -> None:
        """One row is copied, the others are added to it."""
        if self._known(rows) is not None:
            for number, row in enumerate(rows):
                self._move("reduce" if number else "copy", row, out)

    def _move(self, kind: str, source: Any, target: Any) -> None:
        came = self._known(source)
        if came is None:
            if (lost := self._known(target)) is not None and lost.memory < 2 and source.dim():
                self._log.note(f"the buffer got a {kind} of data whose origin was not followed")
            return
        goes = self._memories.get(target)
        if came != goes and came.length == goes.length and came.length:
            self._log.add(Event(kind, goes, came))

    def _known(self, value: Any) -> Range | None:
        return self._memories.find(value) if _is_tensor(value) else None


def _over_rows(args: Sequence[Any]) -> bool:
    """Whether the arguments of a sum ask for the rows of a tensor, without their dimension."""
    return len(args) == 2 and list(args[1]) == [0] and args[0].dim() > 1


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "data_ptr") and hasattr(value, "untyped_storage")
