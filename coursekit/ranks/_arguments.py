"""What the calls of `Ranks` accept: checked, and made ready to travel."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import cloudpickle

from . import _wire
from ._errors import RanksUsageError


def check_size(size: int) -> None:
    """A world size is a whole number from 1 up."""
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise RanksUsageError(f"size must be a whole number from 1 up, got {size!r}; try Ranks(4)")


def check_on(on: Iterable[int] | None, size: int) -> list[int]:
    """Return the chosen ranks, or say what is wrong with them."""
    if on is None:
        return list(range(size))
    chosen: list[int] = [on] if isinstance(on, int) else list(on)
    wrong = [r for r in chosen if not isinstance(r, int) or not 0 <= r < size]
    if wrong or not chosen or len(set(chosen)) < len(chosen):
        raise RanksUsageError(
            f"on must name different ranks from 0 to {size - 1}, got {chosen}; try on=[0]"
        )
    return chosen


def check_timeout(timeout: float | None) -> None:
    """A timeout is a positive number of seconds, or None."""
    if timeout is None:
        return
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or timeout <= 0:
        raise RanksUsageError(
            f"timeout must be a number of seconds above 0, or None, got {timeout!r}; try timeout=60"
        )


def sealed(value: Any) -> list[Any]:
    try:
        return _wire.seal(value)
    except Exception as error:
        raise RanksUsageError(
            "what goes to the ranks must be something that can be pickled; "
            f"this is not: {str(error).splitlines()[0]}. Locks, sockets, generators and "
            "Ranks themselves stay here: make them inside the function"
        ) from None


def send_by_value(fn: Any) -> None:
    """Send functions of the learner's own modules whole: a rank may have an older file."""
    module: types.ModuleType | None = sys.modules.get(getattr(fn, "__module__", "") or "")
    file = getattr(module, "__file__", None)
    if module is None or file is None or module.__name__ == "__main__":
        return
    path = Path(file).resolve()
    installed = any(p in ("site-packages", "dist-packages") for p in path.parts)
    same = (Path(threading.__file__).resolve().parent, Path(__file__).resolve().parents[1])
    if not installed and not any(path.is_relative_to(folder) for folder in same):
        cloudpickle.register_pickle_by_value(module)
