"""On a rank: marks on the stack by which a report tells a call from what was put in its place.

`coursekit.ranks` knows these two functions by their names.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def before_the_call(seconds: float) -> None:
    """Be late: the call above this on the stack has not begun."""
    time.sleep(seconds)


def instead_of_the_call(
    op: str,
    group: Any,
    tensor: Any,
    peer: int | None,
    stuck: Callable[[], bool],
    wait: Callable[[], Any],
) -> Any:
    """Wait for another call than the one above on the stack; these arguments describe it.

    `stuck` tells whether the way to the peer lets nothing pass.
    """
    return wait()


class Other:
    """The work of a call that is not the one the program wrote."""

    def __init__(
        self,
        work: Any,
        op: str,
        group: Any,
        tensor: Any,
        peer: int | None = None,
        stuck: Callable[[], bool] = lambda: False,
    ) -> None:
        self._work = work
        self._told = op, group, tensor, peer, stuck

    def wait(self, *timeout: Any) -> Any:
        return instead_of_the_call(*self._told, lambda: self._work.wait(*timeout))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)


class Nothing:
    """The work of a call that was never made."""

    def wait(self, *_: Any) -> bool:
        return True

    def is_completed(self) -> bool:
        return True
