"""The libraries' own collectives, ready to be called again and again on the same memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from coursekit.comm.names import all_gather_whole, reduce_scatter_whole

Run = Callable[..., Any]


def torch_call(collective: str, work: Any, own: slice) -> Run:
    """torch.distributed's collective on the default group; `own` is this rank's block of `work`."""
    import torch
    import torch.distributed as dist

    if collective == "all_reduce":
        return _giving(work, partial(dist.all_reduce, work))
    if collective == "broadcast":
        return _giving(work, partial(dist.broadcast, work, 0))
    if collective == "reduce":
        return _giving(work, partial(dist.reduce, work, 0))
    if collective == "all_gather":
        whole = torch.empty_like(work)
        return _giving(whole, partial(all_gather_whole(), whole, work[own].clone()))
    if collective == "reduce_scatter":
        part = torch.empty_like(work[own])
        return _giving(part, partial(reduce_scatter_whole(), part, work))
    whole = torch.empty_like(work)
    return _giving(whole, partial(dist.all_to_all_single, whole, work))


def mpi_call(collective: str, work: Any, own: slice) -> Run:
    """MPI's collective on COMM_WORLD, on the same memory through numpy.

    What only moves data goes as bytes, so that every dtype can; sums need a type that MPI knows.
    """
    import torch
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    if collective == "all_reduce":
        return _giving(work, partial(comm.Allreduce, MPI.IN_PLACE, work.numpy()))
    if collective == "reduce":
        mine = work.numpy()
        ends = (MPI.IN_PLACE, mine) if comm.Get_rank() == 0 else (mine, None)
        return _giving(work, partial(comm.Reduce, *ends))
    if collective == "reduce_scatter":
        part = torch.empty_like(work[own])
        return _giving(part, partial(comm.Reduce_scatter_block, work.numpy(), part.numpy()))
    if collective == "broadcast":
        return _giving(work, partial(comm.Bcast, _bytes(work), 0))
    whole = torch.empty_like(work)
    if collective == "all_gather":
        return _giving(whole, partial(comm.Allgather, _bytes(work[own].clone()), _bytes(whole)))
    return _giving(whole, partial(comm.Alltoall, _bytes(work), _bytes(whole)))


def _bytes(tensor: Any) -> Any:
    import torch

    return tensor.view(torch.uint8).numpy()


def _giving(result: Any, call: Callable[[], object]) -> Run:
    def run() -> Any:
        call()
        return result

    return run
