"""The way to a communicator."""

from __future__ import annotations

from typing import Any

from ._comm import Comm
from ._errors import CommError
from ._torch import TorchComm


def connect(target: Any = None) -> Comm:
    """Return the `Comm` of a process group (torch's default by default) or of an mpi4py one.

    Raises CommError for anything else, and when torch.distributed is not initialised.
    """
    if hasattr(target, "Isend"):
        from ._mpi import MpiComm  # MPI starts up when it is imported

        return MpiComm(target)
    import torch.distributed as dist

    if target is None and not dist.is_initialized():
        raise CommError(
            "connect() needs an initialised process group, got none; run it on ranks: "
            "ranks.run(lambda: connect().size)"
        )
    group = dist.group.WORLD if target is None else target
    if not isinstance(group, dist.ProcessGroup):
        raise CommError(
            f"connect takes a process group or an mpi4py communicator, got "
            f"{type(target).__name__}; try connect() for the default group"
        )
    return TorchComm(group)
