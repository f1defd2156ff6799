"""What is handed back: verdicts with their proof, as text, JSON and HTML."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from coursekit import i18n
from coursekit.diagnose._event import Line
from coursekit.diagnose._found import listed
from coursekit.topology import Finding

# How much a report's text shows of each verdict.
LINES = 4


class _Known(dict[str, Any]):
    """A place in an explanation that nothing fills."""

    def __missing__(self, key: str) -> str:
        return "?"


@dataclass(frozen=True)
class Verdict:
    """One thing that is so, and why.

    Parameters
    ----------
    id : str
        Such as ``shm.too_small``.
    confidence : str
        high, medium or low.
    layer : str
        program, topology, algorithm, parameters, network, driver, memory, secondary or none.
    kind : str
        cause, consequence or information.
    weight : str
        What it goes before: fault, setting, mismatch, missing, timeout, slow, secondary, note.
    ranks : tuple of int
        Whom it is about, where that is known.
    lines : tuple of Line
        Its proof.
    words
        The explanation by language, or a topology finding.
    fields : dict
        What fills the explanation.
    next : tuple of str
        What to run or to look at, most telling first.
    """

    id: str
    confidence: str
    layer: str
    kind: str
    weight: str
    ranks: tuple[int, ...]
    lines: tuple[Line, ...]
    words: dict[str, str] | Finding = field(repr=False)
    fields: dict[str, Any] = field(repr=False)
    next: tuple[str, ...] = field(repr=False)

    @property
    def explanation(self) -> str:
        """What it means, in the course's current language."""
        if isinstance(self.words, Finding):
            return str(self.words)
        return i18n.pick(self.words, self.id).format_map(_Known(self.fields))

    def as_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {
            "id": self.id, "confidence": self.confidence, "layer": self.layer, "kind": self.kind,
            "ranks": list(self.ranks), "explanation": self.explanation,
            "lines": [{"source": ln.source, "line": ln.number, "text": ln.text}
                      for ln in self.lines],
            "next": list(self.next),
        }  # fmt: skip


@dataclass(frozen=True)
class Report:
    """Everything that a log shows, the root cause first.

    Parameters
    ----------
    verdicts : tuple of Verdict
        At least one: ``ok.healthy`` or ``evidence.insufficient`` where there is nothing else.
    sources : tuple of str
        What was read.
    lines, bytes : int
        How much that was.
    """

    verdicts: tuple[Verdict, ...]
    sources: tuple[str, ...]
    lines: int
    bytes: int

    @property
    def first(self) -> Verdict:
        """The verdict that explains most."""
        return self.verdicts[0]

    @property
    def ids(self) -> list[str]:
        """The verdicts' ids, in order."""
        return [v.id for v in self.verdicts]

    @property
    def healthy(self) -> bool:
        """Whether there is neither a cause nor a consequence, nor too little to tell."""
        return all(v.kind == "information" and v.id != "evidence.insufficient"
                   for v in self.verdicts)  # fmt: skip

    def __str__(self) -> str:
        shown = [self._head(), *(_text(v) for v in self.verdicts)]
        return "\n\n".join(shown)

    def _head(self) -> str:
        sources = self.sources[0] if len(self.sources) == 1 else f"{len(self.sources)} sources"
        return i18n.text("diagnose.head", verdicts=len(self.verdicts), lines=f"{self.lines:,}",
                         sources=sources)  # fmt: skip

    def as_json(self) -> str:
        """Text of a JSON object: ``verdicts``, ``sources``, ``lines``, ``bytes``."""
        told = {
            "verdicts": [v.as_dict() for v in self.verdicts], "healthy": self.healthy,
            "sources": list(self.sources), "lines": self.lines, "bytes": self.bytes,
        }  # fmt: skip
        return json.dumps(told, indent=1, ensure_ascii=False)

    def _repr_html_(self) -> str:
        from coursekit.diagnose._html import html

        return html(self)


def _text(verdict: Verdict) -> str:
    words = i18n.text
    head = (f"{verdict.id}  [{words(f'diagnose.{verdict.kind}')}, {verdict.layer}, "
            f"{words(f'diagnose.{verdict.confidence}')}]")  # fmt: skip
    lines = [head, f"  {verdict.explanation}"]
    if verdict.ranks:
        lines.append(f"  {words('diagnose.ranks')}: {listed(verdict.ranks)}")
    lines += [f"  > {line}" for line in verdict.lines[:LINES]]
    if len(verdict.lines) > LINES:
        lines.append("    " + words("diagnose.more", n=len(verdict.lines) - LINES))
    lines += [f"  $ {step}" for step in verdict.next]
    return "\n".join(lines)
