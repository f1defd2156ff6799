"""Sweeps over message sizes: what nccl-tests does, on whatever backend the ranks have."""

from __future__ import annotations

import csv
import html
import io
import json
import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from coursekit.cost import algbw, busbw
from coursekit.ranks import Ranks
from coursekit.schedule import Schedule, algorithms, build

from ._loop import measure_here

COLLECTIVES = ("all_gather", "all_reduce", "all_to_all", "broadcast", "reduce", "reduce_scatter")
_ITEM = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "int32": 4, "int64": 8}


class MeasureError(ValueError):
    """What was asked to be measured breaks a rule; the message has the rule and the next step."""


def check_collective(collective: str) -> None:
    """Raise MeasureError for a collective that cannot be measured."""
    if collective not in COLLECTIVES:
        raise MeasureError(
            f"collective must be one of {', '.join(COLLECTIVES)}, got {collective!r}; "
            "try 'all_reduce'"
        )


def sizes(least: int = 8, most: int = 32 << 20, factor: int = 4) -> list[int]:
    """Message sizes in bytes, from `least` to `most`, each `factor` times the one before."""
    if not 0 < least <= most or factor < 2:
        raise MeasureError(
            f"sizes need 0 < least <= most and factor >= 2, got {least}, {most}, {factor}; "
            "try sizes(8, 1 << 20)"
        )
    out = [least]
    while out[-1] * factor <= most:
        out.append(out[-1] * factor)
    return out


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
        Median, 10th and 90th percentile over repetitions of the slowest rank's time.
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
    """The rows of one sweep, with what they were measured on."""

    collective: str
    ranks: int
    backend: str
    rows: tuple[Row, ...]

    def of(self, algorithm: str) -> list[Row]:
        """The rows of one algorithm, by size."""
        return [r for r in self.rows if r.algorithm == algorithm]

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
    return [
        str(row.size),
        str(row.count),
        *words,
        f"{row.algbw:.3f}",
        f"{row.busbw:.3f}",
        str(row.wrong),
    ]


def _written(text: str, path: str | Path | None) -> str:
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text


