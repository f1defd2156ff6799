"""One rank as the notebook knows it, and what a launcher must be able to do."""

from __future__ import annotations

import os
import signal
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ._io import Channel
from ._stand import Stand

if TYPE_CHECKING:
    from ._call import Call
    from ._session import Session


@dataclass
class Member:
    """What the notebook knows of one rank."""

    rank: int
    channel: Channel | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    calls: deque[Call] = field(default_factory=deque)
    ready: bool = False
    error: Any = None
    ended: bool = False
    status: int | None = None
    crash: str = ""
    early: bytes = b""

    @property
    def pid(self) -> int | None:
        """Process id on the rank's own host."""
        return self.facts.get("pid")


class Launcher(Protocol):
    """How ranks come to life."""

    name: str
    replaces_one: bool

    def launch(self, session: Session, ranks: list[int], store: dict[str, Any]) -> None:
        """Start these ranks and give each member its channel."""

    def kill(self, session: Session, rank: int) -> None:
        """Kill one rank; its end is reported through its channel."""

    def peek(self, member: Member) -> Stand | None:
        """What the operating system says of a rank that does not answer."""

    def resume(self, member: Member) -> None:
        """Let a stopped rank go on."""

    def store(self, session: Session, serial: int) -> dict[str, Any]:
        """Where the next process group meets."""

    def joined(self) -> None:
        """Called when every rank is in a new process group."""

    def before_restart_all(self, session: Session) -> None:
        """Called when every rank is about to be started again."""

    def close(self, session: Session) -> None:
        """End everything."""


def signal_of(status: int | None) -> str | None:
    """Name of the signal that ended a process, from its wait status."""
    if status is None or not os.WIFSIGNALED(status):
        return None
    return signal.Signals(os.WTERMSIG(status)).name


def describe_end(status: int | None) -> str:
    """How a process ended, in words."""
    name = signal_of(status)
    if name is not None:
        return f"killed by {name}"
    if status is None:
        return "connection lost"
    return f"exited with code {os.waitstatus_to_exitcode(status)}"
