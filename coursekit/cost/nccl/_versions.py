"""NCCL's versions: which constants one has, and which a torch wheel brings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from coursekit import _data

from ._names import NcclError

__all__ = ["Constants", "constants", "numbers", "of_torch", "source"]

_FIRST, _LAST = 19, 30
_PATTERN = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:[-+].*)?")


@dataclass(frozen=True)
class Constants:
    """The constants of one version; `value` holds the keys of `data/nccl_tuning.yaml`.

    Attributes:
        version: as asked for.
        read: the source that the constants were read from.
        note: what to know where that is not the version itself, else "".
        value: the constants.
    """

    version: str
    read: str
    note: str
    value: dict[str, Any]


def numbers(version: str) -> tuple[int, int, int]:
    """Major, minor and patch of `2.27`, `2.27.5`, `v2.30.7-1` or `2.27.5+cuda12.9`; patch -1 if
    it is not said.
    """
    found = _PATTERN.fullmatch(str(version).strip())
    if not found:
        raise NcclError(f"an NCCL version looks like '2.27' or '2.27.5', got {version!r}")
    major, minor, patch = found.groups()
    return int(major), int(minor), -1 if patch is None else int(patch)


def constants(version: str) -> Constants:
    major, minor, patch = numbers(version)
    if major != 2 or not _FIRST <= minor <= _LAST:
        moved = "there the model moved to src/tuning/ and changed, and was not read"
        why = moved if (major, minor) > (2, _LAST) else "older ones were not read"
        near = _LAST if (major, minor) > (2, _LAST) else _FIRST
        raise NcclError(
            f"NCCL's cost model is known from 2.{_FIRST} to 2.{_LAST}, got {version!r}: {why}; "
            f"try version='2.{near}'"
        )
    table = _data.load("nccl_tuning.yaml")["versions"]
    entry = table.get(f"2.{minor}.{patch}", table.get(f"2.{minor}"))
    value = _era(entry["era"])
    return Constants(str(version), value["read"], entry["note"], value)


def source(version: str) -> str:
    """Where the constants of a version were read, and what was taken where it was not itself."""
    found = constants(version)
    return f"{found.read} ({found.note})" if found.note else str(found.read)


@cache
def _era(name: str) -> dict[str, Any]:
    """All constants of an era: its changes upon those of the eras before it."""
    merged: dict[str, Any] = {}
    for era, changes in _data.load("nccl_tuning.yaml")["eras"].items():
        merged = {**merged, **changes}
        if era == name:
            break
    return merged


def of_torch(version: str) -> str:
    """The NCCL version that a torch wheel from PyPI brings: `of_torch("2.13")` is `"2.29.7"`.

    Source: the requirements in the wheels' metadata (x86_64), see `data/nccl_versions.yaml`.
    What is installed, `torch.cuda.nccl.version()` tells.

    Raises:
        NcclError: that torch version is not in the table.
    """
    table = _data.load("nccl_versions.yaml")["torch"]
    key = ".".join(str(version).split("+")[0].split(".")[:2])
    if key not in table:
        raise NcclError(
            f"the torch version must be one of {', '.join(table)}, got {version!r}; "
            "ask the installed one with torch.cuda.nccl.version()"
        )
    return str(table[key])
