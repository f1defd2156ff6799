"""On a rank: one collective, repeated, timed and checked."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from coursekit.comm import Comm, connect, execute
from coursekit.schedule import Schedule

Run = Callable[[], Any]


def measure_here(
    collective: str,
    schedule: Schedule | None,
    count: int,
    dtype: str,
    warmup: int,
    repeat: int,
    spoil: bool = False,
) -> tuple[list[float], int]:
    """Time a collective on this rank: seconds of each repetition, and wrong elements.

    `schedule` None stands for the library's own collective. Every repetition starts at a barrier.
    `spoil` damages the result on rank 0 before it is checked: for the test of the check.
    """
    import torch

    comm = connect()
    device = torch.device("cuda") if _on_gpu() else torch.device("cpu")
    mine = values(comm.rank, count, dtype).to(device)
    call, result = prepared(collective, schedule, comm, mine)
    result_before = call()
    _settle(device)
    if spoil and comm.rank == 0:
        result(result_before)[0] += 1
    wrong = _wrong(result(result_before).cpu(), collective, comm, count, dtype)
    for _ in range(warmup):
        call()
    seconds = []
    for _ in range(repeat):
        _settle(device)
        comm.barrier()
        began = time.perf_counter()
        call()
        _settle(device)
        seconds.append(time.perf_counter() - began)
    return seconds, wrong


def values(rank: int, count: int, dtype: str) -> Any:
    """A rank's input: small whole numbers, so that every sum is exact in every dtype."""
    import torch

    return ((torch.arange(count) + rank) % 3 + 1).to(getattr(torch, dtype))


def _on_gpu() -> bool:
    import torch
    import torch.distributed as dist

    return torch.cuda.is_available() and "nccl" in str(dist.get_backend_config())


def _settle(device: Any) -> None:
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize()


def prepared(
    collective: str, schedule: Schedule | None, comm: Comm, mine: Any
) -> tuple[Run, Callable[[Any], Any]]:
    """The call to repeat, and how to read the part of its result that this rank must hold.

    The call works on the same memory each time: its values grow, and only the first is checked.
    """
    work = mine.clone()
    block = work.numel() // comm.size
    own = slice(comm.rank * block, (comm.rank + 1) * block)
    if schedule is not None:
        parts = {"reduce_scatter": own}

        def run() -> Any:
            return execute(schedule, comm, work)

        return run, lambda out: out[parts.get(collective, slice(None))]
    return _library(collective, work, own), lambda out: out


def _library(collective: str, work: Any, own: slice) -> Run:
    import torch
    import torch.distributed as dist

    if collective == "all_reduce":
        return lambda: dist.all_reduce(work) or work
    if collective == "broadcast":
        return lambda: dist.broadcast(work, 0) or work
    if collective == "reduce":
        return lambda: dist.reduce(work, 0) or work
    if collective == "all_gather":
        part, whole = work[own].clone(), torch.empty_like(work)
        return lambda: dist.all_gather_into_tensor(whole, part) or whole
    if collective == "reduce_scatter":
        part = torch.empty_like(work[own])
        return lambda: dist.reduce_scatter_tensor(part, work) or part
    whole = torch.empty_like(work)
    return lambda: dist.all_to_all_single(whole, work) or whole


def _wrong(got: Any, collective: str, comm: Comm, count: int, dtype: str) -> int:
    expected = expectation(collective, comm.rank, comm.size, count, dtype)
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
