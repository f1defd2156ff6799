"""What a cost consists of."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from fractions import Fraction

__all__ = ["Cost", "CostError", "Form", "seconds"]


class CostError(ValueError):
    """A number from which a cost is to be computed breaks a rule; the message says which."""


@dataclass(frozen=True)
class Cost:
    """What a collective costs.

    Attributes:
        collective, algorithm, size: which collective, of how many ranks.
        nbytes: the size of the whole buffer in bytes.
        steps: in how many steps messages go.
        messages: how many messages the rank sends that sends most.
        messages_total: how many all ranks send.
        sent, received: bytes of the rank that sends, or receives, most.
        sent_total: bytes that all ranks send.
        alphas, betas, gammas: messages, bytes and added bytes on the way that decides, see the
            package.
    """

    collective: str
    algorithm: str
    size: int
    nbytes: int
    steps: int
    messages: int
    messages_total: int
    sent: int
    received: int
    sent_total: int
    alphas: int
    betas: int
    gammas: int

    def time(self, alpha: float, beta: float, gamma: float = 0.0) -> float:
        """Seconds, with alpha in seconds, beta and gamma in seconds a byte.

        Raises:
            CostError: one of them is negative or not a number.
        """
        return (
            self.alphas * seconds(alpha, "alpha")
            + self.betas * seconds(beta, "beta")
            + self.gammas * seconds(gamma, "gamma")
        )

    def __str__(self) -> str:
        return (
            f"{self.collective} by {self.algorithm}, {self.size} ranks, {self.nbytes} B: "
            f"T = {self.alphas} alpha + {self.betas} B beta + {self.gammas} B gamma; "
            f"{self.steps} steps; a rank sends up to {self.messages} messages, {self.sent} B"
        )


@dataclass(frozen=True)
class Form:
    """A closed form in chunks: the fields of `Cost`, with a buffer of `chunks` chunks."""

    chunks: int
    steps: int = 0
    messages: int = 0
    messages_total: int = 0
    sent: int = 0
    received: int = 0
    sent_total: int = 0
    alphas: int = 0
    betas: int = 0
    gammas: int = 0

    def cost(self, collective: str, algorithm: str, size: int, nbytes: int) -> Cost:
        """The same in bytes, rounded up where the chunks do not divide them."""
        numbers = {field.name: getattr(self, field.name) for field in fields(self)[1:]}
        for name in ("sent", "received", "sent_total", "betas", "gammas"):
            numbers[name] = -(-numbers[name] * nbytes // self.chunks)
        return Cost(collective, algorithm, size, nbytes, **numbers)

    def fixed(self, alpha: float) -> float:
        """Seconds that do not depend on the bytes."""
        return self.alphas * alpha

    def slope(self, beta: float, gamma: float = 0.0) -> float:
        """Seconds a byte of the buffer."""
        return float(Fraction(self.betas, self.chunks)) * beta + self.gammas / self.chunks * gamma


def seconds(value: float, name: str) -> float:
    """A time as it must be, or an error that names it."""
    if not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        unit = "seconds" if name == "alpha" else "seconds a byte"
        raise CostError(f"{name} must be {unit}, a number from 0 up, got {value!r}; try 1e-6")
    return float(value)
