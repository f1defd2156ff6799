"""What two tools print: NCCL's RAS (`ncclras`), and torchfrtrace."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from coursekit.diagnose._event import Event
from coursekit.diagnose._facts import Facts

KEYS = (
    "operation counts", "launched up to operation", "-- GPU", "Missing communicator",
    "Error type:", "Not all ranks joining", "missing ranks",
)  # fmt: skip

_RAS_OP = re.compile(r"ranks have different (?P<op>\w+) operation counts")
_RAS_GROUP = re.compile(
    r"(?P<n>\d{1,7}) ranks? ha(?:ve|s) launched up to operation (?P<at>\d{1,18})"
)
_RAS_RANK = re.compile(r"Rank (?P<rank>\d{1,7}) -- GPU")
_RAS_GONE = re.compile(r"Missing communicator data from (?P<n>\d{1,7}) (?:job process|rank)")
_TRACE = re.compile(
    r"Culprit ranks? \[?(?P<rank>\d{1,7})[^;]*; ?Error type: (?P<error>\w+)"
    r"(?:, Expected (?P<what>[\w ]+?): '(?P<want>[^']*)' does not match[^:]*: '(?P<got>[^']*)')?"
)
_ERROR = re.compile(r"Error type: (?P<error>[A-Z_]+)")
_MISSING = re.compile(r"missing ranks?:? ?\{(?P<ranks>[\d, ]+)\}")
_NOT_ALL = re.compile(r"Not all ranks joining collective,? ?(?P<at>\d*)")


def read(event: Event, facts: Facts) -> None:
    """Add what a line of these tools tells."""
    text = event.text
    if found := _RAS_OP.search(text):
        _add(event, facts, "ras.differ", {"op": found["op"]})
    elif found := _RAS_GROUP.search(text):
        _add(event, facts, "ras.group", {"n": int(found["n"]), "at": int(found["at"])})
    elif found := _RAS_GONE.search(text):
        _add(event, facts, "ras.gone", {"n": int(found["n"])})
    elif (found := _RAS_RANK.search(text)) and facts.of("ras.group"):
        _add(event, facts, "ras.rank", {"rank": int(found["rank"])})
    elif "Error type:" in text:
        _culprits(event, facts)
    elif found := _MISSING.search(text):
        ranks = [int(r) for r in re.findall(r"\d{1,7}", found["ranks"])]
        _add(event, facts, "trace.missing", {"ranks": ranks})
    elif found := _NOT_ALL.search(text):
        _add(event, facts, "trace.not_all", {"at": found["at"]})


def _add(event: Event, facts: Facts, kind: str, fields: dict[str, Any]) -> None:
    facts.add(replace(event, kind=kind, fields=fields))


def _culprits(event: Event, facts: Facts) -> None:
    found = list(_TRACE.finditer(event.text))
    for one in found:
        _add(event, facts, "trace.error", {**one.groupdict(), "rank": int(one["rank"])})
    if not found and (told := _ERROR.search(event.text)):
        _add(event, facts, "trace.error", {"error": told["error"], "rank": None})
