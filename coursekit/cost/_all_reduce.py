"""Closed forms of the all-reduce algorithms.

n ranks; q = floor(log2 n), p = 2**q, L = ceil(log2 n); N bytes. The docstrings give T for a power
of two as the sources do; the code holds for every n, with what the folded ranks add.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from coursekit.cost._model import Form
from coursekit.schedule import tree_depths, tree_parents

__all__ = ["chain", "double_tree", "halving_doubling", "recursive_doubling", "ring", "tree",
           "two_level"]  # fmt: skip

Ints = npt.NDArray[np.int64]


def ring(n: int) -> Form:
    """T = 2(n-1) alpha + 2 (n-1)/n N beta + (n-1)/n N gamma; Patarasuk & Yuan 2009."""
    k = n - 1
    return Form(
        n, steps=2 * k, messages=2 * k, messages_total=2 * k * n, sent=2 * k, received=2 * k,
        sent_total=2 * k * n, alphas=2 * k, betas=2 * k, gammas=k,
    )  # fmt: skip


def tree(n: int) -> Form:
    """T = 2L (alpha + N beta) + L N gamma: binomial reduce, then broadcast; Thakur et al. 2005.

    L log-depth rounds are the way that decides, not the volume: all ranks together send 2(n-1) N.
    """
    rounds, all_ = (n - 1).bit_length(), 2 * (n - 1)
    return Form(
        1, steps=2 * rounds, messages=rounds, messages_total=all_, sent=rounds, received=rounds,
        sent_total=all_, alphas=2 * rounds, betas=2 * rounds, gammas=rounds,
    )  # fmt: skip


def recursive_doubling(n: int) -> Form:
    """T = q (alpha + N beta + N gamma); Thakur et al. 2005.

    Else two messages more on the way that decides, one of them added.
    """
    q, rest, odd = _folded(n)
    all_ = q * (n - rest) + 2 * rest
    return Form(
        1, steps=q + 2 * odd, messages=q + odd, messages_total=all_, sent=q + odd,
        received=q + odd, sent_total=all_, alphas=q + 2 * odd, betas=q + 2 * odd, gammas=q + odd,
    )  # fmt: skip


def halving_doubling(n: int) -> Form:
    """T = 2q alpha + 2 (p-1)/p N beta + (p-1)/p N gamma; Rabenseifner 2004.

    Else 2 alpha + 2 N beta + N gamma more for folding the rest in and out.
    """
    q, rest, odd = _folded(n)
    p = n - rest
    return Form(
        p,
        steps=2 * q + 2 * odd,
        messages=2 * q + odd,
        messages_total=2 * q * p + 2 * rest,
        sent=2 * (p - 1) + p * odd,
        received=2 * (p - 1) + p * odd,
        sent_total=2 * (p - 1) * p + 2 * rest * p,
        alphas=2 * q + 2 * odd,
        betas=2 * (p - 1) + 2 * p * odd,
        gammas=p - 1 + p * odd,
    )


def chain(n: int, segments: int) -> Form:
    """S segments of N/S bytes run down the chain as sums, turn round at rank 0, and run back.

    2(n-1) + S - 1 steps; in the S - 1 steps in which both directions meet at a rank, it has two
    messages each way. Pipelining: Sanders & Sibeyn 2003; the two directions share a port, so
    T is about (2n + 2S) (alpha + N/S beta).
    """
    if n == 1:
        return Form(segments)
    steps = 2 * (n - 1) + segments - 1
    met = segments - 1 if n > 2 and segments > 2 else 0
    busy = segments if n == 2 else 2 * segments
    all_ = 2 * (n - 1) * segments
    return Form(
        segments, steps=steps, messages=busy, messages_total=all_, sent=busy, received=busy,
        sent_total=all_, alphas=steps + met, betas=steps + met, gammas=n + segments - 2,
    )  # fmt: skip


def two_level(n: int, groups: int) -> Form:
    """T = 2(m+g-2) alpha + 2 (n-1)/n N beta + (n-1)/n N gamma, g groups of m; Cho et al. 2019.

    Between groups a rank sends only 2(g-1)/n N. A larger group folds its last rank, as others do.
    """
    members, larger = divmod(n, groups)
    core, odd = members * groups, int(larger > 0)
    turns = 2 * (members - 1) + 2 * (groups - 1)
    return Form(
        core,
        steps=turns + 2 * odd,
        messages=turns + odd,
        messages_total=turns * core + 2 * larger,
        sent=2 * (core - 1) + core * odd,
        received=2 * (core - 1) + core * odd,
        sent_total=2 * (core - 1) * core + 2 * core * larger,
        alphas=turns + 2 * odd,
        betas=2 * (core - 1) + 2 * core * odd,
        gammas=core - 1 + core * odd,
    )


def double_tree(n: int, segments: int) -> Form:
    """2L + S - 1 steps; a rank sends at most 2N; T tends to 2 N beta for many segments.

    Sanders et al. 2009. S segments in each of two trees, chunks of N/(2S). The three coefficients
    depend on how full the pipeline is, so they are summed over the intervals between the steps in
    which an edge starts or stops; their number does not grow with S.
    """
    if n == 1:
        return Form(2 * segments)
    src, dst, start, adds = _tree_edges(n)
    cuts = np.unique(np.concatenate([start, start + segments]))
    total = np.zeros(3, dtype=np.int64)
    messages = np.zeros(n, dtype=np.int64)
    for begin, end in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        on = (start <= begin) & (begin < start + segments)
        # Both trees may use one edge at once (n = 3): then their chunks are one message.
        edges = np.unique((src[on] * n + dst[on]) * 2 + adds[on]) // 2
        pairs = np.stack(np.divmod(edges, n))
        messages += (end - begin) * np.bincount(pairs[0], minlength=n)
        heights = [_most(pairs), _most(np.stack([src[on], dst[on]])), _most(dst[on & adds])]
        total += (end - begin) * np.array(heights)
    return Form(
        2 * segments,
        steps=2 * (n - 1).bit_length() + segments - 1,
        messages=int(messages.max()),
        messages_total=int(messages.sum()),
        sent=segments * _most(src),
        received=segments * _most(dst),
        sent_total=segments * len(src),
        alphas=int(total[0]),
        betas=int(total[1]),
        gammas=int(total[2]),
    )


def _tree_edges(n: int) -> tuple[Ints, Ints, Ints, npt.NDArray[np.bool_]]:
    """Of every edge its source, destination, first step, and whether the destination adds."""
    height, parts = (n - 1).bit_length(), []
    for parents in tree_parents(n):
        child = np.flatnonzero(parents >= 0)
        up, depth = parents[child], tree_depths(parents)[child]
        parts.append((child, up, height - depth, np.ones(n - 1, dtype=np.bool_)))
        parts.append((up, child, height + depth - 1, np.zeros(n - 1, dtype=np.bool_)))
    src, dst, start, adds = (np.concatenate(column) for column in zip(*parts, strict=True))
    return src, dst, start, adds


def _most(ranks: Ints) -> int:
    """How often the rank stands there that stands there most often; in each row of a table."""
    rows = np.atleast_2d(ranks)
    return max(int(np.bincount(row).max()) if len(row) else 0 for row in rows)


def _folded(n: int) -> tuple[int, int, int]:
    """q, n - 2**q, and 1 where that is not 0."""
    q = n.bit_length() - 1
    rest = n - (1 << q)
    return q, rest, int(rest > 0)
