"""Rates as people write them: "100 Mbit/s", "1.5 GB/s"."""

from __future__ import annotations

import re

from ._errors import FaultsError

_PREFIX = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "ki": 2**10, "mi": 2**20, "gi": 2**30}
_RATE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmg]i?|)(bit|bits|b|byte|bytes)(?:/s|ps)\s*", re.I)
LEAST, MOST = 8_000, 400_000_000_000


def parse_rate(text: str) -> int:
    """Bits per second of a rate such as ``"100 Mbit/s"`` or ``"1.5 GB/s"``.

    A small b and "bit" are bits, a capital B and "byte" are bytes; k, M and G are powers of
    1000, Ki, Mi and Gi of 1024.

    Raises
    ------
    FaultsError
        It is no such text, or not between 8 kbit/s and 400 Gbit/s.

    Examples
    --------
    >>> parse_rate("1.5 GB/s")
    12000000000
    """
    found = _RATE.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise FaultsError(
            f"a rate must be a number and a unit per second, got {text!r}; "
            'try "100 Mbit/s" or "1.5 GB/s"'
        )
    number, prefix, unit = found.groups()
    each = 8 if unit.lower().startswith("byte") or unit == "B" else 1
    bits = round(float(number) * _PREFIX[prefix.lower()] * each)
    if not LEAST <= bits <= MOST:
        raise FaultsError(
            f"a rate must lie between 8 kbit/s and 400 Gbit/s, got {text!r}; "
            'try "20 Mbit/s" for a slow link'
        )
    return bits


def rate_text(bits: float) -> str:
    """A rate in words: ``20 Mbit/s``."""
    for size, name in ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")):
        if bits >= size:
            return f"{bits / size:g} {name}"
    return f"{bits:g} bit/s"
