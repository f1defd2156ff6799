"""On a rank: one collective, repeated, timed and checked."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from coursekit.comm import Comm, connect, execute
from coursekit.schedule import Schedule

from ._library import Run, mpi_call, torch_call


@dataclass(frozen=True)
class Work:
    """What to measure on every rank, and how often.

    `schedule` None stands for the library's own collective; `mpi` takes MPI's communicator in
    place of torch's. `spoil` damages the result on rank 0 before it is checked: for the test of
    the check.
    """

    collective: str
    schedule: Schedule | None
    count: int
    dtype: str
    mpi: bool = False
    warmup: int = 2
    batches: int = 1
    calls: int = 1
    spoil: bool = False

    def sized(self, batches: int, calls: int) -> Work:
        """The same with other repetitions."""
        return replace(self, batches=batches, calls=calls)


@dataclass(frozen=True)
class Measured:
    """What one rank measured: seconds a call in each batch, wrong elements, and where it ran."""

    seconds: tuple[float, ...]
    wrong: int
    host: str
    cores: int


def measure_here(work: Work) -> Measured:
    """Time a collective on this rank.

    Ranks start at a barrier, warm up, and make all their calls back to back, as nccl-tests and the
    OSU benchmarks do; the clock is read after every batch. A barrier before each batch would put
    its own end, which is not the same moment on every rank, into what is measured.
    """
    import torch

    comm = _connected(work.mpi)
    device = torch.device("cuda") if not work.mpi and _on_gpu() else torch.device("cpu")
    mine = values(comm.rank, work.count, work.dtype).to(device)
    call, result = prepared(work, comm, mine)
    first = call()
    _settle(device)
    if work.spoil and comm.rank == 0:
        result(first)[0] += 1
    wrong = _wrong(result(first).cpu(), work, comm)
    comm.barrier()
    for _ in range(work.warmup):
        call()
    return Measured(_batches(call, work, device), wrong, socket.gethostname(), _cores())


def _batches(call: Run, work: Work, device: Any) -> tuple[float, ...]:
    _settle(device)
    marks = [time.perf_counter()]
    for _ in range(work.batches):
        for _ in range(work.calls):
            call()
        _settle(device)
        marks.append(time.perf_counter())
    return tuple((end - begin) / work.calls for begin, end in pairwise(marks))


def values(rank: int, count: int, dtype: str) -> Any:
    """A rank's input: small whole numbers, so that every sum is exact in every dtype."""
    import torch

    return ((torch.arange(count) + rank) % 3 + 1).to(getattr(torch, dtype))


def _connected(mpi: bool) -> Comm:
    if not mpi:
        return connect()
    from mpi4py import MPI

    return connect(MPI.COMM_WORLD)


def _on_gpu() -> bool:
    import torch
    import torch.distributed as dist

    return torch.cuda.is_available() and "nccl" in str(dist.get_backend_config())


def _settle(device: Any) -> None:
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize()


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def prepared(work: Work, comm: Comm, mine: Any) -> tuple[Run, Callable[[Any], Any]]:
    """The call to repeat, and how to read the part of its result that this rank must hold.

    The call works on the same memory each time: its values grow, and only the first is checked.
    """
    buffer, schedule = mine.clone(), work.schedule
    block = buffer.numel() // comm.size
    own = slice(comm.rank * block, (comm.rank + 1) * block)
    if schedule is None:
        library = mpi_call if work.mpi else torch_call
        return library(work.collective, buffer, own), lambda out: out
    part = own if work.collective == "reduce_scatter" else slice(None)

    def run() -> Any:
        return execute(schedule, comm, buffer)

    return run, lambda out: out[part]


def _wrong(got: Any, work: Work, comm: Comm) -> int:
    expected = expectation(work.collective, comm.rank, comm.size, work.count, work.dtype)
    return 0 if expected is None else int((got != expected).sum())


def expectation(collective: str, rank: int, size: int, count: int, dtype: str) -> Any:
    """What a rank must hold afterwards; None where the collective promises nothing."""
    import torch

    each = [values(r, count, dtype) for r in range(size)]
    block = count // size
    total = sum(each[1:], each[0].clone())
    match collective:
        case "all_reduce":
            return total
        case "reduce":
            return total if rank == 0 else None
        case "broadcast":
            return each[0]
        case "all_gather":
            return torch.cat([each[r][r * block : (r + 1) * block] for r in range(size)])
        case "reduce_scatter":
            return total[rank * block : (rank + 1) * block]
        case _:
            return torch.cat([each[r][rank * block : (rank + 1) * block] for r in range(size)])
