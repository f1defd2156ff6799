"""Orders of GPUs: the ring or chain whose slowest neighbours are the fastest, and trees."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from coursekit.topology._errors import TopologyError
from coursekit.topology.machine import Topology

# All orders of 20 GPUs are counted in a table of 2**20 sets; beyond that a search by thresholds.
MOST_COUNTED = 20


@dataclass(frozen=True)
class Order:
    """GPUs in a row, or in a ring.

    Parameters
    ----------
    ranks : tuple of int
        In order; in a ring the last is joined to the first.
    closed : bool
        Whether it is a ring.
    bottleneck : float
        Bytes/s of its slowest pair of neighbours.
    slowest : tuple of (int, int)
        The pairs that are as slow as that.
    """

    ranks: tuple[int, ...]
    closed: bool
    bottleneck: float
    slowest: tuple[tuple[int, int], ...]

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Neighbours, in order."""
        return tuple(_pairs(self.ranks, self.closed))


def order(topology: Topology, ranks: Sequence[int], *, closed: bool = True) -> Order:
    """What a given order of ranks gives.

    Raises
    ------
    TopologyError
        It does not name every rank once.
    """
    if sorted(ranks) != list(range(topology.size)):
        raise TopologyError(
            f"an order must name each of {topology.size} ranks once, got {list(ranks)}; "
            f"try {list(range(topology.size))}"
        )
    if topology.size == 1:
        return Order(tuple(ranks), closed, float("inf"), ())
    speed = {pair: _both(topology, *pair) for pair in _pairs(tuple(ranks), closed)}
    low = min(speed.values())
    return Order(tuple(ranks), closed, low, tuple(p for p, s in speed.items() if s == low))


def best_ring(topology: Topology) -> Order:
    """The ring with the fastest slowest pair; of equals the first in the order of ranks.

    Raises
    ------
    TopologyError
        Two ranks are not joined at all.
    """
    return _best(topology, closed=True)


def best_chain(topology: Topology) -> Order:
    """The same for a chain, which needs one pair fewer."""
    return _best(topology, closed=False)


def count_rings(size: int, allowed: Callable[[int, int], bool]) -> int:
    """How many rings through all ranks use allowed pairs only; a ring and its mirror are one.

    Counted over sets of ranks (Held and Karp 1962, https://doi.org/10.1137/0110015), not one by
    one: 2**size * size**2 steps.

    Examples
    --------
    >>> count_rings(8, lambda a, b: {a, b} != {0, 7})
    1800

    Raises
    ------
    TopologyError
        More than 20 ranks.
    """
    if size > MOST_COUNTED:
        raise TopologyError(
            f"rings are counted for at most {MOST_COUNTED} ranks, got {size}; best_ring takes more"
        )
    if size < 3:
        return 0
    rest = size - 1
    ways = np.zeros((1 << rest, rest), dtype=np.int64)
    joined = np.array([[a != b and allowed(a, b) for b in range(size)] for a in range(size)])
    for k in range(rest):
        ways[1 << k, k] = joined[0, k + 1]
    inner = joined[1:, 1:].astype(np.int64)
    for have in range(1, 1 << rest):
        if not ways[have].any():
            continue
        onward = ways[have] @ inner
        for k in range(rest):
            if not have >> k & 1 and onward[k]:
                ways[have | 1 << k, k] += onward[k]
    return int(ways[-1] @ joined[1:, 0].astype(np.int64)) // 2


def spanning_tree(topology: Topology, root: int = 0) -> tuple[tuple[int, int], ...]:
    """The tree whose slowest pair is the fastest, as (parent, child) from the root down.

    Raises
    ------
    TopologyError
        The root is no rank.
    """
    if not 0 <= root < topology.size:
        raise TopologyError(f"root must be a rank from 0 to {topology.size - 1}, got {root}")
    inside, pairs = {root}, []
    while len(inside) < topology.size:
        outside = [r for r in range(topology.size) if r not in inside]
        edges = [(a, b) for a in sorted(inside) for b in outside]
        parent, child = max(edges, key=lambda e: (_both(topology, *e), -e[0], -e[1]))
        pairs.append((parent, child))
        inside.add(child)
    return tuple(pairs)


def _both(topology: Topology, a: int, b: int) -> float:
    return min(topology.between(a, b), topology.between(b, a))


def _pairs(ranks: Sequence[int], closed: bool) -> Iterable[tuple[int, int]]:
    following = [*ranks[1:], ranks[0]] if closed else ranks[1:]
    return zip(ranks, following, strict=False)


def _best(topology: Topology, *, closed: bool) -> Order:
    n = topology.size
    if n < 3:
        return order(topology, range(n), closed=closed and n > 1)
    speed = np.array(
        [[0.0 if a == b else _both(topology, a, b) for b in range(n)] for a in range(n)]
    )
    levels = sorted({float(x) for x in speed[np.triu_indices(n, 1)]})
    low, high, found = 0, len(levels) - 1, None
    # The fastest level at which a ring is still there: halve the levels.
    while low <= high:
        middle = (low + high) // 2
        if ranks := _search(speed >= levels[middle], closed):
            found, low = ranks, middle + 1
        else:
            high = middle - 1
    if found is None:
        raise TopologyError(f"no order joins all {n} GPUs of {topology.name}")
    return order(topology, found, closed=closed)


def _search(joined: np.ndarray, closed: bool) -> list[int] | None:
    """The first order, by ranks, that uses joined pairs only; ranks with few ways on come first
    where the order of ranks leads nowhere soon.
    """
    starts = [0] if closed else range(len(joined))
    for frugal in (False, True):
        for start in starts:
            budget = [20_000 if not frugal else 2_000_000]
            if found := _extend(joined, [start], closed, frugal, budget):
                return found
            if budget[0] > 0 and frugal:
                continue
        if not frugal and budget[0] > 0 and closed:
            return None
    return None


def _extend(
    joined: np.ndarray, path: list[int], closed: bool, frugal: bool, budget: list[int]
) -> list[int] | None:
    n = len(joined)
    if len(path) == n:
        return path if not closed or joined[path[-1], path[0]] else None
    budget[0] -= 1
    if budget[0] <= 0:
        return None
    free = np.ones(n, bool)
    free[path] = False
    onward = [int(r) for r in np.flatnonzero(joined[path[-1]] & free)]
    if frugal:
        onward.sort(key=lambda r: int((joined[r] & free).sum()))
    for r in onward:
        if found := _extend(joined, [*path, r], closed, frugal, budget):
            return found
    return None
