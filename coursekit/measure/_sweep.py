"""Sweeps over message sizes: what nccl-tests does, on whatever backend the ranks have."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace

from coursekit.ranks import Ranks
from coursekit.schedule import Schedule, algorithms, build

from ._errors import MeasureError
from ._loop import Measured, Work, measure_here
from ._mpi import forced, mpi_ranks, mpi_settings
from ._table import ITEM, Row, Sweep, as_row, cores_of

COLLECTIVES = ("all_gather", "all_reduce", "all_to_all", "broadcast", "reduce", "reduce_scatter")
_BLOCKS = ("all_gather", "all_to_all", "reduce_scatter")
_SPAN, _BATCH = 0.25, 0.02
Measure = Callable[[Work], list[Measured]]


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


def sweep(
    ranks: Ranks,
    collective: str = "all_reduce",
    sizes: Sequence[int] | None = None,
    algorithms: Sequence[str] = ("library",),
    *,
    backend: str | None = None,
    dtype: str = "float32",
    warmup: int = 2,
    repeat: int | None = None,
    calls: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> Sweep:
    """Measure a collective over message sizes on open ranks.

    Parameters
    ----------
    sizes : sequence of int, optional
        Bytes; rounded up to whole elements, and to equal blocks for all_gather, reduce_scatter
        and all_to_all. `measure.sizes()` by default.
    algorithms : sequence of str
        ``library`` is the backend's own collective; ``mpi:`` and a name from
        `measure.mpi_algorithms`, such as ``mpi:ring`` or ``mpi:default``, is Open MPI's, on as
        many ranks that are started for it and ended; any other is a name that
        `coursekit.schedule.algorithms` knows, run over the same backend.
    backend : {None, "mpi"}
        None is the ranks' own: Gloo or NCCL. ``mpi`` takes MPI's communicator, so that ``library``
        is MPI's collective; only for ``Ranks(launcher="mpi")``.
    repeat : int, optional
        Batches a size; by default as many as fit a quarter of a second, from 5 to 50.
    calls : int, optional
        Calls back to back in a batch; by default as many as fit 20 milliseconds, from 1 to 200.
    progress : callable, optional
        Hears one line a measured row.

    Raises
    ------
    MeasureError
        An unknown collective, algorithm, backend or dtype, or a size below one byte.

    Notes
    -----
    Calls follow each other without a barrier, as in nccl-tests and the OSU benchmarks: the root
    of a broadcast may run ahead of the others, and its time is that of a stream of broadcasts.
    Everything works in place where the collective can. The OSU benchmarks give MPI's Allreduce
    two buffers unless told otherwise, which costs it one copy of the buffer more.
    """
    mpi = _is_mpi(ranks, backend)
    how = Work(collective, None, 1, dtype, mpi, warmup, repeat or 0, calls or 0)
    check_collective(collective)
    started = {name: own for name in algorithms if (own := forced(name)) is not None}
    for own in started.values():  # before anything is measured
        mpi_settings(collective, own)
        _check_mpi_type(replace(how, mpi=True), ["library"])
    here = [name for name in algorithms if name not in started]
    done = run(_job(ranks, mpi), how, sizes, here, progress)
    for name, own in started.items():
        done = _joined(done, _forced(ranks.size, name, own, how, sizes, progress))
    return _ordered(done, algorithms)


def _job(ranks: Ranks, mpi: bool) -> Job:
    def measure(work: Work) -> list[Measured]:
        return ranks.run(measure_here, work)

    return Job(ranks.size, "mpi" if mpi else ranks.backend, measure)


def _forced(
    size: int,
    name: str,
    algorithm: str,
    how: Work,
    wanted: Sequence[int] | None,
    progress: Callable[[str], None] | None,
) -> Sweep:
    """One of Open MPI's algorithms, on ranks that are there for it alone."""

    def heard(line: str) -> None:
        if progress is not None:
            progress(line.replace(" library ", f" {name} ", 1))

    how = replace(how, mpi=True)
    with mpi_ranks(size, algorithm, how.collective) as ranks:
        done = run(_job(ranks, mpi=True), how, wanted, ["library"], heard)
    return replace(done, rows=tuple(replace(row, algorithm=name) for row in done.rows))


def _joined(one: Sweep, other: Sweep) -> Sweep:
    return replace(one, rows=one.rows + other.rows, cores=one.cores or other.cores)


