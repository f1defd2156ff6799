"""Communicators: the same few calls over a torch process group or an mpi4py communicator."""

from __future__ import annotations

from typing import Any, Protocol

from ._errors import CommError


class Request(Protocol):
    """A message on its way."""

    def wait(self) -> object:
        """Return when the buffer may be used again."""


class Comm(Protocol):
    """Point-to-point messages between the ranks of a group.

    Buffers are contiguous torch tensors; a message carries their bytes, whatever the dtype.
    Messages from one rank to another arrive in the order in which they were sent.
    """

    rank: int
    size: int
    name: str

    def isend(self, buffer: Any, dest: int, tag: int = 0) -> Request:
        """Start to send a buffer to rank `dest`; leave it alone until the request is done."""

    def irecv(self, buffer: Any, source: int, tag: int = 0) -> Request:
        """Start to receive into a buffer from rank `source`."""

    def barrier(self) -> None:
        """Return when every rank has called it."""


def connect(target: Any = None) -> Comm:
    """Return the `Comm` of a process group (torch's default by default) or of an mpi4py one.

    Raises CommError for anything else, and when torch.distributed is not initialised.
    """
    if hasattr(target, "Isend"):
        from ._mpi import MpiComm

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


class TorchComm:
    """A torch process group; its own send and receive are faster than `dist.isend`."""

    def __init__(self, group: Any) -> None:
        self._group = group
        self.rank: int = group.rank()
        self.size: int = group.size()
        self.name: str = group.name()

    def isend(self, buffer: Any, dest: int, tag: int = 0) -> Request:
        """Start to send a buffer to rank `dest` of the group."""
        work: Request = self._group.send([buffer], dest, tag)
        return work

    def irecv(self, buffer: Any, source: int, tag: int = 0) -> Request:
        """Start to receive into a buffer from rank `source` of the group."""
        work: Request = self._group.recv([buffer], source, tag)
        return work

    def barrier(self) -> None:
        """Return when every rank has called it."""
        self._group.barrier().wait()