def sweep(
    ranks: Ranks,
    collective: str = "all_reduce",
    sizes: Sequence[int] | None = None,
    algorithms: Sequence[str] = ("library",),
    *,
    dtype: str = "float32",
    warmup: int = 2,
    repeat: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> Sweep:
    """Measure a collective over message sizes on open ranks.

    Parameters
    ----------
    sizes : sequence of int, optional
        Bytes; rounded up to whole blocks, one a rank. `measure.sizes()` by default.
    algorithms : sequence of str
        ``library`` is the backend's own collective, any other a name that
        `coursekit.schedule.algorithms` knows.
    repeat : int, optional
        Repetitions a size; by default as many as fit a quarter of a second, from 5 to 50.
    progress : callable, optional
        Hears one line a measured row.

    Raises
    ------
    MeasureError
        An unknown collective, algorithm or dtype, or a size below one byte.
    """
    check_collective(collective)
    schedules = {name: _schedule(collective, name, ranks.size) for name in algorithms}
    _check_numbers(sizes, dtype)
    rows = []
    for nbytes in sizes or _default_sizes():
        for name, schedule in schedules.items():
            count = _count(nbytes, dtype, ranks.size, schedule)
            rows.append(_row(ranks, collective, name, schedule, count, dtype, warmup, repeat))
            if progress is not None:
                progress(f"{collective} {name} {rows[-1].size} B: {rows[-1].time_us:.1f} us")
    return Sweep(collective, ranks.size, ranks.backend, tuple(rows))


def sweep_in_job(
    collective: str, wanted: Sequence[int], names: Sequence[str], *, dtype: str = "float32"
) -> Sweep | None:
    """Measure on the ranks of a job that torchrun started; rank 0 gets the sweep.

    Every rank calls it, with the default process group initialised. Raises as `sweep` does.
    """
    import torch
    import torch.distributed as dist

    check_collective(collective)
    size, backend = dist.get_world_size(), dist.get_backend()
    schedules = {name: _schedule(collective, name, size) for name in names}
    _check_numbers(wanted, dtype)
    if "nccl" in backend:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    rows = []
    for nbytes in wanted:
        for name, schedule in schedules.items():
            count = _count(nbytes, dtype, size, schedule)
            rows.append(_row_in_job(collective, name, schedule, count, dtype))
    done = Sweep(collective, size, backend, tuple(rows))
    return done if dist.get_rank() == 0 else None


def _row_in_job(
    collective: str, name: str, schedule: Schedule | None, count: int, dtype: str
) -> Row:
    import torch.distributed as dist

    def everyone(times: int) -> list[tuple[list[float], int]]:
        mine = measure_here(collective, schedule, count, dtype, 2, times)
        out: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(out, mine)
        return out

    repeat = repetitions(max(times[0] for times, _ in everyone(1)))
    return as_row(collective, name, count, dtype, everyone(repeat))


def _default_sizes() -> list[int]:
    return sizes()


def _schedule(collective: str, name: str, size: int) -> Schedule | None:
    if name == "library":
        return None
    known = algorithms(collective)
    if name not in known:
        raise MeasureError(
            f"an algorithm of {collective} must be library or one of {', '.join(known)}, "
            f"got {name!r}; try 'library'"
        )
    return build(collective, name, size)


def _check_numbers(wanted: Sequence[int] | None, dtype: str) -> None:
    if dtype not in _ITEM:
        raise MeasureError(f"dtype must be one of {', '.join(_ITEM)}, got {dtype!r}; try 'float32'")
    wrong = [s for s in wanted or () if isinstance(s, bool) or not isinstance(s, int) or s < 1]
    if wrong:
        raise MeasureError(
            f"sizes are whole numbers of bytes from 1 up, got {wrong}; try [8, 1024]"
        )


def _count(nbytes: int, dtype: str, size: int, schedule: Schedule | None) -> int:
    """Elements: whole blocks, one a rank, and whole chunks where a schedule needs them equal."""
    unit = schedule.chunks if schedule is not None and schedule.needs_equal_chunks else size
    elements = max(1, -(-nbytes // _ITEM[dtype]))
    return -(-elements // unit) * unit


def _row(
    ranks: Ranks,
    collective: str,
    name: str,
    schedule: Schedule | None,
    count: int,
    dtype: str,
    warmup: int,
    repeat: int | None,
) -> Row:
    def run(times: int) -> list[tuple[list[float], int]]:
        return ranks.run(measure_here, collective, schedule, count, dtype, warmup, times)

    if repeat is None:
        repeat = repetitions(max(times[0] for times, _ in run(1)))
    return as_row(collective, name, count, dtype, run(repeat))


def repetitions(seconds: float) -> int:
    """As many as fit a quarter of a second, from 5 to 50."""
    return min(50, max(5, int(0.25 / seconds)))


def as_row(
    collective: str, name: str, count: int, dtype: str, got: Sequence[tuple[list[float], int]]
) -> Row:
    """One row from what every rank measured: seconds of each repetition, wrong elements."""
    slowest = [max(moment) for moment in zip(*(times for times, _ in got), strict=True)]
    low, high = _percentiles(slowest)
    median = statistics.median(slowest)
    size = count * _ITEM[dtype]
    return Row(
        size=size,
        count=count,
        dtype=dtype,
        redop="sum" if "reduce" in collective else "none",
        algorithm=name,
        time_us=median * 1e6,
        low_us=low * 1e6,
        high_us=high * 1e6,
        algbw=algbw(size, median),
        busbw=busbw(collective, len(got), size, median),
        wrong=sum(w for _, w in got),
    )


def _percentiles(seconds: list[float]) -> tuple[float, float]:
    if len(seconds) < 2:
        return seconds[0], seconds[0]
    cuts: list[Any] = statistics.quantiles(seconds, n=10, method="inclusive")
    return cuts[0], cuts[-1]
