"""NCCL's lines about collectives, kept small: a log of a gigabyte holds millions of them."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

Signature = tuple[str, int, int, int, int]  # function, count, datatype, op, root
# What has no counterpart of equal size on every rank.
PAIRWISE = ("Send", "Recv")
# A pointer and a number of bytes a call; what comes later is counted, not kept.
MOST = 20_000_000


@dataclass
class Series:
    """The collectives of one process on one communicator, in order."""

    process: str
    comm: str
    nranks: int
    rank: int | None
    source: str
    counts: array[int] = field(default_factory=lambda: array("Q"))
    signatures: array[int] = field(default_factory=lambda: array("L"))
    lines: array[int] = field(default_factory=lambda: array("Q"))


@dataclass
class Calls:
    """All of them; signatures are numbered so that two ranks are compared as arrays."""

    series: dict[tuple[str, str], Series] = field(default_factory=dict)
    numbers: dict[tuple[bytes, ...], int] = field(default_factory=dict)
    known: list[Signature] = field(default_factory=list)
    seen: int = 0

    def number(self, parts: tuple[bytes, ...]) -> int:
        """The number of a signature, from its parts as printed."""
        found = self.numbers.get(parts)
        if found is None:
            found = len(self.known)
            self.numbers[parts] = found
            name, count, kind, op, root = parts
            told = (int(count[:18]), int(kind[:4]), int(op[:4]), int(root[:7]))
            self.known.append((name.decode("ascii", "replace"), *told))
        return found

    def text(self, series: Series, index: int) -> str:
        """A call as NCCL prints it, shortened."""
        name, count, kind, op, root = self.known[series.signatures[index]]
        told = f"{name}: opCount {series.counts[index]:x} count {count} datatype {kind}"
        return f"{told} op {op} root {root} comm {series.comm} nranks {series.nranks}"
