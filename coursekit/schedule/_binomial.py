"""Binomial trees, and the algorithms for long messages that are made with them."""

from __future__ import annotations

import numpy as np

from coursekit.schedule import _ring
from coursekit.schedule._rows import (
    COPY,
    REDUCE,
    Plan,
    Rows,
    backwards,
    levels,
    onto,
    rows,
    spans,
    then,
)  # fmt: skip

__all__ = [
    "all_reduce", "broadcast", "broadcast_scatter", "gather", "gather_linear", "reduce",
    "reduce_gather", "scatter", "scatter_linear",
]  # fmt: skip


def _edges(size: int) -> list[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
    """Step, parents, children and the end of each child's subtree, farthest children first."""
    found = []
    for step, far in enumerate(levels(size)[::-1]):
        parent = np.arange(0, size - far, 2 * far)
        child = parent + far
        found.append((step, parent, child, np.minimum(child + far, size)))
    return found


def _from(root: int, size: int) -> np.ndarray:
    """The ranks in order, beginning at `root` and going round."""
    return (np.arange(size) + root) % size


def _down(size: int, root: int) -> Rows:
    parts = [rows(step, parent, child, 0) for step, parent, child, _ in _edges(size)]
    return onto(np.concatenate([*parts, rows(0, 0, 0, 0)[:0]]), _from(root, size))


def _scatter_rows(size: int, root: int) -> Rows:
    order = _from(root, size)
    parts = [
        spans(step, order[parent], order[child], child + root, end + root, modulo=size)
        for step, parent, child, end in _edges(size)
    ]
    return np.concatenate([*parts, rows(0, 0, 0, 0)[:0]])


def all_reduce(size: int) -> Plan:
    """Reduce to rank 0 along a binomial tree, then broadcast along it; Thakur et al. 2005."""
    down = _down(size, 0)
    return Plan(then(backwards(down, REDUCE), down), 1)


def broadcast(size: int, root: int) -> Plan:
    """Whoever has the buffer sends it on, each time half as far; Thakur et al. 2005."""
    return Plan(_down(size, root), 1)


def reduce(size: int, root: int) -> Plan:
    """The broadcast run backwards; Thakur et al. 2005."""
    return Plan(backwards(_down(size, root), REDUCE), 1)


def scatter(size: int, root: int) -> Plan:
    """Half of the blocks go to the rank half way, and so on; Chan et al. 2007."""
    return Plan(_scatter_rows(size, root), size)


def gather(size: int, root: int) -> Plan:
    """The scatter run backwards; Chan et al. 2007."""
    return Plan(backwards(_scatter_rows(size, root), COPY), size)


def scatter_linear(size: int, root: int) -> Plan:
    """The root sends every rank its block at once."""
    others = np.delete(np.arange(size), root)
    return Plan(rows(0, root, others, others), size)


def gather_linear(size: int, root: int) -> Plan:
    """Every rank sends its block to the root at once."""
    others = np.delete(np.arange(size), root)
    return Plan(rows(0, others, root, others), size)


def broadcast_scatter(size: int, root: int) -> Plan:
    """Van de Geijn's broadcast: binomial scatter, then ring all-gather; Thakur et al. 2005."""
    return Plan(then(_scatter_rows(size, root), _ring.gather_rows(size)), size)


def reduce_gather(size: int, root: int) -> Plan:
    """Its dual: ring reduce-scatter, then binomial gather; Chan et al. 2007."""
    up = backwards(_scatter_rows(size, root), COPY)
    return Plan(then(_ring.scatter_rows(size), up), size)
