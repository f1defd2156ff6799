"""A log under construction: lines of ranks, with what a launcher puts in front of them."""

from __future__ import annotations

import random
from collections.abc import Callable

from coursekit.diagnose.forge._cluster import Cluster

# Prefixes by launcher; a rank's own prefix of torch stands behind them.
PREFIXES: tuple[Callable[[int, str], str], ...] = (
    lambda rank, host: "",
    lambda rank, host: "",
    lambda rank, host: f"[1,{rank}]<stdout>:",
    lambda rank, host: f"{rank}: ",
    lambda rank, host: f"rank{rank}| ",
    lambda rank, host: f"2026-05-16T16:39:51.{rank % 1000:03d}-07:00 ",
    lambda rank, host: f"[rank{rank}]: ",
    lambda rank, host: f"(Worker pid={4000 + rank}, ip=10.0.0.{rank % 250}) ",
)


class Log:
    """Lines in the order in which they were printed.

    `few` leaves out what is not needed to tell that all is well: for a thousand ranks.
    """

    def __init__(self, cluster: Cluster, rng: random.Random, *, few: bool = False) -> None:
        self.cluster = cluster
        self.rng = rng
        self.few = few
        self.lines: list[str] = []
        self.files: dict[str, bytes] = {}
        self.prefix = rng.choice(PREFIXES)
        self._tids = {}  # type: dict[int, int]
        self._comm = rng.randrange(1 << 40, 1 << 46)
        self.comm_id = rng.randrange(1 << 60, 1 << 63)

    def put(self, rank: int, text: str) -> None:
        """A line of a rank, as its launcher shows it."""
        front = self.prefix(rank, self.cluster.host(rank))
        # The same prefix twice is what no launcher writes.
        if front.startswith("[rank") and text.startswith("[rank"):
            front = ""
        self.lines += [front + line if line else line for line in text.split("\n")]

    def plain(self, text: str) -> None:
        """Lines of no rank."""
        self.lines += text.split("\n")

    def comm(self, rank: int) -> str:
        """A rank's pointer to its communicator: different on every rank."""
        return f"0x{self._comm + rank * 0x11000:x}"

    def head(self, rank: int) -> str:
        tid = self._tids.setdefault(rank, self.cluster.pid(rank) + 900 + self.rng.randrange(90))
        c = self.cluster
        return f"{c.host(rank)}:{c.pid(rank)}:{tid} [{c.device(rank)}]"

    def info(self, rank: int, text: str) -> None:
        self.put(rank, f"{self.head(rank)} NCCL INFO {text}")

    def warn(self, rank: int, where: str, text: str, function: str = "ncclTest") -> None:
        """With a time from 2.26 on, and the function from 2.30.7 on."""
        number = self.cluster.number
        line = self.rng.randrange(30, 1900)
        time = f"[2026-0{self.rng.randrange(1, 9)}-1{self.rng.randrange(9)} 10:00:00] "
        front = time if number >= (2, 26) else ""
        named = f" ({function})" if number >= (2, 30, 7) else ""
        self.put(rank, f"\n{front}{self.head(rank)} {where}:{line}{named} NCCL WARN {text}")

    def trace(self, rank: int, *files: str, code: int = 2) -> None:
        """The way back up through NCCL's functions."""
        for file in files:
            self.info(rank, f"{file}:{self.rng.randrange(30, 1900)} -> {code}")

    def some(self, least: int = 1) -> int:
        """Any rank but the lowest `least`."""
        return self.rng.randrange(min(least, self.cluster.size - 1), self.cluster.size)
