"""Links without namespaces: every rank holds its messages back for the time that a link takes."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import psutil

from coursekit.ranks import First

from ._plan import Pair, Plan

Ints = npt.NDArray[np.int64]
_NAME = "coursekit-links-"
# The tables in the file that the ranks share, size x size each.
BYTES, MESSAGES, BITS, TABLES = 0, 1, 2, 3


class Paced:
    """The `Site` of ranks whose sends are paced: rates and counts lie in a file that all map."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        sweep()
        name = f"{_NAME}{os.getpid()}-{secrets.token_hex(4)}"
        self.path = Path(tempfile.gettempdir()) / name
        self._table = open_table(self.path, plan.size, "w+")
        self._write(blocked=False)

    def environment(self, rank: int) -> dict[str, str]:
        """Nothing beside what every local rank has."""
        del rank
        return {}

    def first(self, rank: int) -> First:
        """A rank puts the pacing below torch's sends."""
        arguments = (str(self.path), self.plan.size, rank)
        return First("coursekit.faults._pacing", "install", arguments)

    def addresses(self) -> dict[str, int]:
        """All ranks have the same."""
        return {}

    def joining(self) -> None:
        """Gloo's own messages are not held back, so nothing has to be opened."""

    def joined(self) -> None:
        """Block what is to be blocked."""
        self._write(blocked=True)

    def change(self, pair: Pair) -> None:
        """Take over what the plan now has."""
        del pair
        self._write(blocked=True)

    def counts(self) -> tuple[Ints, Ints]:
        """Bytes and messages that ranks have sent to each other: size x size each."""
        return np.array(self._table[BYTES]), np.array(self._table[MESSAGES])

    def close(self) -> None:
        """Remove the file."""
        self.path.unlink(missing_ok=True)

    def _write(self, blocked: bool) -> None:
        for a in range(self.plan.size):
            for b in range(self.plan.size):
                stuck = blocked and (min(a, b), max(a, b)) in self.plan.blocked
                self._table[BITS, a, b] = 0 if stuck else self.plan.bits(a, b)


def open_table(path: str | Path, size: int, mode: str) -> Ints:
    """Map the file that a cluster's ranks share."""
    table: Ints = np.memmap(path, np.int64, mode, shape=(TABLES, size, size))  # type: ignore[call-overload]
    return table


def sweep() -> None:
    """Remove the files of notebooks that were killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_NAME}*"):
        owner = path.name.removeprefix(_NAME).partition("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            with contextlib.suppress(OSError):
                path.unlink()
