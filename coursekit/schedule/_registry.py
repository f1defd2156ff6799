"""Every algorithm by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from coursekit.schedule import _binomial, _exchange, _halving, _pipeline, _ring, _two_level
from coursekit.schedule._collectives import COLLECTIVES, collective_name
from coursekit.schedule._errors import ScheduleError, near, whole
from coursekit.schedule._rows import Plan
from coursekit.schedule._schedule import Schedule

__all__ = ["algorithms", "build", "builder", "options"]

_BUILDERS: dict[str, dict[str, Callable[..., Plan]]] = {
    "all_reduce": {
        "ring": _ring.all_reduce,
        "tree": _binomial.all_reduce,
        "double_tree": _pipeline.all_reduce_double_tree,
        "recursive_doubling": _halving.all_reduce_doubling,
        "halving_doubling": _halving.all_reduce_halving,
        "chain": _pipeline.all_reduce_chain,
        "two_level": _two_level.all_reduce,
    },
    "all_gather": {
        "ring": _ring.all_gather,
        "recursive_doubling": _halving.all_gather_doubling,
        "bruck": _exchange.all_gather_bruck,
    },
    "reduce_scatter": {"ring": _ring.reduce_scatter, "halving": _halving.reduce_scatter_halving},
    "broadcast": {
        "binomial": _binomial.broadcast,
        "chain": _pipeline.broadcast,
        "scatter_allgather": _binomial.broadcast_scatter,
    },
    "reduce": {
        "binomial": _binomial.reduce,
        "chain": _pipeline.reduce,
        "reduce_scatter_gather": _binomial.reduce_gather,
    },
    "all_to_all": {
        "pairwise": _exchange.all_to_all_pairwise,
        "bruck": _exchange.all_to_all_bruck,
    },
    "scatter": {"linear": _binomial.scatter_linear, "binomial": _binomial.scatter},
    "gather": {"linear": _binomial.gather_linear, "binomial": _binomial.gather},
    "barrier": {"dissemination": _exchange.barrier},
}


def algorithms(collective: str | None = None) -> list[str]:
    """The algorithms that `build` knows for a collective; the collectives themselves for None.

    Raises:
        ScheduleError: there is no such collective.
    """
    if collective is None:
        return list(COLLECTIVES)
    return list(_BUILDERS.get(collective_name(collective), ()))


def builder(collective: str, algorithm: str) -> Callable[..., Plan]:
    """The function behind a name; its docstring says how it goes and from where it is."""
    collective = collective_name(collective)
    known = _BUILDERS.get(collective, {})
    if algorithm not in known:
        raise ScheduleError(
            f"an algorithm of {collective} must be known, got {algorithm!r}; "
            f"{near(str(algorithm), known)}"
        )
    return known[algorithm]


def options(collective: str, algorithm: str, size: int, **given: int | None) -> dict[str, int]:
    """All options of an algorithm: those given, checked, and the defaults of the others.

    `root` (broadcast, reduce, scatter, gather) is 0, `segments` (chain; double_tree: in each of its
    trees) 8, `groups` (two_level) the largest divisor of the size up to its square root. None
    stands for the default.

    Raises:
        ScheduleError: the size is less than one, or an option is unknown here or out of its range.
    """
    size = whole(size, "size")
    allowed = list(inspect.signature(builder(collective, algorithm)).parameters)[1:]
    for option in given:
        if option not in allowed:
            raise ScheduleError(
                f"an option of {collective_name(collective)} by {algorithm} must be known, got "
                f"{option!r}; {near(option, allowed)}"
            )
    defaults = {"root": 0, "segments": 8, "groups": _two_level.default_groups(size)}
    ranges: dict[str, tuple[int, int | None]] = {
        "root": (0, size - 1),
        "segments": (1, None),
        "groups": (1, size),
    }
    chosen = {name: given.get(name) for name in allowed}
    return {
        name: defaults[name] if value is None else whole(value, name, *ranges[name])
        for name, value in chosen.items()
    }


def build(collective: str, algorithm: str, size: int, **given: int | None) -> Schedule:
    """The schedule of a collective by an algorithm, for any size from 1 up.

    Args:
        collective: `all_reduce`, `AllReduce` and `allreduce` are the same.
        algorithm: one of `algorithms(collective)`.
        size: the number of ranks.
        given: `root`, `segments`, `groups` where the algorithm has them; see `options`.

    Raises:
        ScheduleError: a name, the size or an option is wrong; the message has what to try.
    """
    chosen = options(collective, algorithm, size, **given)
    plan = builder(collective, algorithm)(size, **chosen)
    return Schedule(
        collective, algorithm, size, plan.chunks, plan.rows, chosen.get("root"), plan.scratch
    )
