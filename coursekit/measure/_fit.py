"""Hockney's model fitted to a sweep: T(n) = alpha + beta n."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ._sweep import MeasureError, Row

Floats = npt.NDArray[np.float64]
_ROUNDS = 200


@dataclass(frozen=True)
class Fit:
    """Hockney's two parameters for one collective on one machine (Hockney 1994).

    Attributes
    ----------
    alpha_us : float
        Microseconds that a call costs before any byte.
    beta_ns : float
        Nanoseconds a byte.
    alpha_range, beta_range : tuple[float, float]
        The middle 90 % over resampled rows.
    error : float
        Median relative error of the fit on its own rows, 0.1 for 10 %.
    """

    alpha_us: float
    beta_ns: float
    alpha_range: tuple[float, float]
    beta_range: tuple[float, float]
    error: float

    @property
    def n_half(self) -> float:
        """Bytes at which half the time is alpha: alpha / beta."""
        return self.alpha_us * 1e3 / self.beta_ns if self.beta_ns else float("inf")

    def time_us(self, size: float) -> float:
        """Predicted microseconds for `size` bytes."""
        return self.alpha_us + self.beta_ns * size / 1e3


def fit(rows: Sequence[Row]) -> Fit:
    """Fit alpha and beta to measured rows, small and large sizes counting alike.

    Relative errors are minimised, each row weighted down by how far it lies off (iteratively
    reweighted least squares with Huber's weights), so that one disturbed size moves little.

    Raises
    ------
    MeasureError
        Fewer than three different sizes.
    """
    n = np.array([r.size for r in rows], dtype=float)
    t = np.array([r.time_us for r in rows], dtype=float)
    if len(set(n.tolist())) < 3:
        raise MeasureError(
            f"a fit needs at least three different sizes, got {len(set(n.tolist()))}; "
            "sweep over more, such as measure.sizes(8, 1 << 24)"
        )
    alpha, beta = _solve(n, t)
    draw = np.random.default_rng(0)
    again: list[tuple[float, float]] = []
    while len(again) < _ROUNDS:
        pick = draw.integers(0, len(n), len(n))
        if len(set(n[pick].tolist())) > 1:
            again.append(_solve(n[pick], t[pick]))
    low, high = np.percentile(np.array(again), [5, 95], axis=0)
    error = float(np.median(np.abs(alpha + beta * n - t) / t))
    return Fit(
        alpha,
        beta * 1e3,
        (float(low[0]), float(high[0])),
        (float(low[1]) * 1e3, float(high[1]) * 1e3),
        error,
    )


def _solve(n: Floats, t: Floats) -> tuple[float, float]:
    weights = np.ones_like(t)
    alpha, beta = 0.0, 0.0
    for _ in range(20):
        scale = np.sqrt(weights) / t
        a = np.stack([np.ones_like(n), n], axis=1) * scale[:, None]
        (alpha, beta), *_ = np.linalg.lstsq(a, t * scale, rcond=None)
        off = np.abs(alpha + beta * n - t) / t
        width = max(1.345 * float(np.median(off)), 1e-9)
        weights = np.minimum(1.0, width / np.maximum(off, 1e-12))
    return max(float(alpha), 0.0), max(float(beta), 0.0)