def _ordered(sweep: Sweep, names: Sequence[str]) -> Sweep:
    """Rows by size as asked for, then by algorithm; a schedule may round a size up a little."""
    lines = [sweep.of(name) for name in dict.fromkeys(names)]
    return replace(sweep, rows=tuple(row for rows in zip(*lines, strict=True) for row in rows))


class Job:
    """Ranks on which to measure: `measure` gives every rank's answer."""

    def __init__(self, size: int, backend: str, measure: Measure) -> None:
        self.size, self.backend, self.measure = size, backend, measure


def run(
    job: Job,
    how: Work,
    wanted: Sequence[int] | None,
    names: Sequence[str],
    progress: Callable[[str], None] | None = None,
) -> Sweep:
    """Measure every size by every algorithm; 0 batches or calls in `how` mean: as many as fit."""
    check_collective(how.collective)
    _check_numbers(wanted, how.dtype)
    _check_mpi_type(how, names)
    schedules = {name: _schedule(how.collective, name, job.size) for name in names}
    rows: list[Row] = []
    cores = 0
    for nbytes in wanted or sizes():
        for name, schedule in schedules.items():
            count = _count(how.collective, nbytes, how.dtype, job.size, schedule)
            work = Work(how.collective, schedule, count, how.dtype, how.mpi, how.warmup)
            got = job.measure(_repeated(job, work, how))
            rows.append(as_row(name, work, got))
            cores = cores_of(got)
            if progress is not None:
                progress(f"{how.collective} {name} {rows[-1].size} B: {rows[-1].time_us:.1f} us")
    return Sweep(how.collective, job.size, job.backend, tuple(rows), cores)


def _repeated(job: Job, work: Work, how: Work) -> Work:
    """With the batches and calls that were asked for, or that trials suggest.

    On a crowded machine single calls are now fast, now a hundred times slower. So a whole batch is
    tried too before it is settled how many there will be.
    """
    calls = how.calls or min(200, max(1, int(_BATCH / _tried(job, work.sized(7, 1)))))
    batches = how.batches or repetitions(calls * _tried(job, work.sized(1, calls)))
    return work.sized(batches, calls)


def _tried(job: Job, work: Work) -> float:
    """Seconds of a call on the slowest rank, the median over batches."""
    batches = zip(*(m.seconds for m in job.measure(work)), strict=True)
    seconds: float = statistics.median(map(max, batches))
    return seconds


def repetitions(seconds: float) -> int:
    """As many as fit a quarter of a second, from 5 to 50."""
    return min(50, max(5, int(_SPAN / seconds)))


def _is_mpi(ranks: Ranks, backend: str | None) -> bool:
    if backend in (None, ranks.backend):
        return False
    if backend != "mpi":
        raise MeasureError(
            f"backend must be 'mpi' or that of the ranks ({ranks.backend}), got {backend!r}; "
            "leave it out, or make the ranks with it: Ranks(4, backend='nccl')"
        )
    if not all(ranks.run(_mpi_size_is, ranks.size)):
        raise MeasureError(
            "backend='mpi' needs ranks in an MPI job, got ranks without one; "
            f"start them with Ranks({ranks.size}, launcher='mpi')"
        )
    return True


def _mpi_size_is(size: int) -> bool:
    import sys

    mpi = sys.modules.get("mpi4py.MPI")
    return mpi is not None and mpi.Is_initialized() and mpi.COMM_WORLD.Get_size() == size


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
    if dtype not in ITEM:
        raise MeasureError(f"dtype must be one of {', '.join(ITEM)}, got {dtype!r}; try 'float32'")
    wrong = [s for s in wanted or () if isinstance(s, bool) or not isinstance(s, int) or s < 1]
    if wrong:
        raise MeasureError(
            f"sizes are whole numbers of bytes from 1 up, got {wrong}; try [8, 1024]"
        )


def _check_mpi_type(how: Work, names: Sequence[str]) -> None:
    sums = "reduce" in how.collective and "library" in names
    if how.mpi and sums and how.dtype in ("float16", "bfloat16"):
        raise MeasureError(
            f"MPI's own {how.collective} adds no 16-bit floats, got {how.dtype}; "
            "take float32, or an algorithm of the course"
        )


def _count(collective: str, nbytes: int, dtype: str, size: int, schedule: Schedule | None) -> int:
    """Elements: whole blocks where ranks own blocks, whole chunks where a schedule needs them."""
    unit = size if collective in _BLOCKS else 1
    if schedule is not None and schedule.needs_equal_chunks:
        unit = schedule.chunks
    elements = max(1, -(-nbytes // ITEM[dtype]))
    return -(-elements // unit) * unit
