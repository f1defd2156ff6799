"""One thing that a line says, in the one form that all readers give and all checks take."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

# Longer lines are cut where they are shown; what is compared is never cut.
SHOWN = 300


@dataclass(frozen=True, slots=True)
class Line:
    """A line that proves something.

    Parameters
    ----------
    source : str
        The file, or ``text`` and the like for what was no file.
    number : int
        Counted from 1; in a flight recorder's dump, the entry.
    text : str
        Without line end and colours, at most 300 characters.
    """

    source: str
    number: int
    text: str

    def __str__(self) -> str:
        return f"{self.source}:{self.number}: {self.text}"


@dataclass(frozen=True, slots=True)
class Event:
    """What a line says.

    Parameters
    ----------
    time : str
        As printed, empty where nothing was.
    host, rank : str, int or None
        Who said it, where that is known.
    source, line, text
        Where it stands.
    kind : str
        Such as ``nccl.init`` or ``watchdog.timeout``.
    fields : dict
        What the kind tells.
    whole : str
        The line with the prefixes that were taken off `text`; empty where nothing was.
    """

    time: str
    host: str
    rank: int | None
    source: str
    line: int
    text: str
    kind: str
    fields: dict[str, Any] = field(default_factory=dict)
    whole: str = ""

    @property
    def proof(self) -> Line:
        """The line, to be shown."""
        return Line(self.source, self.line, (self.whole or self.text)[:SHOWN])

    @property
    def process(self) -> str:
        """The process that printed it: host, process id and device, or what else tells it apart."""
        told = self.fields.get("process")
        if told:
            return str(told)
        return f"rank {self.rank}" if self.rank is not None else self.host or self.source
