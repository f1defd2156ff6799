"""Where ranks live when that is not simply this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class First:
    """A function that a new rank calls before it has a thread or a socket."""

    module: str
    function: str
    arguments: tuple[Any, ...] = ()


class Site(Protocol):
    """What a place wants of the ranks that are forked into it."""

    def environment(self, rank: int) -> dict[str, str]:
        """Variables of the rank, before all others: Gloo's interface, for instance."""

    def first(self, rank: int) -> First | None:
        """What the rank does first, such as entering a network namespace."""

    def addresses(self) -> dict[str, int]:
        """Which rank has an address, so that a report can name the ends of a connection."""

    def joining(self) -> None:
        """The ranks are about to connect to each other."""

    def joined(self) -> None:
        """The ranks are connected."""
