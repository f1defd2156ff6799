"""Predicted, issued, on the wire: three numbers for each mode and phase of a training step."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from coursekit.i18n import text
from coursekit.plan import Volume
from coursekit.plan.volume import sent

from ._issued import Issued

Key = tuple[str, str]


@dataclass(frozen=True)
class Line:
    """One mode in one phase. Bytes are what all ranks together send.

    `calls` says in words what rank 0 called; `note` what the backend made of it.
    """

    group: str
    phase: str
    calls: str
    predicted: int | None
    issued: int
    note: str = ""


@dataclass(frozen=True, repr=False)
class Ledger:
    """A step's bytes from three sources.

    Attributes
    ----------
    lines : tuple of Line
        By group and phase, in the order in which they were issued.
    wire : int or None
        What all ranks together put on the wire; None where it is not known.
    """

    lines: tuple[Line, ...]
    wire: int | None

    @property
    def predicted(self) -> int:
        """All lines' predictions together, in bytes."""
        return sum(line.predicted or 0 for line in self.lines)

    @property
    def issued(self) -> int:
        """All lines' issued bytes together."""
        return sum(line.issued for line in self.lines)

    @property
    def exact(self) -> bool:
        """Whether every line was issued exactly as it was predicted."""
        return all(line.predicted == line.issued for line in self.lines)

    def _cells(self) -> list[list[str]]:
        heads = ("mode", "phase", "predicted", "issued", "wire", "calls")
        head = [text(f"ledger.{name}") for name in heads]
        rows = [
            [i.group, _phase(i.phase), _told(i.predicted), _told(i.issued), "", i.calls]
            for i in self.lines
        ]
        total = [
            text("ledger.all"),
            "",
            _told(self.predicted),
            _told(self.issued),
            _told(self.wire),
            "",
        ]
        return [head, *rows, total]

    def __repr__(self) -> str:
        table = self._cells()
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [text("ledger.title")]
        for row in table:
            cells = [c.ljust(w) if n in (0, 1, 5) else c.rjust(w)
                     for n, (c, w) in enumerate(zip(row, widths, strict=True))]  # fmt: skip
            lines.append("  ".join(cells).rstrip())
        return "\n".join([*lines, *self._notes()])

    def _notes(self) -> list[str]:
        return list(dict.fromkeys(line.note for line in self.lines if line.note))

    def _repr_html_(self) -> str:
        head, *body = self._cells()
        top = "".join(f"<th>{html.escape(c)}</th>" for c in head)
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in row) + "</tr>" for row in body
        )
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self._notes())
        told = f"<table><tr>{top}</tr>{rows}</table>" + (f"<ul>{notes}</ul>" if notes else "")
        return f"<p>{html.escape(text('ledger.title'))}</p>{told}"


def ledger(
    calls: Sequence[Sequence[Issued]],
    volumes: Iterable[Volume],
    groups: dict[str, int] | None = None,
    recorded: Sequence[Issued] = (),
    wire: int | None = None,
) -> Ledger:
    """See `Traffic.ledger`."""
    volumes = list(volumes)
    planned = _planned(volumes, groups or {})
    # An axis that has all ranks is the default group to torch.
    whole = {volume.group for volume in volumes if volume.ranks == len(calls)}
    only = whole.pop() if len(whole) == 1 else "world"
    amounts: dict[Key, Fraction] = dict.fromkeys(planned, Fraction())
    for rank in calls:
        for call in rank:
            key = (only if call.group == "world" else call.group, call.phase)
            amounts[key] = amounts.get(key, Fraction()) + sent_by_one(call)
    lines = []
    for (group, phase), amount in amounts.items():
        names = (group, "world") if group == only else (group,)
        mine = [c for c in calls[0] if c.phase == phase and c.group in names]
        predicted = planned.get((group, phase), 0 if planned else None)
        note = _note(mine, recorded)
        lines.append(Line(group, phase, _words(mine), predicted, _whole(amount), note))
    return Ledger(tuple(line for line in lines if line.issued or line.predicted), wire)


def sent_by_one(call: Issued) -> Fraction:
    """Bytes that a rank sends for its calls: the group's share, the same for each of its ranks."""
    share = call.ranks if call.op not in ("send", "recv") else 1
    return Fraction(sent(call.op, call.bytes * call.count, call.ranks), max(share, 1))


def _planned(volumes: Iterable[Volume], groups: dict[str, int]) -> dict[Key, int]:
    planned: dict[Key, int] = {}
    for volume in volumes:
        key = (volume.group, volume.phase)
        planned[key] = planned.get(key, 0) + volume.sent * groups.get(volume.group, 1)
    return planned


def _note(mine: Iterable[Issued], recorded: Sequence[Issued]) -> str:
    """What the backend's book shows in the place of a call."""
    asked = {call.op for call in mine}
    booked = {call.op for call in recorded}
    if recorded and "reduce_scatter" in asked and "reduce_scatter" not in booked:
        return text("ledger.gloo")
    return ""


def _words(mine: Iterable[Issued]) -> str:
    counts: dict[str, int] = {}
    for call in mine:
        counts[call.op] = counts.get(call.op, 0) + call.count
    return ", ".join(f"{n} x {op}" for op, n in counts.items())


def _phase(name: str) -> str:
    """The word for a phase; a name of the learner's own stays."""
    known = name in ("forward", "backward", "step")
    return text(f"ledger.{name}") if known else name


def _whole(amount: Fraction) -> int:
    return round(amount)


def _told(amount: int | None) -> str:
    return text("ledger.unknown") if amount is None else f"{amount:,}"
