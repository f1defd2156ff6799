"""``%%ranks``: a cell on the ranks."""

from __future__ import annotations

import re
from typing import Any

from ._errors import RanksUsageError
from ._ranks import Ranks, current

_USAGE = "%%ranks, %%ranks 0,2, %%ranks --timeout 600, %%ranks --of NAME"


def parse(line: str) -> tuple[list[int] | None, float | str | None, str | None]:
    """Split the magic's line: ranks, timeout, name of the `Ranks`.

    Raises RanksUsageError for anything else.
    """
    on: list[int] | None = None
    timeout: float | str | None = "default"
    name: str | None = None
    words = re.sub(r"\s*,\s*", ",", line).split()
    while words:
        word = words.pop(0)
        if word in ("--timeout", "--of"):
            if not words:
                raise RanksUsageError(f"{word} needs a value, got none; use {_USAGE}")
            value = words.pop(0)
            if word == "--of":
                name = value
            else:
                timeout = _seconds(value)
        elif on is None and re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", word):
            on = _ranks(word)
        else:
            raise RanksUsageError(f"%%ranks takes ranks and options, got {word!r}; use {_USAGE}")
    return on, timeout, name


def _ranks(word: str) -> list[int]:
    chosen: list[int] = []
    for part in word.split(","):
        first, _, last = part.partition("-")
        chosen += range(int(first), int(last or first) + 1)
    return chosen


def _seconds(value: str) -> float | None:
    if value.lower() == "none":
        return None
    try:
        return float(value)
    except ValueError:
        raise RanksUsageError(
            f"--timeout must be seconds or none, got {value!r}; use {_USAGE}"
        ) from None


def register(shell: Any) -> None:
    """Give an IPython shell the magic."""

    def ranks(line: str, cell: str) -> None:
        on, timeout, name = parse(line)
        chosen = current() if name is None else shell.user_ns.get(name)
        if not isinstance(chosen, Ranks):
            raise RanksUsageError(f"--of must name Ranks, got {name!r}; try ranks = Ranks(4)")
        # The count has moved on already in some versions; the last input is this cell's.
        label = f"In[{len(shell.user_ns['In']) - 1}]"
        chosen.cell(cell, on=on, timeout=timeout, label=label)

    shell.register_magic_function(ranks, magic_kind="cell", magic_name="ranks")
