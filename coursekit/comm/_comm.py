"""Communicators: the few calls that the course needs of a message library."""

from __future__ import annotations

from typing import Any, Protocol


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
