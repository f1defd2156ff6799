"""Communicators of torch.distributed."""

from __future__ import annotations

from typing import Any

from ._comm import Request


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
