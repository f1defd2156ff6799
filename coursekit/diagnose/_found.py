"""What a check finds, and the list of checks by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from coursekit.diagnose._event import Event, Line
from coursekit.diagnose._facts import PROOFS, Facts

CONFIDENCES = ("high", "medium", "low")


@dataclass
class Found:
    """A verdict that a look over all lines gave."""

    lines: list[Line]
    ranks: list[int] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)
    confidence: str = "high"


Check = Callable[[Facts], Iterable[Found]]
CHECKS: dict[str, Check] = {}


def check(name: str) -> Callable[[Check], Check]:
    """Register a check under the name that rules use."""

    def put(function: Check) -> Check:
        CHECKS[name] = function
        return function

    return put


def proofs(events: Iterable[Event]) -> list[Line]:
    """The first lines of each kind of evidence, as many as a report shows."""
    found: list[Line] = []
    for event in events:
        if len(found) == PROOFS:
            break
        found.append(event.proof)
    return found


def listed(numbers: Iterable[int], most: int = 12) -> str:
    """Ranks as people write them: ``0-3, 7``."""
    ordered = sorted(set(numbers))
    parts = list(_runs(ordered))
    shown = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts[:most])
    return shown + (f", ... ({len(ordered)})" if len(parts) > most else "")


def _runs(ordered: list[int]) -> Iterator[tuple[int, int]]:
    at = 0
    while at < len(ordered):
        end = at
        while end + 1 < len(ordered) and ordered[end + 1] == ordered[end] + 1:
            end += 1
        yield ordered[at], ordered[end]
        at = end + 1
