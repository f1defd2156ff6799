"""The hierarchical all-reduce: inside groups first, between them in the middle."""

from __future__ import annotations

import math

import numpy as np

from coursekit.schedule import _ring
from coursekit.schedule._chunks import chunk_bounds
from coursekit.schedule._rows import REDUCE, Ints, Plan, Rows, rows, spans, then

__all__ = ["all_reduce", "default_groups"]


def default_groups(size: int) -> int:
    """The largest divisor of `size` that is at most its square root; 1 for primes."""
    return next(g for g in range(math.isqrt(size), 0, -1) if size % g == 0)


def all_reduce(size: int, groups: int) -> Plan:
    """Ring reduce-scatter in each group, ring all-reduce of each shard across, ring all-gather.

    Rank i of every group holds shard i in the middle, so all links between groups work. Groups are
    cut by `chunk_bounds`; in a larger group the last rank hands its buffer to the first one, and
    gets the result. Cho et al. 2019 (BlueConnect); Horovod's hierarchical all-reduce.
    """
    bounds = chunk_bounds(size, groups)
    begins, members = bounds[:-1], size // groups
    larger = begins[np.diff(bounds) > members]
    chunks = members * groups
    grid = begins[:, None] + np.arange(members)
    inside = _shards(_ring.scatter_rows(members), grid, groups)
    back = _shards(_ring.gather_rows(members), grid, groups)
    fold_in = spans(0, larger + members, larger, 0, chunks, REDUCE)
    fold_out = spans(0, larger, larger + members, 0, chunks)
    return Plan(then(fold_in, inside, _across(grid), back, fold_out), chunks)


def _shards(ring: Rows, grid: Ints, width: int) -> Rows:
    """The same ring in every row of the grid; each of its chunks is a shard of `width` chunks."""
    ranks = grid[:, :, None]
    chunk = ring["chunk"][:, None] * width + np.arange(width)
    src, dst = ranks[:, ring["src"]], ranks[:, ring["dst"]]
    op = int(ring["op"][0]) if len(ring) else REDUCE
    return rows(ring["step"][:, None], src, dst, chunk, op)


def _across(grid: Ints) -> Rows:
    """A ring all-reduce in every column of the grid, over the chunks of the column's shard."""
    groups, members = grid.shape
    column = np.arange(members)
    halves = []
    for ring in (_ring.scatter_rows(groups), _ring.gather_rows(groups)):
        chunk = ring["chunk"][:, None] + column * groups
        op = int(ring["op"][0]) if len(ring) else REDUCE
        halves.append(rows(ring["step"][:, None], grid[ring["src"]], grid[ring["dst"]], chunk, op))
    return then(*halves)
