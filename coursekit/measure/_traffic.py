"""Bytes between ranks, from three sources: issued, on the wire, predicted."""

from __future__ import annotations

import contextlib
import html
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, overload

import numpy.typing as npt

from coursekit.plan import Volume
from coursekit.ranks import Ranks

from . import _issued, _sockets
from ._errors import MeasureError
from ._issued import Issued
from ._ledger import Ledger, ledger
from ._sockets import Ints, Reading

_PATIENCE = 2.0
_NO_SOCKETS = {
    "mpi": "no bytes passed through sockets: on one machine MPI moves them through shared memory. "
    "To see them, set OMPI_MCA_btl=self,tcp in the environment before the ranks start",
    "nccl": "no bytes passed through sockets: NCCL moves them over NVLink, PCIe, shared memory or "
    "InfiniBand. To see a collective's bytes, run it with backend='gloo'",
}
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(repr=False)
class Traffic:
    """What ranks sent to each other while it was watched.

    Attributes
    ----------
    wire : numpy.ndarray or None
        K x K int64: payload bytes that rank i sent to rank j, as the kernel counted them on their
        TCP connections. None where bytes do not pass through sockets; `why` says it in words.
    issued : list of list of Issued
        One list a rank: the communication calls as torch was asked for them, summed up.
    calls : list of list of Issued
        The same by group and by phase: forward, backward, step.
    recorded : list of list of Issued
        The same in the backend's own book, torch's flight recorder: what the backend made of the
        calls. Gloo's book has reduce_scatter as all_reduce, and no send or receive.
    predicted : numpy.ndarray or None
        K x K, to stand beside `wire`; put one here, such as `schedule.matrix(elements, 4)`.
    results : list
        What the function returned, one value a rank, where `traffic` was given one.
    notes : list of str
        What the numbers do not contain.
    """

    size: int
    wire: Ints | None = None
    why: str = "still being watched: the numbers come when the with block ends"
    issued: list[list[Issued]] = field(default_factory=list)
    calls: list[list[Issued]] = field(default_factory=list)
    recorded: list[list[Issued]] = field(default_factory=list)
    predicted: npt.NDArray[Any] | None = None
    results: list[Any] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def sent(self, rank: int) -> int:
        """Bytes that a rank sent on the wire.

        Raises MeasureError where there is no wire, or no such rank.
        """
        if not 0 <= rank < self.size:
            raise MeasureError(f"rank must be from 0 to {self.size - 1}, got {rank}; try sent(0)")
        return int(self.per_rank[rank])

    @property
    def per_rank(self) -> Ints:
        """Bytes that each rank sent on the wire; raises MeasureError where there is no wire."""
        if self.wire is None:
            raise MeasureError(f"bytes on the wire are not known here: {self.why}")
        total: Ints = self.wire.sum(axis=1)
        return total

    @property
    def total(self) -> int:
        """Bytes that all ranks sent; raises MeasureError where there is no wire."""
        return int(self.per_rank.sum())

    def ledger(self, volumes: Iterable[Volume] = (), **groups: int) -> Ledger:
        """The table predicted, issued, on the wire, by mode and phase of a training step.

        Parameters
        ----------
        volumes : iterable of coursekit.plan.Volume
            What was predicted, such as ``plan.tp_volume(shape, 4, batch=8, sequence=32)``.
        groups : int
            How many groups of a mode there are at once: ``tp=2`` on a mesh of dp=2, tp=2. One by
            default.
        """
        wire = None if self.wire is None else self.total
        return ledger(self.calls, volumes, groups, self.recorded[0] if self.recorded else (), wire)

    def _title(self) -> str:
        if self.wire is None:
            return f"{self.size} ranks; bytes on the wire: not known, {self.why}"
        return f"{self.size} ranks, {human(self.total)} on the wire; a row sends to a column"

    def _cells(self) -> list[list[str]]:
        if self.wire is None:
            return []
        names = [f"rank {r}" for r in range(self.size)]
        rows = [[human(int(n)) if n else "." for n in row] for row in self.wire]
        table = [["", *names, "sent"]]
        for name, row, total in zip(names, rows, self.per_rank, strict=True):
            table.append([name, *row, human(int(total))])
        if self.predicted is not None:
            table[0].append("predicted")
            for row, amount in zip(table[1:], self.predicted.sum(axis=1), strict=True):
                row.append(human(int(amount)))
        return table

    def _words(self) -> list[str]:
        """What was issued, ranks that issued the same together, then the notes."""
        lines = []
        for ranks, calls in _alike(self.issued):
            told = ", ".join(f"{c.count} x {c.op} of {human(c.bytes)}" for c in calls)
            lines.append(f"issued by {ranks}: {told or 'nothing'}")
        return lines + self.notes

    def __repr__(self) -> str:
        table = self._cells()
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ("  ".join(c.rjust(w) for c, w in zip(r, widths, strict=True)) for r in table)
        return "\n".join([self._title(), *lines, *self._words()])

    def _repr_html_(self) -> str:
        head, *body = self._cells() or [[]]
        top = "".join(f"<th>{html.escape(c)}</th>" for c in head)
        rows = "".join(
            f"<tr><th>{row[0]}</th>" + "".join(f"<td>{c}</td>" for c in row[1:]) + "</tr>"
            for row in body
        )
        words = "".join(f"<li>{html.escape(line)}</li>" for line in self._words())
        table = f"<table><tr>{top}</tr>{rows}</table>" if body else ""
        return f"<p>{html.escape(self._title())}</p>{table}<ul>{words}</ul>"


