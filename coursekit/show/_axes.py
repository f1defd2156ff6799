"""Message sizes as people say them, and one colour an algorithm in every figure."""

from __future__ import annotations

import math
from typing import Any

from coursekit.schedule import algorithms
from coursekit.show._template import PALETTE

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
# An octave a tick, or more of them; five and ten meet 1 KiB, 1 MiB and 1 GiB.
STEPS = (1, 2, 5, 10)


def size_label(nbytes: float) -> str:
    """Bytes in units of 1024, three digits: ``8 B``, ``1.5 KiB``, ``36.6 MiB``."""
    value, unit = float(nbytes), 0
    while value >= 1023.5 and unit < len(UNITS) - 1:
        value, unit = value / 1024, unit + 1
    number = f"{value:.0f}" if value >= 100 else f"{value:.3g}"
    return f"{number} {UNITS[unit]}"


def size_axis(least: float, most: float, at_most: int = 12) -> dict[str, Any]:
    """A logarithmic axis from `least` to `most` bytes, with ticks at powers of two."""
    low, high = math.log2(least), math.log2(most)
    for step in STEPS:
        powers = [p for p in range(math.ceil(low), math.floor(high) + 1) if p % step == 0]
        if len(powers) <= at_most:
            break
    room = max(0.03 * (high - low), 0.25)
    ends = [(end * math.log10(2)) for end in (low - room, high + room)]
    return {
        "type": "log",
        "range": [round(end, 4) for end in ends],
        "tickvals": [2**p for p in powers],
        "ticktext": [size_label(2**p) for p in powers],
    }


def colour(collective: str, algorithm: str) -> str:
    """The colour that an algorithm has in all figures."""
    known = ["library", *algorithms(collective)]
    return PALETTE[known.index(algorithm) % len(PALETTE)] if algorithm in known else PALETTE[-1]


def digits(value: float, count: int = 5) -> float:
    """Rounded to `count` digits: a stored figure needs no more."""
    return float(f"{value:.{count}g}")


def time_label(seconds: float) -> str:
    """A time in the unit that suits it: ``1.5 µs``, ``12 ms``, ``3.2 s``."""
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        # What rounds up to the unit has it already.
        if seconds >= unit * (1 - 5e-5):
            return f"{seconds / unit:.4g} {name}"
    return f"{seconds / 1e-9:.4g} ns"


def time_axis(least: float, most: float) -> dict[str, Any]:
    """A logarithmic axis of microseconds from `least` to `most`; ticks say their unit."""
    low, high = math.log10(least), math.log10(most)
    leading = (1, 2, 5) if high - low < 2.5 else (1,)
    ticks = [m * 10.0**p for p in range(math.floor(low), math.ceil(high) + 1) for m in leading]
    inside = [tick for tick in ticks if least <= tick <= most]
    return {
        "type": "log",
        "range": [round(low, 4), round(high, 4)],
        "tickvals": inside,
        "ticktext": [time_label(tick * 1e-6) for tick in inside],
    }
