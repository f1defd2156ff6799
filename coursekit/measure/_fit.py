"""Hockney's model fitted to a sweep: T(n) = alpha + beta n."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ._crowd import Load, load
from ._errors import MeasureError
from ._table import Row, Sweep

Floats = npt.NDArray[np.float64]
_ROUNDS = 400
_TUKEY = 4.685
_LEAST_SPREAD = 0.01


@dataclass(frozen=True, repr=False)
class Fit:
    """Hockney's two parameters for one collective on one machine (Hockney 1994).

    Attributes
    ----------
    alpha_us : float
        Microseconds that a call costs before any byte.
    beta_ns : float
        Nanoseconds a byte of the whole buffer.
    alpha_range, beta_range : tuple[float, float]
        90 % confidence: the middle of what resampled rows give.
    error : float
        Median relative error of the fit on its own rows, 0.1 for 10 %.
    collective, algorithm, ranks : str, str, int
        What was fitted, and as which schedule it is read; empty and 0 where that is not known.
    cores : int or None
        Cores that the ranks share, for the serialisation factor; None leaves the factor out.
    factor : float
        How many times longer the cores make the most crowded step: max(1, 2n / cores) for n
        messages, one a rank; 1 where there are cores enough, or none are given.
    """

    alpha_us: float
    beta_ns: float
    alpha_range: tuple[float, float]
    beta_range: tuple[float, float]
    error: float
    collective: str = ""
    algorithm: str = ""
    ranks: int = 0
    cores: int | None = None
    factor: float = 1.0

    def __repr__(self) -> str:
        name = f"{self.collective} {self.algorithm}, {self.ranks} ranks" if self.ranks else "fit"
        low, high = self.alpha_range
        slow, fast = (1 / b if b > 0 else float("inf") for b in reversed(self.beta_range))
        width = 1 / self.beta_ns if self.beta_ns > 0 else float("inf")
        lines = [
            f"{name}: T = alpha + n beta",
            f"alpha {self.alpha_us:.4g} us ({low:.4g} to {high:.4g})",
            f"bandwidth 1/beta {width:.4g} GB/s ({slow:.4g} to {fast:.4g})",
            f"n_half {self.n_half:.4g} B, median error {self.error:.0%}",
        ]
        if self.factor > 1:
            lines.append(f"{self.cores} cores: the most crowded step takes {self.factor:.3g} times")
        return "\n  ".join(lines)

    @property
    def n_half(self) -> float:
        """Bytes at which half the time is alpha: alpha / beta."""
        return self.alpha_us * 1e3 / self.beta_ns if self.beta_ns else float("inf")

    def time_us(self, size: float) -> float:
        """Predicted microseconds of one call for `size` bytes."""
        return self.alpha_us + self.beta_ns * size / 1e3

    @property
    def message(self) -> tuple[float, float]:
        """Microseconds a message and nanoseconds a byte, of one message that runs alone.

        The call's two parameters, divided by the messages and bytes on the way that decides.
        Raises MeasureError where it is not known which schedule the rows are of.
        """
        own = self._load(self.collective, self.algorithm, self.ranks)
        if not own.alphas or not own.betas:
            raise MeasureError("a message's cost needs a collective of at least two ranks")
        return self.alpha_us / own.alphas, self.beta_ns / own.betas

    def predict(
        self, collective: str, algorithm: str, size: float, ranks: int | None = None
    ) -> float:
        """Microseconds of any collective by any algorithm of the course on this machine.

        Parameters
        ----------
        size : float
            Bytes of the whole buffer.
        ranks : int, optional
            Another number of ranks; those of the fit by default.

        Raises
        ------
        MeasureError
            The fit does not know which schedule its rows are of.
        ScheduleError
            An unknown collective or algorithm.
        """
        alpha, beta = self.message
        other = self._load(collective, algorithm, ranks or self.ranks)
        return other.alphas * alpha + other.betas * beta * size / 1e3

    def _load(self, collective: str, algorithm: str, ranks: int) -> Load:
        if not self.algorithm or self.algorithm == "library":
            raise MeasureError(
                "a prediction for other algorithms needs a fit that knows its schedule, got "
                f"{self.algorithm or 'rows alone'}; try fit(sweep, 'ring'), or read the library's "
                "rows as a schedule: fit(sweep, 'library', like='ring')"
            )
        return load(collective, algorithm, ranks, self.cores)


def fit(
    rows: Sweep | Sequence[Row],
    algorithm: str | None = None,
    *,
    like: str | None = None,
    cores: int | None = None,
    crowded: bool = True,
) -> Fit:
    """Fit alpha and beta to measured rows, small and large sizes counting alike.

    Relative errors are minimised; rows far off the others count less or, very far off, not at all
    (iteratively reweighted least squares with Tukey's biweight, from a start that outliers do not
    move).

    Parameters
    ----------
    rows : Sweep or sequence of Row
        A sweep, so that other algorithms can be predicted, or its rows alone.
    algorithm : str, optional
        Whose rows of the sweep; needed where it has several algorithms.
    like : str, optional
        Which schedule the rows are read as; the algorithm's own by default.
    cores : int, optional
        How many cores the ranks share; the sweep knows it by default.
    crowded : bool
        Whether predictions know of the cores: n messages of one step, on C cores, take at least
        as long as 2n / C one after the other, since either end of a message needs a core. It
        matters where ranks outnumber cores. False gives plain Hockney. Neither changes alpha and
        beta of the call, only how they are shared among its messages.

    Raises
    ------
    MeasureError
        Fewer than three different sizes, or an algorithm must be chosen.
    """
    chosen, about = _chosen(rows, algorithm)
    n = np.array([r.size for r in chosen], dtype=float)
    t = np.array([r.time_us for r in chosen], dtype=float)
    if len(set(n.tolist())) < 3:
        raise MeasureError(
            f"a fit needs at least three different sizes, got {len(set(n.tolist()))}; "
            "sweep over more, such as measure.sizes(8, 1 << 24)"
        )
    alpha, beta = _solve(n, t, _start(n, t))
    (low_a, low_b), (high_a, high_b) = _ranges(n, t, (alpha, beta))
    error = float(np.median(np.abs(alpha + beta * n - t) / t))
    ranges = ((low_a, high_a), (low_b * 1e3, high_b * 1e3))
    plain = Fit(alpha, beta * 1e3, *ranges, error)
    return plain if about is None else _knowing(plain, about, chosen, like, cores, crowded)


def _chosen(
    rows: Sweep | Sequence[Row], algorithm: str | None
) -> tuple[Sequence[Row], Sweep | None]:
    about = rows if isinstance(rows, Sweep) else None
    all_rows = rows.rows if isinstance(rows, Sweep) else rows
    names = list(dict.fromkeys(r.algorithm for r in all_rows))
    if algorithm is None and about is not None and len(names) > 1:
        raise MeasureError(
            f"a fit is of one algorithm, got {', '.join(names)}; try fit(sweep, {names[0]!r})"
        )
    if algorithm is not None and algorithm not in names:
        raise MeasureError(
            f"algorithm must be one that was measured ({', '.join(names)}), got {algorithm!r}"
        )
    return [r for r in all_rows if algorithm in (None, r.algorithm)], about


def _knowing(
    plain: Fit,
    about: Sweep,
    rows: Sequence[Row],
    like: str | None,
    cores: int | None,
    crowded: bool,
) -> Fit:
    name = like or rows[0].algorithm
    shared = (cores or about.cores or None) if crowded else None
    factor = 1.0
    if name != "library":
        factor = load(about.collective, name, about.ranks, shared).factor
    return Fit(
        plain.alpha_us,
        plain.beta_ns,
        plain.alpha_range,
        plain.beta_range,
        plain.error,
        about.collective,
        name,
        about.ranks,
        shared,
        factor,
    )


def _ranges(n: Floats, t: Floats, found: tuple[float, float]) -> tuple[list[float], list[float]]:
    """The 5th and the 95th percentile of alpha and beta over resampled rows."""
    draw = np.random.default_rng(0)
    again: list[tuple[float, float]] = []
    while len(again) < _ROUNDS:
        pick = draw.integers(0, len(n), len(n))
        if len(set(n[pick].tolist())) > 2:
            again.append(_solve(n[pick], t[pick], found))
    low, high = np.percentile(np.array(again), [5, 95], axis=0)
    return low.tolist(), high.tolist()


def _solve(n: Floats, t: Floats, start: tuple[float, float]) -> tuple[float, float]:
    alpha, beta = start
    for _ in range(20):
        model = np.maximum(alpha + beta * n, 1e-12)
        # Against the model, not the row: a row ten times too high is then nine times off, not 0.9.
        off = (t - model) / model
        spread = max(1.4826 * float(np.median(np.abs(off))), _LEAST_SPREAD)
        weights = (np.clip(1 - (off / (_TUKEY * spread)) ** 2, 0, None) / model) ** 2
        total, sum_n, sum_t = weights.sum(), weights @ n, weights @ t
        below = total * (weights @ n**2) - sum_n**2
        if below <= 0:
            break
        before = alpha, beta
        beta = max(float((total * (weights @ (n * t)) - sum_n * sum_t) / below), 0.0)
        alpha = max(float((sum_t - beta * sum_n) / total), 0.0)
        if abs(alpha - before[0]) <= 1e-4 * alpha and abs(beta - before[1]) <= 1e-4 * beta:
            break
    return alpha, beta


def _start(n: Floats, t: Floats) -> tuple[float, float]:
    """A start that outliers do not move: of all lines through two rows, the one that misses least.

    Least: the sum of absolute logarithms of the ratios between rows and line.
    """
    i, j = np.triu_indices(len(n), 1)
    apart = n[i] != n[j]
    i, j = i[apart], j[apart]
    beta = np.maximum((t[j] - t[i]) / (n[j] - n[i]), 0.0)
    alpha = np.maximum(t[i] - beta * n[i], 0.0)
    lines = np.maximum(alpha[:, None] + beta[:, None] * n, 1e-12)
    best = int(np.abs(np.log(t / lines)).sum(axis=1).argmin())
    return float(alpha[best]), float(beta[best])
