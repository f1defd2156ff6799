"""Rings: every rank talks to its two neighbours only."""

from __future__ import annotations

import numpy as np

from coursekit.schedule._rows import REDUCE, Plan, Rows, rows, then

__all__ = ["all_gather", "all_reduce", "gather_rows", "reduce_scatter", "scatter_rows"]


def gather_rows(size: int) -> Rows:
    """Each rank passes on the chunk it received last, its own one first."""
    step, rank = np.arange(size - 1)[:, None], np.arange(size)
    return rows(step, rank, (rank + 1) % size, (rank - step) % size)


def scatter_rows(size: int) -> Rows:
    """A chunk goes once round, gathers all contributions and ends at the rank of its number."""
    step, rank = np.arange(size - 1)[:, None], np.arange(size)
    return rows(step, rank, (rank + 1) % size, (rank - step - 1) % size, REDUCE)


def all_reduce(size: int) -> Plan:
    """Ring reduce-scatter, then ring all-gather; Patarasuk & Yuan 2009."""
    return Plan(then(scatter_rows(size), gather_rows(size)), size)


def all_gather(size: int) -> Plan:
    """Ring all-gather; Thakur et al. 2005."""
    return Plan(gather_rows(size), size)


def reduce_scatter(size: int) -> Plan:
    """Ring reduce-scatter, the first half of Patarasuk & Yuan's all-reduce (2009)."""
    return Plan(scatter_rows(size), size)