def human(amount: int) -> str:
    """Bytes in units of 1024: ``3.0 MiB``."""
    value, unit = float(amount), _UNITS[0]
    for unit in _UNITS:
        if abs(value) < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{amount} B" if unit == "B" else f"{value:.1f} {unit}"


def _alike(issued: list[list[Issued]]) -> list[tuple[str, list[Issued]]]:
    groups: list[tuple[list[int], list[Issued]]] = []
    for rank, calls in enumerate(issued):
        same = next((ranks for ranks, other in groups if other == calls), None)
        if same is None:
            groups.append(([rank], calls))
        else:
            same.append(rank)
    everyone = len(groups) == 1
    return [
        ("every rank" if everyone else f"rank {', '.join(map(str, ranks))}", calls)
        for ranks, calls in groups
    ]


@overload
def traffic(ranks: Ranks, *, wire: bool = True) -> AbstractContextManager[Traffic]: ...


@overload
def traffic(
    ranks: Ranks, fn: Callable[..., Any], *args: Any, wire: bool = True, **kwargs: Any
) -> Traffic: ...


def traffic(
    ranks: Ranks,
    fn: Callable[..., Any] | None = None,
    *args: Any,
    wire: bool = True,
    **kwargs: Any,
) -> Traffic | AbstractContextManager[Traffic]:
    """Count the bytes between ranks while a function runs, or in a with block.

    Parameters
    ----------
    fn : callable, optional
        Run as ``ranks.run(fn, *args, **kwargs)``. Without it, a context manager comes back, and
        everything counts that the ranks do in its block: calls and ``%%ranks`` cells.
    wire : bool
        False leaves the sockets alone; only what is issued is counted, also where there is no ss.

    Raises
    ------
    MeasureError
        The kernel's counters cannot be read: they take Linux and the command ss (iproute2).

    Examples
    --------
    >>> with measure.traffic(ranks) as seen:
    ...     ranks.run(lambda: dist.all_reduce(torch.ones(1 << 20)))
    >>> seen.wire.sum()
    """
    if fn is None:
        return _watching(ranks, wire)
    with _watching(ranks, wire) as seen:
        seen.results = ranks.run(fn, *args, **kwargs)
    return seen


@contextlib.contextmanager
def _watching(ranks: Ranks, wire: bool) -> Iterator[Traffic]:
    seen = Traffic(ranks.size)
    before = _read(ranks) if wire else []
    ranks.run(_issued.start)
    try:
        yield seen
    except BaseException:
        # The block's own error is what matters; ranks that were started anew watch no more.
        with contextlib.suppress(Exception):
            ranks.run(_issued.stop)
        raise
    _fill_issued(seen, ranks.run(_issued.stop))
    if wire:
        _fill_wire(seen, ranks.backend, before, *_settled(ranks, before))
    else:
        seen.why = "it was not asked for (wire=False)"


def _read(ranks: Ranks) -> list[Reading]:
    readings: list[Reading] = ranks.run(_sockets.read_here)
    for rank, reading in enumerate(readings):
        if reading.problem:
            raise MeasureError(
                f"bytes on the wire come from the kernel's socket counters, and on rank {rank} "
                f"{reading.problem}; only Linux has them: apt-get install iproute2, or count only "
                "what is issued: traffic(ranks, wire=False)"
            )
    return readings


def _settled(ranks: Ranks, before: list[Reading]) -> tuple[list[Reading], bool]:
    """Read until both ends of every connection tell the same, for at most two seconds."""
    until = time.monotonic() + _PATIENCE
    while True:
        after = _read(ranks)
        sent, received = _sockets.between(before, after)
        if (sent == received).all():
            return after, True
        if time.monotonic() > until:
            return after, False
        time.sleep(0.02)


def _fill_issued(seen: Traffic, told: list[Any]) -> None:
    for rank, answer in enumerate(told):
        calls, recorded, lost = answer or ([], [], False)
        seen.calls.append(calls)
        seen.issued.append(_issued.merged(calls))
        seen.recorded.append(recorded)
        if answer is None:
            seen.notes.append(f"rank {rank} was started anew: what it issued before is lost")
        if lost:
            seen.notes.append(f"rank {rank}: the flight recorder forgot the oldest calls")


def _fill_wire(
    seen: Traffic, backend: str, before: list[Reading], after: list[Reading], agreed: bool
) -> None:
    sent, _ = _sockets.between(before, after)
    if [r.pid for r in before] != [r.pid for r in after]:
        seen.notes.append("a rank was started anew: what its old connections carried is lost")
    closed = _sockets.closed_between(before, after)
    if closed:
        seen.notes.append(f"{closed} connections were closed: what they carried is not counted")
    if not agreed:
        seen.notes.append("bytes were still on their way: sender and receiver count differently")
    mpi = any(reading.mpi for reading in after)
    if sent.any() or not (mpi or backend == "nccl"):
        seen.wire, seen.why = sent, ""
        if mpi:
            seen.notes.append("what MPI moved through shared memory is not on the wire")
    else:
        seen.why = _NO_SOCKETS["mpi" if mpi else "nccl"]
