"""Closed forms by name, and what follows from them."""

from __future__ import annotations

from collections.abc import Callable

from coursekit.cost import _all_reduce, _moves
from coursekit.cost._model import Cost, CostError, Form, seconds
from coursekit.schedule import builder, collective_name, options

__all__ = ["best_segments", "closed_form", "crossover", "formula", "n_half"]

_FORMS: dict[str, dict[str, Callable[..., Form]]] = {
    "all_reduce": {
        "ring": _all_reduce.ring,
        "tree": _all_reduce.tree,
        "double_tree": _all_reduce.double_tree,
        "recursive_doubling": _all_reduce.recursive_doubling,
        "halving_doubling": _all_reduce.halving_doubling,
        "chain": _all_reduce.chain,
        "two_level": _all_reduce.two_level,
    },
    "all_gather": {
        "ring": _moves.ring_all_gather,
        "recursive_doubling": _moves.doubling_all_gather,
        "bruck": _moves.bruck_all_gather,
    },
    "reduce_scatter": {
        "ring": _moves.ring_reduce_scatter,
        "halving": _moves.halving_reduce_scatter,
    },
    "broadcast": {
        "binomial": _moves.binomial_broadcast,
        "chain": _moves.chain_broadcast,
        "scatter_allgather": _moves.scatter_allgather,
    },
    "reduce": {
        "binomial": _moves.binomial_reduce,
        "chain": _moves.chain_reduce,
        "reduce_scatter_gather": _moves.reduce_scatter_gather,
    },
    "all_to_all": {"pairwise": _moves.pairwise, "bruck": _moves.bruck_all_to_all},
    "scatter": {"linear": _moves.linear_scatter, "binomial": _moves.binomial_scatter},
    "gather": {"linear": _moves.linear_gather, "binomial": _moves.binomial_gather},
    "barrier": {"dissemination": _moves.dissemination},
}


def _function(collective: str, algorithm: str) -> Callable[..., Form]:
    builder(collective, algorithm)  # it knows all names, and what to say about others
    return _FORMS[collective_name(collective)][algorithm]


def _form(collective: str, algorithm: str, size: int, **given: int | None) -> Form:
    chosen = options(collective, algorithm, size, **given)
    return _function(collective, algorithm)(size, **chosen)


def formula(collective: str, algorithm: str) -> str:
    """T as text, with its source."""
    return (_function(collective, algorithm).__doc__ or "").strip()


def closed_form(
    collective: str, algorithm: str, size: int, nbytes: int, **given: int | None
) -> Cost:
    """What a collective costs by formula, without its schedule: for any size, at once.

    Args:
        collective, algorithm: as in `coursekit.schedule.build`.
        size: the number of ranks.
        nbytes: bytes of the whole buffer. Where the chunks do not divide it, bytes are those of
            chunks of the mean length, rounded up; `price` has the exact ones.
        given: `root`, `segments`, `groups`, as `build` takes them.

    Raises:
        CostError: `nbytes` is no whole number from 0 up.
        ScheduleError: a name, the size or an option is wrong.
    """
    if isinstance(nbytes, bool) or not isinstance(nbytes, int) or nbytes < 0:
        raise CostError(f"nbytes must be a whole number from 0 up, got {nbytes!r}; try 1 << 20")
    form = _form(collective, algorithm, size, **given)
    collective = collective_name(collective)
    return form.cost(collective, algorithm, size, 0 if collective == "barrier" else nbytes)


def n_half(
    alpha: float,
    beta: float,
    collective: str | None = None,
    algorithm: str = "ring",
    size: int = 2,
    **given: int | None,
) -> float:
    """Bytes at which half of the time is latency: alpha / beta for one message; Hockney 1994.

    At n_half bytes half of the highest bandwidth is reached. With a collective, that of its
    algorithm: bytes of the whole buffer at which alphas * alpha = betas * beta.

    Raises:
        CostError: `alpha` is negative, or `beta` is not above 0.
    """
    if seconds(beta, "beta") == 0:
        raise CostError("beta must be above 0, got 0; try the seconds a byte that a link takes")
    if collective is None:
        return seconds(alpha, "alpha") / beta
    form = _form(collective, algorithm, size, **given)
    if not form.betas or collective_name(collective) == "barrier":
        raise CostError(f"{collective} on {size} ranks must move bytes to have an n_half; try 2")
    return form.fixed(seconds(alpha, "alpha")) / form.slope(beta)


def crossover(
    alg_a: str,
    alg_b: str,
    size: int,
    alpha: float,
    beta: float,
    gamma: float = 0.0,
    collective: str = "all_reduce",
    **given: int | None,
) -> float | None:
    """Bytes of the whole buffer at which two algorithms take the same time.

    Below it the one with fewer alphas is faster, above it the other one. None: one of them is never
    slower. An option goes to the algorithms that have it.
    """
    alpha, beta = seconds(alpha, "alpha"), seconds(beta, "beta")
    gamma = seconds(gamma, "gamma")
    unused, forms = set(given), []
    for algorithm in (alg_a, alg_b):
        own = given.keys() & options(collective, algorithm, size)
        unused -= own
        forms.append(_form(collective, algorithm, size, **{name: given[name] for name in own}))
    for name in unused:
        raise CostError(f"an option must belong to {alg_a} or {alg_b}, got {name!r}; leave it out")
    fewer = forms[0].fixed(alpha) - forms[1].fixed(alpha)
    flatter = forms[1].slope(beta, gamma) - forms[0].slope(beta, gamma)
    return fewer / flatter if fewer * flatter > 0 else None


def best_segments(
    collective: str,
    algorithm: str,
    size: int,
    nbytes: int,
    alpha: float,
    beta: float,
    gamma: float = 0.0,
) -> int:
    """How many segments make a pipeline fastest, of numbers about a tenth apart.

    Few segments leave ranks idle, many cost an alpha each; about sqrt(n N beta / alpha).

    Raises:
        ScheduleError: the algorithm has no segments.
    """
    options(collective, algorithm, size, segments=1)
    limit, tried = max(1, nbytes), [1]
    while tried[-1] < min(limit, 1 << 20):
        tried.append(max(tried[-1] + 1, tried[-1] * 11 // 10))

    def time(segments: int) -> float:
        form = _form(collective, algorithm, size, segments=segments)
        return form.fixed(seconds(alpha, "alpha")) + nbytes * form.slope(
            seconds(beta, "beta"), seconds(gamma, "gamma")
        )

    return min((segments for segments in tried if segments <= limit), key=time)
