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
_FRESH = ("fill_", "uniform_", "normal_", "random_")
_ZEROS = ("zeros", "zeros_like", "new_zeros", "zero_")
# On the way of every message or without data; the recording's own hooks see the messages.
_MESSAGES = ("send", "recv_", "recv_any_source_", "barrier", "monitored_barrier_")


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Writes down as copies and reductions what happens to memory that messages use."""

    def __init__(self, log: Log, memories: Memories) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._log, self._memories = log, memories

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Torch would import its compiler at the first operation of each rank: seconds, in which an
        # interrupted hang leaves it half imported for good.
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Run the operation, then write it down."""
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if func.namespace == "aten":
            self._follow(func.overloadpacket.__name__, args, out, _written(func, args, kwargs))
        elif func.namespace == "c10d" and func.overloadpacket.__name__ not in _MESSAGES:
            name = func.overloadpacket.__name__.strip("_")
            self._log.note(f"the collective {name} of torch is not taken apart")
        return out

    def _follow(self, name: str, args: Sequence[Any], out: Any, written: Sequence[Any]) -> None:
        plain = name.rstrip("_")
        if plain in (*_COMBINE, "div") and len(args) > 1 and not _is_many(args[1]):
            self._scale(args[0], out)
        elif any(self._in_pieces(target) for target in written):
            self._doubt(name, written)
        elif name in _ZEROS or (name in ("fill_", "full") and _is_zero(args[1])):
            self._memories.blank.add(self._memories.get(out))
        elif name == "copy_":
            self._move("copy", args[1], args[0])
        elif name in ("cat", "stack"):
            self._cat(args[0], out)
        elif name == "sum" and _over_rows(args):
            self._sum(args[0], out)
        elif plain in _COPY:
            self._move("copy", args[0], out)
        elif plain in _COMBINE and len(args) > 1:
            self._combine(args[0], args[1], out)
        else:
            self._doubt(name, written)

    def _doubt(self, name: str, written: Sequence[Any]) -> None:
        for target in written:
            memory = self._memories.touched(target)
            if memory == 0 or (memory is not None and name not in (*_FRESH, "zero_")):
                self._log.note(f"torch's {name} changed memory in a way that is not followed")

    def _in_pieces(self, value: Any) -> bool:
        return self._known(value) is None and self._memories.touched(value) is not None

    def _scale(self, value: Any, out: Any) -> None:
        """A number as second operand, as in an average, changes nobody's share."""
        if out is not value:
            self._move("copy", value, out)

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
        if not target.numel():
            return
        came, goes = self._known(source), self._known(target)
        if came is None:
            if goes is not None and goes.memory < 2 and source.dim():
                self._log.note(f"the buffer got a {kind} of data whose origin was not followed")
            if goes is not None and kind == "copy":
                self._memories.blank.written(goes)
            return
        known, goes = goes is not None, goes or self._memories.get(target)
        if came.length == goes.length and came.length:
            self._moved(kind, came, goes)
        elif known or not goes.length:
            self._log.note(
                f"a {kind} between tensors of different dtypes or in several pieces is not followed"
            )

    def _moved(self, kind: str, came: Range, goes: Range) -> None:
        """Zeros are nobody's data: nothing is moved with them, and what is added to them lands."""
        blank = self._memories.blank
        if came == goes:
            return
        if blank.covers(came):
            if kind == "copy":
                blank.add(goes)
            return
        if blank.inside(came):
            self._log.note(f"a {kind} of data with zeros among them is not followed exactly")
        if kind == "reduce" and blank.covers(goes):
            kind = "copy"
        elif kind == "reduce" and blank.inside(goes):
            self._log.note("an addition to memory that is partly zeros is not followed exactly")
        blank.written(goes)
        self._log.add(Event(kind, goes, came))

    def _known(self, value: Any) -> Range | None:
        return self._memories.find(value) if _is_tensor(value) else None


def _over_rows(args: Sequence[Any]) -> bool:
    """Whether the arguments of a sum ask for the rows of a tensor, without their dimension."""
    return len(args) == 2 and list(args[1]) == [0] and args[0].dim() > 1


def _is_zero(value: Any) -> bool:
    return not _is_tensor(value) and value == 0


def _is_many(value: Any) -> bool:
    return _is_tensor(value) and value.dim() > 0


def _written(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """The tensors that an operation changes, by its schema: in place, or as `out`."""
    found: list[Any] = []
    for number, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[number] if number < len(args) else kwargs.get(argument.name)
            found += value if isinstance(value, list | tuple) else [value]
    return [value for value in found if _is_tensor(value)]


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "data_ptr") and hasattr(value, "untyped_storage")
