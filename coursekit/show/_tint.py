"""Colours that let the page shine through, and scales of solid ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def tint(colour: str, opacity: float) -> str:
    """A colour such as ``#4484d6``, so much of it."""
    parts = ", ".join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5))
    return f"rgba({parts}, {opacity})"


def bands(shades: Sequence[str]) -> list[list[Any]]:
    """A plotly scale of solid colours, one a whole number from 0."""
    count = len(shades)
    return [[edge, s] for n, s in enumerate(shades) for edge in (n / count, (n + 1) / count)]
