"""``coursekit bench``: nccl-tests' table for Gloo, MPI's processes and NCCL."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ._table import Sweep

_BAR = 24
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class BenchError(Exception):
    """A user's mistake: one line on the terminal."""


def bench(
    collective: Annotated[str, typer.Argument(help="Such as all_reduce or all_gather.")],
    ranks: Annotated[int, typer.Option(help="How many ranks to start here.")] = 4,
    backend: Annotated[
        str, typer.Option(help="auto, gloo, nccl, or mpi for MPI's own collectives.")
    ] = "auto",
    launcher: Annotated[str, typer.Option(help="local or mpi.")] = "local",
    least: Annotated[
        str, typer.Option("--minbytes", "-b", help="Smallest size: 8, 64K, 1M.")
    ] = "8",
    most: Annotated[str, typer.Option("--maxbytes", "-e", help="Largest size.")] = "32M",
    factor: Annotated[
        int, typer.Option("--stepfactor", "-f", help="Each size is so many times the last.")
    ] = 4,
    algorithms: Annotated[
        str, typer.Option(help="library, or the course's own: ring,recursive_doubling")
    ] = "library",
    dtype: Annotated[
        str, typer.Option("--datatype", "-d", help="Such as float32 or bfloat16.")
    ] = "float32",
    csv: Annotated[Path | None, typer.Option(help="Write CSV here.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write JSON here.")] = None,
) -> None:
    """Measure a collective over message sizes, with nccl-tests' columns and options.

    Starts ranks on this machine; under torchrun or mpirun it measures the ranks of that job
    instead, on as many machines as there are. Exit code 1 when a result was wrong.
    """
    from coursekit.cost import CostError
    from coursekit.ranks import RanksError
    from coursekit.schedule import ScheduleError

    from ._errors import MeasureError
    from ._job import launched_by
    from ._sweep import sizes

    job = launched_by()
    try:
        wanted = sizes(parse_size(least), parse_size(most), factor)
        names = [n.strip() for n in algorithms.split(",")]
        if job is not None:
            done = _in_job(job, backend, collective, wanted, names, dtype)
        else:
            done = _here(collective, wanted, names, dtype, (ranks, backend, launcher))
    except (MeasureError, CostError, ScheduleError, RanksError) as error:
        raise BenchError(str(error) if _speaks() else "") from None
    if done is None:
        return
    print(done)
    if csv is not None:
        done.to_csv(csv)
    if json is not None:
        done.to_json(json)
    raise typer.Exit(1 if any(row.wrong for row in done.rows) else 0)


def parse_size(text: str) -> int:
    """Bytes from ``8``, ``64K``, ``1M`` or ``2G`` (powers of 1024, as nccl-tests reads them)."""
    match = re.fullmatch(r"(\d+)([KMG]?)I?B?", text.strip().upper())
    if match is None:
        raise BenchError(f"a size is a number with K, M or G, got {text!r}; try 64K")
    return int(match[1]) * _UNITS[match[2]]


def _here(
    collective: str, wanted: list[int], names: list[str], dtype: str, how: tuple[int, str, str]
) -> Sweep:
    from coursekit.ranks import Ranks

    from ._sweep import sweep

    size, backend, launcher = how
    over = None
    if backend == "mpi":
        over, backend, launcher = "mpi", "gloo", "mpi"
    progress = bar(len(wanted) * len(names))
    with Ranks(size, backend, launcher, timeout=600) as ranks:
        return sweep(ranks, collective, wanted, names, backend=over, dtype=dtype, progress=progress)


def _in_job(
    launcher: str, backend: str, collective: str, wanted: list[int], names: list[str], dtype: str
) -> Sweep | None:
    from ._job import joined, sweep_in_job

    with joined(launcher, backend) as member:
        progress = bar(len(wanted) * len(names))
        return sweep_in_job(member, collective, wanted, names, dtype=dtype, progress=progress)


def _speaks() -> bool:
    """Whether this process tells a mistake: of a job's ranks, which all make it, the first does."""
    names = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "RANK")
    return next((os.environ[n] for n in names if n in os.environ), "0") == "0"


def bar(total: int) -> Callable[[str], None] | None:
    """A bar on the terminal's last line, gone when all is measured; None without a terminal."""
    if not sys.stderr.isatty():
        return None
    done = 0

    def show(line: str) -> None:
        nonlocal done
        done += 1
        full = _BAR * done // total
        text = f"[{'#' * full}{'.' * (_BAR - full)}] {done}/{total} {line}"
        end = "" if done < total else "\r\033[K"
        print(f"\r\033[K{text}{end}", end="", file=sys.stderr, flush=True)

    return show
