"""Where an agent is: its rank in the job, the notebook's address, its own interface."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psutil

_RANK = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID", "RANK")
_LOCAL = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID", "LOCAL_RANK")
_LOCAL_SIZE = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "LOCAL_WORLD_SIZE")
_UNDER_MPI = ("OMPI_COMM_WORLD_RANK", "PMI_RANK")


class ServeError(Exception):
    """The agent cannot serve; the message is for the terminal."""


@dataclass(frozen=True)
class Place:
    """This process's place in the job, from its launcher's environment."""

    rank: int
    local_rank: int
    local_size: int
    mpi: bool


def place(env: dict[str, str]) -> Place:
    """Read torchrun's, srun's or mpirun's variables; ServeError when there are none."""
    under_torchrun = "TORCHELASTIC_RUN_ID" in env
    order = reversed(_RANK) if under_torchrun else iter(_RANK)
    rank = _first(env, order)
    if rank is None:
        raise ServeError(
            "a rank number must come from torchrun, srun or mpirun, got none of "
            f"{', '.join(_RANK)}; start me with: torchrun --nproc-per-node 4 -m coursekit "
            "ranks serve --connect HOST:PORT"
        )
    local = _first(env, reversed(_LOCAL) if under_torchrun else iter(_LOCAL))
    mpi = not under_torchrun and any(name in env for name in _UNDER_MPI)
    return Place(rank, rank if local is None else local, _first(env, iter(_LOCAL_SIZE)) or 1, mpi)


def _first(env: dict[str, str], names: Any) -> int | None:
    return next((int(env[n]) for n in names if env.get(n, "").isdigit()), None)


def address(text: str) -> tuple[str, int]:
    """Split HOST:PORT; ServeError when it is not that."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ServeError(f"--connect must be HOST:PORT, got {text!r}; copy it from the notebook")
    return host.strip("[]"), int(port)


def interface(ip: str) -> str | None:
    """Name of the interface that has this address."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(a.address.split("%")[0] == ip for a in addresses):
            return name
    return None
