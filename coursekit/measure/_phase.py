"""Where in a training step a process is, and which group a call of torch belongs to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

_depth = 0
_named = ""


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Count what a with block communicates as phase `name`.

    Without it, what is called inside of autograd is ``backward``, inside of a module's forward
    ``forward``, and everything else ``step``.
    """
    global _named
    before, _named = _named, name
    try:
        yield
    finally:
        _named = before


class Phases:
    """While it is entered, `current_phase` knows when a module's forward runs."""

    def __enter__(self) -> None:
        from torch.nn.modules import module

        self._hooks = [
            module.register_module_forward_pre_hook(_into),
            module.register_module_forward_hook(_out_of, always_call=True),
        ]

    def __exit__(self, *_: object) -> None:
        global _depth
        for hook in self._hooks:
            hook.remove()
        _depth = 0


def _into(*_: Any) -> None:
    global _depth
    _depth += 1


def _out_of(*_: Any) -> None:
    global _depth
    _depth -= 1


def current_phase() -> str:
    """What `phase` named; else ``backward`` while autograd runs, also where it computes forward
    anew; ``forward`` while a module does; else ``step``.
    """
    import torch

    if _named:
        return _named
    if torch._C._current_graph_task_id() != -1:
        return "backward"
    return "forward" if _depth > 0 else "step"


def group_of_call(values: Sequence[Any]) -> tuple[str, int]:
    """The name and the size of the group among a call's arguments; ("", 0) where there is none.

    The name is the axis of a mesh, ``world``, or what the group was called when it was made.
    """
    import torch
    import torch.distributed as dist

    for value in values:
        group: Any = None
        if isinstance(value, torch.ScriptObject):
            try:
                group = dist.ProcessGroup.unbox(value)
            except RuntimeError:  # It is a ReduceOp.
                continue
        elif isinstance(value, str):
            group = _by_name(value)
        if group is not None:
            return _called(group), group.size()
    return "", 0


def _by_name(name: str) -> Any:
    """The group of this name; None for another string, such as ``sum``."""
    from torch.distributed import distributed_c10d

    resolve: Any = distributed_c10d._resolve_process_group  # type: ignore[attr-defined]
    try:
        return resolve(name)
    except (RuntimeError, ValueError):
        return None


def _called(group: Any) -> str:
    told: str = group.group_desc
    if told == "default_pg":
        return "world"
    if told in ("undefined", ""):
        return str(group.group_name)
    return told.removeprefix("mesh_")
