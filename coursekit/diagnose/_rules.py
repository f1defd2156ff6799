"""Rules as data: what a verdict's id means, which lines give it, and what to do next."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from coursekit import _data

FAMILIES = ("net", "init", "ib", "memory", "p2p", "coll", "mpi", "evidence")
# From what explains everything else to what explains nothing.
WEIGHTS = ("fault", "setting", "mismatch", "missing", "timeout", "slow", "secondary", "note")


@dataclass(frozen=True)
class Sign:
    """A line gives the verdict when it holds `key` and fits `re`."""

    key: str
    re: re.Pattern[str] | None


@dataclass(frozen=True)
class Rule:
    """One verdict.

    Parameters
    ----------
    id : str
        Such as ``shm.too_small``.
    layer : str
        program, topology, algorithm, parameters, network, driver, memory, secondary or none.
    kind : str
        cause, consequence or information.
    weight : str
        One of `WEIGHTS`: what stands first in a report.
    signs : tuple of Sign
        Lines that give it.
    check : str
        The name of a check over all that was read, or empty.
    words : dict
        The explanation by language, with places in braces.
    next : tuple of str
        Commands, most telling first.
    hides : tuple of str
        Verdicts that say nothing more beside this one.
    """

    id: str
    layer: str
    kind: str
    weight: str
    signs: tuple[Sign, ...]
    check: str
    words: dict[str, str]
    next: tuple[str, ...]
    hides: tuple[str, ...]


@cache
def rules() -> dict[str, Rule]:
    """All rules by id, in the order of their files."""
    found: dict[str, Rule] = {}
    for family in FAMILIES:
        for name, told in _data.load(f"rules/{family}.yaml").items():
            found[name] = _rule(name, told)
    return found


def _rule(name: str, told: dict[str, Any]) -> Rule:
    signs = tuple(
        Sign(line["key"], re.compile(line["re"]) if "re" in line else None)
        for line in told.get("lines", ())
    )
    return Rule(
        name, told["layer"], told["class"], told["weight"], signs, told.get("check", ""),
        {"en": told["en"], "zh": told["zh"]}, tuple(told["next"]), tuple(told.get("hides", ())),
    )  # fmt: skip


@cache
def signs_by_key() -> tuple[tuple[str, tuple[tuple[str, re.Pattern[str] | None], ...]], ...]:
    """Each key with the rules and patterns that it opens."""
    table: dict[str, list[tuple[str, re.Pattern[str] | None]]] = {}
    for rule in rules().values():
        for sign in rule.signs:
            table.setdefault(sign.key, []).append((rule.id, sign.re))
    return tuple((key, tuple(opened)) for key, opened in table.items())
