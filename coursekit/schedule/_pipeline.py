"""Pipelines: the buffer is cut into segments that follow each other along a chain or a tree."""

from __future__ import annotations

import numpy as np

from coursekit.schedule._errors import whole
from coursekit.schedule._rows import (
    REDUCE,
    Ints,
    Plan,
    Rows,
    backwards,
    log2_steps,
    onto,
    rows,
)  # fmt: skip

__all__ = [
    "all_reduce_chain",
    "all_reduce_double_tree",
    "broadcast",
    "reduce",
    "tree_depths",
    "tree_parents",
]


def _chain_rows(size: int, segments: int) -> Rows:
    """From rank 0 to the last: segment s leaves rank h in step s + h."""
    segment, hop = np.arange(segments)[:, None], np.arange(size - 1)
    return rows(segment + hop, hop, hop + 1, segment)


def _later(part: Rows, steps: int) -> Rows:
    part = part.copy()
    part["step"] += steps
    return part


def broadcast(size: int, root: int, segments: int) -> Plan:
    """Pipelined chain from the root up through the ranks and round; Sanders & Sibeyn 2003."""
    order = (np.arange(size) + root) % size
    return Plan(onto(_chain_rows(size, segments), order), segments)


def reduce(size: int, root: int, segments: int) -> Plan:
    """Pipelined chain to the root: the broadcast run backwards."""
    down = broadcast(size, root, segments)
    return Plan(backwards(down.rows, REDUCE), segments)


def all_reduce_chain(size: int, segments: int) -> Plan:
    """Down the chain to rank 0 as a sum, and back up; each segment turns round when it is whole."""
    up = _chain_rows(size, segments)
    # The reduction is not the broadcast backwards in time: its first segment must be done first.
    down = onto(up, np.arange(size)[::-1])
    down["op"] = REDUCE
    return Plan(np.concatenate([down, _later(up, size - 1)]), segments)


def tree_parents(size: int) -> tuple[Ints, Ints]:
    """The parents of every rank in the two trees of the double binary tree; -1 at the root.

    Inner ranks of one tree are leaves of the other, but for the roots: the first tree has its
    leaves at odd numbers, the second is its mirror image (even sizes) or the first shifted by one
    rank (odd sizes). Sanders, Speck & Traff 2009; the shape is NCCL's (graph/trees.cc).

    Raises:
        ScheduleError: `size` is less than one.
    """
    size = whole(size, "size")
    first = _tree(size)
    number = np.arange(size)
    second = size - 1 - number if size % 2 == 0 else (number + 1) % size
    moved = np.empty_like(first)
    moved[second] = np.where(first < 0, -1, second[first])
    return first, moved


def _tree(size: int) -> Ints:
    """Rank 0 above a binary tree in which a rank's height is its number of trailing zero bits."""
    rank = np.arange(size)
    low = rank & -rank
    parent = (rank ^ low) | (low << 1)
    parent = np.where(parent < size, parent, rank ^ low)
    parent[0] = -1
    return parent


def tree_depths(parents: Ints) -> Ints:
    """How far every rank is from the root of its tree."""
    depth = np.zeros(len(parents), dtype=np.int64)
    above = parents.copy()
    while (above >= 0).any():
        depth += above >= 0
        above = np.where(above >= 0, parents[above], -1)
    return depth


def _both_ways(parents: Ints, height: int, segments: int, tree: int) -> list[Rows]:
    """Segment s goes up from depth d in step s + height - d, down to it in s + height + d - 1."""
    segment = np.arange(segments)[:, None]
    chunk = segment + tree * segments
    child = np.flatnonzero(parents >= 0)
    parent, depth = parents[child], tree_depths(parents)[child]
    up = rows(segment + height - depth, child, parent, chunk, REDUCE)
    return [up, rows(segment + height + depth - 1, parent, child, chunk)]


def all_reduce_double_tree(size: int, segments: int) -> Plan:
    """Two binary trees, half of the buffer and `segments` segments each, up and down at once.

    Sanders, Speck & Traff 2009; there every edge gets its turn by a colouring with two colours,
    here a step uses all edges, and a rank has up to two messages each way, tree and direction.
    """
    parts: list[Rows] = []
    for tree, parents in enumerate(tree_parents(size)):
        parts += _both_ways(parents, log2_steps(size), segments, tree)
    return Plan(np.concatenate(parts), 2 * segments)
