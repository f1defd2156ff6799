"""Words that are chosen when they are shown, in the language of then."""

from __future__ import annotations

from typing import Any

from coursekit import i18n


class Say:
    """An entry of ``data/text/diagnose.yaml`` with its values."""

    def __init__(self, entry: str, **values: Any) -> None:
        self._entry = entry
        self._values = values

    def __str__(self) -> str:
        return i18n.text(f"diagnose.{self._entry}", **self._values)


class All:
    """Several of them, one after the other."""

    def __init__(self, parts: list[Any]) -> None:
        self._parts = parts

    def __str__(self) -> str:
        return "; ".join(str(part) for part in self._parts)
