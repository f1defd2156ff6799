"""Measuring the ranks of a job that torchrun or mpirun started: every rank is in here."""

from __future__ import annotations

import contextlib
import os
import socket
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from coursekit.schedule import ScheduleError

from ._errors import MeasureError
from ._loop import Work, measure_here
from ._sweep import Job, run
from ._table import Sweep

_UNDER_MPI = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")
_LOCAL_RANK = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
_LOCAL_SIZE = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")


@dataclass(frozen=True)
class Member:
    """This process's place in the job."""

    rank: int
    size: int
    backend: str
    gather: Callable[[Any], list[Any]]


def launched_by() -> str | None:
    """Which launcher's job this process is a rank of: torchrun, mpirun, or None."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return "torchrun"
    return "mpirun" if any(name in os.environ for name in _UNDER_MPI) else None


def sweep_in_job(
    member: Member,
    collective: str,
    wanted: Sequence[int],
    names: Sequence[str],
    *,
    dtype: str = "float32",
    progress: Callable[[str], None] | None = None,
) -> Sweep | None:
    """Measure on the ranks of a job; every rank calls it, rank 0 gets the sweep.

    Raises as `sweep` does.
    """
    mpi = member.backend == "mpi"
    job = Job(member.size, member.backend, lambda work: member.gather(measure_here(work)))
    how = Work(collective, None, 1, dtype, mpi, batches=0, calls=0)
    heard = progress if member.rank == 0 else None
    done = run(job, how, wanted, names, heard)
    return done if member.rank == 0 else None


@contextlib.contextmanager
def joined(launcher: str, backend: str) -> Iterator[Member]:
    """Join the job: torch's process group, or MPI's communicator alone.

    Raises
    ------
    MeasureError
        The launcher's ranks cannot have this backend.
    """
    if backend not in ("auto", "gloo", "nccl", "mpi"):
        raise MeasureError(
            f"backend must be auto, gloo, nccl or mpi, got {backend!r}; try --backend auto"
        )
    if launcher == "mpirun":
        with _in_mpi(backend) as member:
            yield member
        return
    if backend == "mpi":
        raise MeasureError(
            "backend mpi needs ranks that mpirun started, got torchrun's; try "
            "mpirun -n 4 python -m coursekit bench all_reduce"
        )
    with _in_group(backend) as member:
        yield member


@contextlib.contextmanager
def _in_group(backend: str, **meeting: Any) -> Iterator[Member]:
    import torch
    import torch.distributed as dist

    if backend == "auto":
        backend = "nccl" if torch.cuda.device_count() >= _number(_LOCAL_SIZE, 1) else "gloo"
    if backend == "nccl":
        torch.cuda.set_device(_number(_LOCAL_RANK, 0))
    dist.init_process_group(backend, **meeting)
    try:
        yield Member(dist.get_rank(), dist.get_world_size(), backend, _gather_by_torch)
    finally:
        dist.destroy_process_group()


def _gather_by_torch(mine: Any) -> list[Any]:
    import torch.distributed as dist

    out: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(out, mine)
    return out


@contextlib.contextmanager
def _in_mpi(backend: str) -> Iterator[Member]:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    rank, size = comm.Get_rank(), comm.Get_size()
    try:
        if backend in ("auto", "mpi"):
            yield Member(rank, size, "mpi", comm.allgather)
            return
        with _in_group(backend, store=_store(comm), rank=rank, world_size=size) as member:
            yield member
    except (MeasureError, ScheduleError):
        raise  # every rank has it
    except BaseException:
        # One rank alone: the others would wait for it forever.
        traceback.print_exc()
        comm.Abort(1)


def _store(comm: Any) -> Any:
    """Where torch's ranks meet: rank 0 serves it, MPI tells the others."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    one_host = len(set(comm.allgather(socket.gethostname()))) == 1
    host = "127.0.0.1" if one_host else socket.gethostname()
    server = None
    if comm.Get_rank() == 0:
        server = TCPStore(host, 0, None, True, wait_for_workers=False)
    host, port = comm.bcast((host, server.port) if server else None)
    return server or TCPStore(host, port, None, False)


def _number(names: Sequence[str], default: int) -> int:
    found = (os.environ[n] for n in names if os.environ.get(n, "").isdigit())
    return int(next(found, default))
