"""Reads one telling line: prefixes off, then every reader and rule that has a say."""

from __future__ import annotations

import re
from collections.abc import Callable

from coursekit.diagnose import _launch, _nccl, _texts, _torch
from coursekit.diagnose._event import Event
from coursekit.diagnose._facts import Facts
from coursekit.diagnose._prefix import Place, strip
from coursekit.diagnose._rules import signs_by_key

KEYS = ("between two GPUs", "Numa Node", *_nccl.KEYS, *_torch.KEYS, *_launch.KEYS, *_texts.KEYS)

_CORE = re.compile(
    r"(?:(?P<host>[^\s:\[\]<>]+):(?P<pid>\d+):(?P<tid>\d+) )?(?:\[(?P<dev>-?\d+)\] )?"
    r"(?:(?P<file>[\w/.]+\.\w+:\d+) (?:\((?P<func>\w+)\) )?)?NCCL (?P<level>INFO|WARN) (?P<text>.*)"
)
_TABLE = re.compile(
    r"\s*(?:(?:GPU|NIC|mlx5_)\d+(?:\s|$)|NIC\d+: \S|GPU\[\d+\]\s*:|=+ (?:Weight|Hops|Link) ?)"
)
_READERS: tuple[Callable[[Event, Facts], None], ...] = (_torch.read, _launch.read, _texts.read)


def core(place: Place, source: str, number: int, line: str = "") -> Event | None:
    """The event that NCCL's own head gives, or None where there is none."""
    found = _CORE.search(place.rest)
    if found is None:
        return None
    host = found["host"] or place.host
    process = f"{host}:{found['pid']}[{found['dev'] or 0}]" if found["pid"] else ""
    if not process and place.rank is None and found["dev"]:
        process = f"[{found['dev']}]"
    fields = {
        "process": process, "level": found["level"], "file": found["file"] or "",
        "message": found["text"], "dev": found["dev"],
    }  # fmt: skip
    return Event(place.time, host, place.rank, source, number, place.rest, "nccl", fields, line)


def take(line: str, source: str, number: int, facts: Facts) -> None:
    """Read a line into the facts."""
    if _TABLE.match(line):
        # A table is never longer; what comes later is not a table.
        if len(facts.tables[source]) < 600:
            facts.tables[source].append(line)
        return
    place = strip(line)
    event = core(place, source, number, line)
    if event is not None:
        if event.rank is not None:
            facts.knows(event.process, event.rank)
        facts.add(event)
        _nccl.read(event, facts)
    else:
        event = Event(
            place.time, place.host, place.rank, source, number, place.rest, "line", {}, line
        )
        if place.rest.startswith("NCCL version "):
            _nccl.version(event, facts)
        for reader in _READERS:
            reader(event, facts)
    _match(event, facts)


def _match(event: Event, facts: Facts) -> None:
    text = event.text
    for key, opened in signs_by_key():
        if key not in text:
            continue
        for rule, pattern in opened:
            found = pattern.search(text) if pattern else None
            if pattern is None or found:
                named = found.groupdict() if found else {}
                facts.hit(rule, event, {k: v for k, v in named.items() if v is not None})
