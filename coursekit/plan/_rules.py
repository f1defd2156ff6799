"""What every plan checks before it counts."""

from __future__ import annotations

import math


class PlanError(ValueError):
    """A plan that cannot be: the message states the rule, what was got, and the next step."""


def positive(name: str, value: float) -> None:
    """A size counts something: a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise PlanError(f"{name} must be a whole number from 1 up, got {value!r}; try {name}=1")


def above_zero(name: str, value: float, example: float) -> None:
    """An amount is finite and above 0."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    if not good or not math.isfinite(value):
        raise PlanError(f"{name} must be a number above 0, got {value!r}; try {name}={example:g}")


def divides(name: str, part: int, whole_name: str, whole: int) -> None:
    """`part` cuts `whole` into equal pieces."""
    if whole % part:
        near = max(d for d in range(1, part) if whole % d == 0)
        raise PlanError(
            f"{name} must divide the model's {whole} {whole_name}, got {name}={part}; "
            f"try {name}={near}"
        )
