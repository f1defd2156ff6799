"""Exchanges across a hypercube: recursive doubling and halving, any size by folding."""

from __future__ import annotations

import numpy as np

from coursekit.schedule._rows import REDUCE, Fold, Ints, Plan, Rows, fold, rows, spans, then

__all__ = [
    "all_gather_doubling", "all_reduce_doubling", "all_reduce_halving", "reduce_scatter_halving",
]  # fmt: skip


def _doubling_rows(ranks: Ints, bounds: Ints) -> Rows:
    """All-gather among `ranks`: position i owns chunks bounds[i] to bounds[i + 1]."""
    here = np.arange(len(ranks))
    parts = [
        spans(0, ranks, ranks[here ^ far], bounds[here & -far], bounds[(here & -far) + far])
        for far in (1 << np.arange(len(ranks).bit_length() - 1))
    ]
    return then(*parts)


def _halving_rows(ranks: Ints, bounds: Ints) -> Rows:
    """Reduce-scatter among `ranks`: position i ends with chunks bounds[i] to bounds[i + 1]."""
    here = np.arange(len(ranks))
    parts = []
    for far in (1 << np.arange(len(ranks).bit_length() - 1))[::-1]:
        there = here ^ far
        theirs = there & -far
        parts.append(spans(0, ranks, ranks[there], bounds[theirs], bounds[theirs + far], REDUCE))
    return then(*parts)


def _mirrored(power: int) -> Ints:
    """The numbers of `power` bits with their bits in the other order."""
    number = np.arange(1 << power)
    return sum(((number >> bit & 1) << (power - 1 - bit) for bit in range(power)), number * 0)


def _fold_in(folded: Fold, chunks: int) -> Rows:
    """The ranks that step aside hand in all they have."""
    return spans(0, folded.extra, folded.partner, 0, chunks, REDUCE)


def _fold_out(folded: Fold, chunks: int) -> Rows:
    """They are told the result."""
    return spans(0, folded.partner, folded.extra, 0, chunks)


def all_reduce_doubling(size: int) -> Plan:
    """Whole buffers are exchanged with ever farther ranks; Thakur et al. 2005."""
    folded = fold(size)
    here = np.arange(len(folded.core))
    step = np.arange(folded.power)[:, None]
    exchange = rows(step, folded.core, folded.core[here ^ (1 << step)], 0, REDUCE)
    return Plan(then(_fold_in(folded, 1), exchange, _fold_out(folded, 1)), 1)


def all_reduce_halving(size: int) -> Plan:
    """Reduce-scatter by halving, all-gather by doubling; Rabenseifner 2004.

    The nearest rank gets the largest message, so chunks lie in bit-mirrored order meanwhile.
    """
    folded = fold(size)
    chunks = len(folded.core)
    ranks, bounds = folded.core[_mirrored(folded.power)], np.arange(chunks + 1)
    return Plan(
        then(
            _fold_in(folded, chunks),
            _halving_rows(ranks, bounds),
            _doubling_rows(ranks, bounds),
            _fold_out(folded, chunks),
        ),
        chunks,
    )


def reduce_scatter_halving(size: int) -> Plan:
    """Half of the blocks go to the other half of the ranks; Thakur et al. 2005."""
    folded = fold(size)
    bounds = np.append(folded.core, size)
    home = rows(0, folded.partner, folded.extra, folded.extra)
    return Plan(then(_fold_in(folded, size), _halving_rows(folded.core, bounds), home), size)


def all_gather_doubling(size: int) -> Plan:
    """All that is known is exchanged with ever farther ranks; Thakur et al. 2005.

    Ranks beyond a power of two hand their block to a neighbour, and get the rest at the end.
    """
    folded = fold(size)
    bounds = np.append(folded.core, size)
    hand_in = rows(0, folded.extra, folded.partner, folded.extra)
    below = spans(0, folded.partner, folded.extra, 0, folded.extra)
    above = spans(0, folded.partner, folded.extra, folded.extra + 1, size)
    hand_out = np.concatenate([below, above])
    return Plan(then(hand_in, _doubling_rows(folded.core, bounds), hand_out), size)
