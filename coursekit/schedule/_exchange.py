"""Every rank with every rank: all-to-all, Bruck's all-gather, the barrier."""

from __future__ import annotations

import numpy as np

from coursekit.schedule._rows import Ints, Plan, Rows, levels, rows, spans, then

__all__ = ["all_gather_bruck", "all_to_all_bruck", "all_to_all_pairwise", "barrier"]


def all_gather_bruck(size: int) -> Plan:
    """What a rank knows goes to ranks ever farther below it; Bruck et al. 1997."""
    rank = np.arange(size)
    parts = [
        spans(0, rank, (rank - far) % size, rank, rank + min(far, size - far), modulo=size)
        for far in levels(size).tolist()
    ]
    return Plan(then(*parts), size)


def _own_block(size: int) -> Rows:
    """Every rank's block for itself goes from its input to its output."""
    rank = np.arange(size)
    return rows(0, rank, rank, rank, into=rank + size)


def all_to_all_pairwise(size: int) -> Plan:
    """In step k every rank sends to the rank k + 1 above; Thakur et al. 2005."""
    step, rank = np.arange(size - 1)[:, None], np.arange(size)
    peer = (rank + step + 1) % size
    return Plan(
        np.concatenate([_own_block(size), rows(step, rank, peer, peer, into=rank + size)]), size
    )


def all_to_all_bruck(size: int) -> Plan:
    """A block travels by the binary digits of its distance; Bruck et al. 1997.

    A block on its way rests in the place of the output that blocks of its distance have at the end,
    or in scratch, in turn, so that no step overwrites what it reads: the last hop ends in place.
    """
    distance = np.arange(1, size)
    hops = _ones(distance)
    wide = distance[hops > 1]
    scratch = np.zeros(size, dtype=np.int64)
    scratch[wide] = 2 * size + np.arange(len(wide))
    parts = [_own_block(size)]
    for step, far in enumerate(levels(size)):
        moved = distance[(distance & far) > 0]
        done = _ones(moved & (far - 1))
        left = _ones(moved) - done
        rank = np.arange(size)[:, None]
        peer = (rank + far) % size
        rests = _rest(rank, moved, left, scratch, size)
        source = np.where(done == 0, (rank + moved) % size, rests)
        target = _rest(peer, moved, left - 1, scratch, size)
        parts.append(rows(step, rank, peer, source, into=target))
    return Plan(np.concatenate(parts), size, len(wide))


def _rest(rank: Ints, distance: Ints, hops_left: Ints, scratch: Ints, size: int) -> Ints:
    return np.where(hops_left % 2 == 0, size + (rank - distance) % size, scratch[distance])


def _ones(numbers: Ints) -> Ints:
    """How many binary digits are one."""
    bits = np.arange(63)
    ones: Ints = (numbers[:, None] >> bits & 1).sum(axis=1)
    return ones


def barrier(size: int) -> Plan:
    """Dissemination: in step k a rank tells the rank 2**k above; Hensgen, Finkel & Manber 1988."""
    far = levels(size)[:, None]
    step, rank = np.arange(len(far))[:, None], np.arange(size)
    return Plan(rows(step, rank, (rank + far) % size, 0, into=1), 1, 1)
