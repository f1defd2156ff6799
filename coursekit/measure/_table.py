"""Measured rows and their table, in the columns that nccl-tests prints."""

from __future__ import annotations

import csv
import html
import io
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from coursekit.cost import algbw, busbw

from ._errors import MeasureError
from ._loop import Measured, Work

ITEM = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "int32": 4, "int64": 8}


@dataclass(frozen=True)
class Row:
    """One measured size.

    Attributes
    ----------
    size : int
        Bytes of the whole buffer, as nccl-tests counts it: what all_gather gives and
        reduce_scatter takes.
    count : int
        Elements of that buffer.
    time_us, low_us, high_us : float
        Median, 10th and 90th percentile over batches. A batch is a number of calls, and all
        follow each other back to back; its time is the mean over ranks, divided by that number.
    algbw, busbw : float
        GB/s (10**9 bytes), as `coursekit.cost.algbw` and `busbw` define them.
    wrong : int
        Elements, over all ranks, that differ from what the collective promises.
    """

    size: int
    count: int
    dtype: str
    redop: str
    algorithm: str
    time_us: float
    low_us: float
    high_us: float
    algbw: float
    busbw: float
    wrong: int


@dataclass(frozen=True)
class Sweep:
    """The rows of one sweep, with what they were measured on.

    Attributes
    ----------
    backend : str
        ``gloo``, ``nccl`` or ``mpi``.
    cores : int
        Cores that the ranks may use, on all their machines together; 0 when it is not known.
    """

    collective: str
    ranks: int
    backend: str
    rows: tuple[Row, ...]
    cores: int = 0

    def of(self, algorithm: str) -> list[Row]:
        """The rows of one algorithm, by size."""
        return [r for r in self.rows if r.algorithm == algorithm]

    @property
    def algorithms(self) -> list[str]:
        """The algorithms that were measured, in order."""
        return list(dict.fromkeys(r.algorithm for r in self.rows))

    def time_at(self, algorithm: str, nbytes: float) -> float:
        """Microseconds at a size between measured ones: straight lines on logarithmic axes.

        Raises MeasureError for an algorithm that was not measured.
        """
        rows = sorted(self.of(algorithm), key=lambda row: row.size)
        if not rows:
            raise MeasureError(
                f"algorithm must be one that was measured ({', '.join(self.algorithms)}), "
                f"got {algorithm!r}"
            )
        place = np.log([row.size for row in rows]), np.log([row.time_us for row in rows])
        return float(np.exp(np.interp(np.log(nbytes), *place)))

    def crossing(self, one: str, other: str) -> float | None:
        """Bytes from which on `other` was measured to be the faster; None where there are none.

        On a busy machine lines cross more than once. It counts where the fewest sizes are on the
        wrong side; None means that one of the two is ahead nearly everywhere.

        Raises MeasureError for an algorithm that was not measured.
        """
        sizes = sorted({row.size for row in self.rows})
        lead = [math.log(self.time_at(other, n) / self.time_at(one, n)) for n in sizes]
        ahead = [by < 0 for by in lead]
        right = [ahead[:i].count(False) + ahead[i:].count(True) for i in range(len(sizes) + 1)]
        i = right.index(max(right))
        if i in (0, len(sizes)):
            return None
        share = lead[i - 1] / (lead[i - 1] - lead[i])
        return float(sizes[i - 1] * (sizes[i] / sizes[i - 1]) ** share)

    def to_csv(self, path: str | Path | None = None) -> str:
        """As CSV text; written to `path` if one is given."""
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([f.name for f in fields(Row)])
        writer.writerows([list(asdict(r).values()) for r in self.rows])
        return _written(stream.getvalue(), path)

    def to_json(self, path: str | Path | None = None) -> str:
        """As JSON text; written to `path` if one is given."""
        return _written(json.dumps(asdict(self), indent=1) + "\n", path)

    def _cells(self) -> list[list[str]]:
        head = ["size", "count", "type", "redop", "algorithm", "time us", "p10", "p90"]
        head += ["algbw GB/s", "busbw GB/s", "#wrong"]
        return [head, *(_cells(r) for r in self.rows)]

    def __str__(self) -> str:
        table = self._cells()
        widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
        title = f"{self.collective}, {self.ranks} ranks, {self.backend}"
        lines = ("  ".join(c.rjust(w) for c, w in zip(r, widths, strict=True)) for r in table)
        return "\n".join([title, *lines])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        head, *body = self._cells()
        top = "".join(f"<th>{html.escape(c)}</th>" for c in head)
        rows = "".join("<tr>" + "".join(f"<td>{c}</td>" for c in row) + "</tr>" for row in body)
        title = html.escape(f"{self.collective}, {self.ranks} ranks, {self.backend}")
        return f"<p>{title}</p><table><tr>{top}</tr>{rows}</table>"


def _cells(row: Row) -> list[str]:
    times = [f"{t:.1f}" for t in (row.time_us, row.low_us, row.high_us)]
    words = [row.dtype, row.redop, row.algorithm, *times]
    widths = [f"{row.algbw:.3f}", f"{row.busbw:.3f}"]
    return [str(row.size), str(row.count), *words, *widths, str(row.wrong)]


def _written(text: str, path: str | Path | None) -> str:
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text


def as_row(name: str, work: Work, got: Sequence[Measured]) -> Row:
    """One row from what every rank measured."""
    batches = [statistics.fmean(b) for b in zip(*(m.seconds for m in got), strict=True)]
    low, high = _percentiles(batches)
    median = statistics.median(batches)
    size = work.count * ITEM[work.dtype]
    return Row(
        size=size,
        count=work.count,
        dtype=work.dtype,
        redop="sum" if "reduce" in work.collective else "none",
        algorithm=name,
        time_us=median * 1e6,
        low_us=low * 1e6,
        high_us=high * 1e6,
        algbw=algbw(size, median),
        busbw=busbw(work.collective, len(got), size, median),
        wrong=sum(m.wrong for m in got),
    )


def _percentiles(seconds: list[float]) -> tuple[float, float]:
    if len(seconds) < 2:
        return seconds[0], seconds[0]
    cuts: list[Any] = statistics.quantiles(seconds, n=10, method="inclusive")
    return cuts[0], cuts[-1]


def cores_of(got: Sequence[Measured]) -> int:
    """The cores of all machines that the ranks run on."""
    return sum({m.host: m.cores for m in got}.values())
