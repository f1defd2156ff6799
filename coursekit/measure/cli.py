"""``coursekit bench``: nccl-tests' table for Gloo, MPI's processes and NCCL."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ._sweep import Sweep

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class BenchError(Exception):
    """A user's mistake: one line on the terminal."""


def bench(
    collective: Annotated[str, typer.Argument(help="Such as all_reduce or all_gather.")],
    ranks: Annotated[int, typer.Option(help="How many ranks to start here.")] = 4,
    backend: Annotated[str, typer.Option(help="auto, gloo or nccl.")] = "auto",
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

    Starts ranks on this machine; under torchrun it measures the ranks of that job instead, on as
    many machines as there are. Exit code 1 when a result was wrong.
    """
    from coursekit.cost import CostError
    from coursekit.ranks import RanksError
    from coursekit.schedule import ScheduleError

    from ._sweep import MeasureError, sizes

    try:
        wanted = sizes(parse_size(least), parse_size(most), factor)
        names = [n.strip() for n in algorithms.split(",")]
        if "TORCHELASTIC_RUN_ID" in os.environ:
            done = _in_job(collective, wanted, names, dtype)
        else:
            done = _here(collective, wanted, names, dtype, (ranks, backend, launcher))
    except (MeasureError, CostError, ScheduleError, RanksError) as error:
        raise BenchError(str(error)) from None
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
    with Ranks(size, backend, launcher, timeout=600) as ranks:
        return sweep(ranks, collective, wanted, names, dtype=dtype, progress=_progress())


def _in_job(collective: str, wanted: list[int], names: list[str], dtype: str) -> Sweep | None:
    import torch
    import torch.distributed as dist

    from ._sweep import sweep_in_job

    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    dist.init_process_group("nccl" if torch.cuda.device_count() >= local else "gloo")
    try:
        return sweep_in_job(collective, wanted, names, dtype=dtype)
    finally:
        dist.destroy_process_group()


def _progress() -> Callable[[str], None] | None:
    import sys

    if not sys.stderr.isatty():
        return None

    def show(line: str) -> None:
        print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)

    return show
