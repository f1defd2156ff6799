"""Rates and counts of a cluster's pairs, in a file that several processes map."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import psutil

from ._plan import Plan, ordered

Ints = npt.NDArray[np.int64]
_NAME = "coursekit-links-"
# The tables in the file, size x size each; delays are in microseconds, losses in millionths.
BYTES, MESSAGES, BITS, LATE, LOSS, TABLES = range(6)


class Table:
    """The notebook's side: it writes rates and reads counts."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        sweep()
        name = f"{_NAME}{os.getpid()}-{secrets.token_hex(4)}"
        self.path = Path(tempfile.gettempdir()) / name
        self._table = open_table(self.path, plan.size, "w+")
        self.path.chmod(0o600)
        self.write(blocked=False)

    def write(self, blocked: bool) -> None:
        """Take over the plan, with or without what it blocks."""
        for a in range(self._plan.size):
            for b in range(self._plan.size):
                pair = ordered(a, b)
                stuck = blocked and pair in self._plan.blocked
                self._table[BITS, a, b] = 0 if stuck else self._plan.bits(a, b)
                self._table[LATE, a, b] = round(self._plan.delays.get(pair, 0) * 1e6)
                self._table[LOSS, a, b] = round(self._plan.losses.get(pair, 0) * 1e6)

    def counts(self) -> tuple[Ints, Ints]:
        """Bytes and messages or packets that ranks have sent to each other: size x size each."""
        return np.array(self._table[BYTES]), np.array(self._table[MESSAGES])

    def close(self) -> None:
        """Remove the file's name."""
        self.path.unlink(missing_ok=True)


def open_table(path: str | Path, size: int, mode: str) -> Ints:
    """Map the file."""
    table: Ints = np.memmap(path, np.int64, mode, shape=(TABLES, size, size))  # type: ignore[call-overload]
    return table


def sweep() -> None:
    """Remove the files of notebooks that were killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_NAME}*"):
        owner = path.name.removeprefix(_NAME).partition("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            with contextlib.suppress(OSError):
                path.unlink()
