"""Finds what lessons read: `data/` in a clone, `coursekit/_data/` in an installed wheel."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).parent


@cache
def folder() -> Path:
    """The data folder.

    Raises:
        FileNotFoundError: neither place has it.
    """
    for place in (_PACKAGE / "_data", _PACKAGE.parent / "data"):
        if place.is_dir():
            return place
    raise FileNotFoundError(
        f"the course's data must lie beside or inside the package, got neither at {_PACKAGE}; "
        "install coursekit from a complete clone: pip install -e ."
    )


def path(name: str) -> Path:
    """The file `name`, such as `models.yaml` or `quizzes/00.yaml`.

    Raises:
        FileNotFoundError: there is no such file; the message lists its neighbours.
    """
    found = folder() / name
    if not found.is_file():
        near = sorted(p.name for p in found.parent.glob(f"*{found.suffix}"))
        raise FileNotFoundError(
            f"name must be a file of the course's data, got {name!r}; "
            f"there are {', '.join(near) or 'none in that folder'}"
        )
    return found


@cache
def load(name: str) -> Any:
    """What the YAML file `name` holds, read once. Callers must not change it."""
    import yaml

    return yaml.safe_load(path(name).read_text(encoding="utf-8"))
