"""The list of faults that can be written, and what each needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from coursekit.diagnose.forge._log import Log

Write = Callable[[Log], None]


@dataclass(frozen=True)
class Fault:
    """A writer, and the least cluster that can have the fault.

    `version` and `below` bound NCCL's version: from, and up to but without.
    """

    id: str
    write: Write
    least: tuple[int, int]
    version: tuple[int, ...]
    below: tuple[int, ...]


FAULTS: dict[str, Fault] = {}


def fault(
    name: str, *, least: tuple[int, int] = (1, 2), version: tuple[int, ...] = (2, 14),
    below: tuple[int, ...] = (9,),
) -> Callable[[Write], Write]:  # fmt: skip
    """Register a writer under the verdict that it must give."""

    def put(write: Write) -> Write:
        FAULTS[name] = Fault(name, write, least, version, below)
        return write

    return put
