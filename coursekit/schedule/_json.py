"""Schedules as JSON, to be kept, handed in and read again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from coursekit.schedule._errors import ScheduleError
from coursekit.schedule._schedule import Schedule

__all__ = ["FORMAT", "VERSION", "dumps", "load", "loads", "save"]

FORMAT = "coursekit.schedule"
VERSION = 1

_FIELDS: dict[str, tuple[type, ...]] = {
    "collective": (str,),
    "algorithm": (str,),
    "size": (int,),
    "chunks": (int,),
    "scratch": (int,),
    "root": (int, type(None)),
    "transfers": (list,),
}


def dumps(schedule: Schedule) -> str:
    """A schedule as JSON text, one transfer a line: [step, src, dst, chunk, op, into]."""
    head = {"format": FORMAT, "version": VERSION}
    head |= {name: getattr(schedule, name) for name in _FIELDS if name != "transfers"}
    lines = ",\n".join("    " + json.dumps(list(transfer)) for transfer in schedule)
    text = json.dumps(head, indent=2)[:-2]
    return f'{text},\n  "transfers": [\n{lines}\n  ]\n}}\n'


def loads(text: str | bytes) -> Schedule:
    """The schedule that JSON text holds.

    Raises:
        ScheduleError: it is no JSON, no schedule, of another version, or breaks a rule.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ScheduleError(f"a schedule must be JSON, got: {error}; write it with dumps") from None
    _check_head(data)
    unknown = sorted(set(data) - set(_FIELDS) - {"format", "version"})
    if unknown:
        raise ScheduleError(f"a schedule's fields must be known, got {', '.join(unknown)}")
    for name, types in _FIELDS.items():
        _check_field(data, name, types)
    for number, row in enumerate(data["transfers"]):
        if not isinstance(row, list) or len(row) != 6:
            raise ScheduleError(
                f"a transfer must be [step, src, dst, chunk, op, into], got {_short(row)} as "
                f"transfer {number}"
            )
    return Schedule(**{name: data[name] for name in _FIELDS})


def save(schedule: Schedule, path: str | Path) -> None:
    """Write a schedule into a file."""
    Path(path).write_text(dumps(schedule), encoding="utf-8")


def load(path: str | Path) -> Schedule:
    """Read a schedule from a file.

    Raises:
        ScheduleError: the file holds none; the message begins with its name.
    """
    try:
        return loads(Path(path).read_bytes())
    except ScheduleError as error:
        raise ScheduleError(f"{path}: {error}") from None


def _check_head(data: Any) -> None:
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ScheduleError(
            f'a schedule must say "format": "{FORMAT}", got {_short(data)}; write it with dumps'
        )
    if data.get("version") != VERSION or isinstance(data["version"], bool):
        raise ScheduleError(
            f"a schedule must be of version {VERSION}, got {_short(data.get('version'))}; "
            "save it anew with this version of the course"
        )


def _check_field(data: dict[str, Any], name: str, types: tuple[type, ...]) -> None:
    if name not in data:
        raise ScheduleError(f"a schedule must have the field {name}, got {', '.join(sorted(data))}")
    value = data[name]
    if not isinstance(value, types) or isinstance(value, bool):
        wanted = " or ".join({"NoneType": "null"}.get(t.__name__, t.__name__) for t in types)
        raise ScheduleError(f"{name} must be of type {wanted}, got {_short(value)}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
