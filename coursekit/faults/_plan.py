"""What each pair of ranks is joined by: checked, before anything is built."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ._errors import FaultsError
from ._rate import parse_rate, rate_text

MOST_RANKS = 64
Pair = tuple[int, int]


@dataclass
class Plan:
    """The links of a cluster, by pair (the lower rank first); they are the same both ways."""

    size: int
    rate: int
    rates: dict[Pair, int] = field(default_factory=dict)
    blocked: set[Pair] = field(default_factory=set)
    delays: dict[Pair, float] = field(default_factory=dict)
    losses: dict[Pair, float] = field(default_factory=dict)

    def bits(self, a: int, b: int) -> int:
        """Bits per second between two ranks."""
        return self.rates.get(ordered(a, b), self.rate)

    @property
    def needs_packets(self) -> bool:
        """Whether a link delays or loses packets."""
        return bool(self.delays or self.losses)

    def __str__(self) -> str:
        told = [f"{rate_text(self.rate)} between any two"]
        told += [f"{a}-{b} {rate_text(r)}" for (a, b), r in sorted(self.rates.items())]
        told += [f"{a}-{b} {s * 1e3:g} ms late" for (a, b), s in sorted(self.delays.items())]
        told += [f"{a}-{b} loses {p * 100:g} %" for (a, b), p in sorted(self.losses.items())]
        told += [f"{a}-{b} passes nothing" for a, b in sorted(self.blocked)]
        return ", ".join(told)


def make_plan(
    size: int,
    rate: str,
    slow: Mapping[Pair, str] | None,
    blocked: Iterable[Pair],
    late: Mapping[Pair, float] | None,
    lossy: Mapping[Pair, float] | None,
) -> Plan:
    """Check what was asked; FaultsError says what is wrong."""
    if isinstance(size, bool) or not isinstance(size, int) or not 2 <= size <= MOST_RANKS:
        raise FaultsError(
            f"a cluster must have from 2 to {MOST_RANKS} ranks, got {size!r}; try cluster(4)"
        )
    return Plan(
        size,
        parse_rate(rate),
        {check_pair(p, size): parse_rate(r) for p, r in (slow or {}).items()},
        {check_pair(p, size) for p in blocked},
        {check_pair(p, size): _within(s, 10, "late", "seconds") for p, s in (late or {}).items()},
        {check_pair(p, size): _within(x, 1, "lossy", "a share") for p, x in (lossy or {}).items()},
    )


def ordered(a: int, b: int) -> Pair:
    """The pair with its lower rank first."""
    return (a, b) if a < b else (b, a)


def check_pair(pair: Pair, size: int) -> Pair:
    """Return the pair in order if it names two different ranks."""
    whole = isinstance(pair, tuple) and len(pair) == 2 and all(type(r) is int for r in pair)
    if not whole or pair[0] == pair[1] or not all(0 <= r < size for r in pair):
        raise FaultsError(
            f"a link must be two different ranks from 0 to {size - 1}, got {pair!r}; try (0, 1)"
        )
    return ordered(*pair)


def _within(value: float, most: float, name: str, unit: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
        raise FaultsError(f"{name} must be {unit} above 0 and at most {most:g}, got {value!r}")
    return float(value)
