"""Which lines `curves` draws: one an algorithm of a sweep, with the fit that belongs to it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coursekit.cost import busbw_factor, closed_form
from coursekit.i18n import text
from coursekit.measure import Fit, Row, Sweep

MESSAGE = "message"
# Predictions are linear in the bytes; so many that rounding them to whole ones is nothing.
LARGE = 1 << 40

Fits = Fit | Mapping[str, Fit]


@dataclass(frozen=True)
class Line:
    """One algorithm of one sweep; `own` is its fit, `message` that of one message it sends.

    A rank alone sends none, so `message` is None there.
    """

    sweep: Sweep
    number: int
    algorithm: str
    label: str
    own: Fit | None
    message: Fit | None

    @property
    def rows(self) -> list[Row]:
        return sorted(self.sweep.of(self.algorithm), key=lambda row: row.size)

    @property
    def predicted(self) -> bool:
        return self.own is not None or self.message is not None

    def time_us(self, nbytes: int) -> float:
        """Predicted microseconds; NaN without a fit."""
        if self.own is not None:
            return self.own.time_us(nbytes)
        if self.message is None:
            return math.nan
        kind, ranks = self.sweep.collective, self.sweep.ranks
        if self.message.algorithm:
            return self.message.predict(kind, self.algorithm, nbytes, ranks)
        cost = closed_form(kind, self.algorithm, ranks, nbytes)
        return cost.time(self.message.alpha_us * 1e-6, self.message.beta_ns * 1e-9) * 1e6

    @property
    def n_half(self) -> float | None:
        """Bytes at which half of the predicted time is latency; None where there are none."""
        latency, whole = self.time_us(0), self.time_us(LARGE)
        return LARGE * latency / (whole - latency) if whole > latency else None

    def converted(self, measure: str, nbytes: int, time_us: float) -> float:
        """A time as itself, in microseconds, or as algbw or busbw in GB/s."""
        if measure == "time":
            return time_us
        factor = busbw_factor(self.sweep.collective, self.sweep.ranks)
        return nbytes / time_us / 1e3 * (factor if measure == "busbw" else 1.0)

    def grid(self) -> list[int]:
        """The measured sizes and sizes between them, at least two an octave."""
        sizes = sorted({row.size for row in self.rows})
        out = set(sizes)
        for low, high in itertools.pairwise(sizes):
            steps = math.ceil(2 * math.log2(high / low))
            out |= {round(low * (high / low) ** (i / steps)) for i in range(1, steps)}
        return sorted(out)


def lines(sweeps: Sequence[Sweep], fit: Fits | Sequence[Fits | None] | None) -> list[Line]:
    """The lines in the order of the sweeps and of their algorithms; ValueError as in `curves`."""
    for sweep in sweeps:
        _check(sweep)
    if not sweeps:
        raise ValueError(
            "curves need at least one sweep, got none; try curves(measure.sweep(ranks))"
        )
    fits = _fits(sweeps, fit)
    return [
        Line(
            sweep,
            number,
            name,
            f"{name}{end}",
            known.get(name),
            None if name == "library" or sweep.ranks == 1 else known.get(MESSAGE),
        )
        for number, (sweep, end, known) in enumerate(zip(sweeps, _ends(sweeps), fits, strict=True))
        for name in _algorithms(sweep)
    ]


def parts(sweep: Sweep) -> tuple[str, str, str]:
    """What tells sweeps apart, in words."""
    return sweep.collective, text("curves.ranks", count=sweep.ranks), sweep.backend


def _algorithms(sweep: Sweep) -> list[str]:
    return list(dict.fromkeys(row.algorithm for row in sweep.rows))


def _check(sweep: Any) -> None:
    if isinstance(sweep, Fit):
        raise ValueError("a fit goes in by name, got it in the place of a sweep; try fit=...")
    if not isinstance(sweep, Sweep):
        raise ValueError(
            f"curves draw sweeps, got {type(sweep).__name__}; try curves(measure.sweep(ranks))"
        )
    if not sweep.rows:
        raise ValueError("a sweep must have rows to be drawn, got none; measure some sizes")


def _fits(
    sweeps: Sequence[Sweep], fit: Fits | Sequence[Fits | None] | None
) -> list[Mapping[str, Fit]]:
    each = list(fit) if isinstance(fit, list | tuple) else [fit] * len(sweeps)
    if len(each) != len(sweeps):
        raise ValueError(
            f"a sequence of fits needs one for each sweep, got {len(each)} for {len(sweeps)}; "
            "put None where there is none"
        )
    return [_by_algorithm(sweep, one) for sweep, one in zip(sweeps, each, strict=True)]


def _by_algorithm(sweep: Sweep, fit: Any) -> Mapping[str, Fit]:
    if fit is None:
        return {}
    if isinstance(fit, Fit):
        # A fit of bare rows may be of either; one that knows its algorithm says so.
        keys = {"": ("library", MESSAGE), "library": ("library",)}
        return dict.fromkeys(keys.get(fit.algorithm, (MESSAGE,)), fit)
    known = [*_algorithms(sweep), MESSAGE]
    for name, one in fit.items() if isinstance(fit, Mapping) else [(MESSAGE, fit)]:
        if not isinstance(one, Fit):
            raise ValueError(
                f"a fit must come from measure.fit, got {type(one).__name__}; "
                "try fit=measure.fit(sweep.of('library'))"
            )
        if name not in known:
            raise ValueError(
                f"a fit must belong to one of {', '.join(known)}, got {name!r}; "
                "name an algorithm of the sweep"
            )
        if name == MESSAGE and one.algorithm == "library":
            raise ValueError(
                "the fit of a message must know a schedule, got the library's; "
                "try measure.fit(sweep, 'library', like='ring')"
            )
    return dict(fit)


def _ends(sweeps: Sequence[Sweep]) -> list[str]:
    """What each sweep's names end in: its backend, and whatever else is not the same for all."""
    if len(sweeps) == 1:
        return [""]
    words = [parts(sweep) for sweep in sweeps]
    differ = [len(set(column)) > 1 for column in zip(*words, strict=True)]
    differ[-1] = True
    ends = [
        "".join(f" \N{MIDDLE DOT} {w}" for w, d in zip(row[::-1], differ[::-1], strict=True) if d)
        for row in words
    ]
    if len(set(ends)) < len(ends):
        return [f"{end} #{number + 1}" for number, end in enumerate(ends)]
    return ends
