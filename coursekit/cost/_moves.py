"""Closed forms of the other collectives.

n ranks; q = floor(log2 n), p = 2**q, L = ceil(log2 n); N bytes in the whole buffer. The docstrings
give T for a power of two as the sources do; the code holds for every n.
"""

from __future__ import annotations

from dataclasses import replace

from coursekit.cost._model import Form

__all__ = [
    "binomial_broadcast",
    "binomial_gather",
    "binomial_reduce",
    "binomial_scatter",
    "bruck_all_gather",
    "bruck_all_to_all",
    "chain_broadcast",
    "chain_reduce",
    "dissemination",
    "doubling_all_gather",
    "halving_reduce_scatter",
    "linear_gather",
    "linear_scatter",
    "pairwise",
    "reduce_scatter_gather",
    "ring_all_gather",
    "ring_reduce_scatter",
    "scatter_allgather",
]  # fmt: skip


def _even(n: int, messages: int, sent: int) -> Form:
    """Every rank sends and receives the same, one message a step."""
    return Form(
        n, steps=messages, messages=messages, messages_total=n * messages, sent=sent,
        received=sent, sent_total=n * sent, alphas=messages, betas=sent,
    )  # fmt: skip


def _plus(a: Form, b: Form) -> Form:
    """One after the other, where the busiest ranks of the second were as busy as any before."""
    names = ("steps", "messages", "messages_total", "sent", "received", "sent_total", "alphas",
             "betas", "gammas")  # fmt: skip
    return replace(a, **{name: getattr(a, name) + getattr(b, name) for name in names})


def _turned(form: Form, messages: int) -> Form:
    """The dual: sending and receiving change places."""
    return replace(form, sent=form.received, received=form.sent, messages=messages)


def ring_all_gather(n: int) -> Form:
    """T = (n-1) alpha + (n-1)/n N beta; Thakur et al. 2005."""
    return _even(n, n - 1, n - 1)


def ring_reduce_scatter(n: int) -> Form:
    """T = (n-1) alpha + (n-1)/n N beta + (n-1)/n N gamma; Patarasuk & Yuan 2009."""
    return replace(_even(n, n - 1, n - 1), gammas=n - 1)


def bruck_all_gather(n: int) -> Form:
    """T = L alpha + (n-1)/n N beta, for every n; Bruck 1997."""
    return _even(n, (n - 1).bit_length(), n - 1)


def doubling_all_gather(n: int) -> Form:
    """T = q alpha + (n-1)/n N beta; Thakur et al. 2005. Else, folded, one block in, n - 1 out."""
    q, rest, odd, grown = _folded(n)
    return Form(
        n,
        steps=q + 2 * odd,
        messages=q + odd,
        messages_total=q * (n - rest) + 2 * rest,
        sent=grown + (n - 1) * odd,
        received=n - 1,
        sent_total=n * (n - 1),
        alphas=q + 2 * odd,
        betas=odd + grown + (n - 1) * odd,
    )


def halving_reduce_scatter(n: int) -> Form:
    """T = q alpha + (n-1)/n N beta + (n-1)/n N gamma; Thakur et al. 2005. Folded: n in, one out."""
    q, rest, odd, grown = _folded(n)
    return Form(
        n,
        steps=q + 2 * odd,
        messages=q + odd,
        messages_total=q * (n - rest) + 2 * rest,
        sent=n - 1 + odd,
        received=grown + n * odd,
        sent_total=n * (n - 1) + rest,
        alphas=q + 2 * odd,
        betas=n * odd + grown + odd,
        gammas=n * odd + grown,
    )


def binomial_broadcast(n: int, root: int) -> Form:
    """T = L (alpha + N beta); Thakur et al. 2005, Chan et al. 2007."""
    rounds = (n - 1).bit_length()
    return Form(
        1, steps=rounds, messages=rounds, messages_total=n - 1, sent=rounds,
        received=min(n - 1, 1), sent_total=n - 1, alphas=rounds, betas=rounds,
    )  # fmt: skip


def binomial_reduce(n: int, root: int) -> Form:
    """T = L (alpha + N beta + N gamma): the broadcast backwards; Thakur et al. 2005."""
    form = _turned(binomial_broadcast(n, root), messages=min(n - 1, 1))
    return replace(form, gammas=form.betas)


def chain_broadcast(n: int, root: int, segments: int) -> Form:
    """T = (S+n-2) (alpha + N/S beta), S segments; Sanders & Sibeyn 2003.

    Least for S = sqrt((n-2) N beta / alpha).
    """
    if n == 1:
        return Form(segments)
    steps, all_ = segments + n - 2, segments * (n - 1)
    return Form(
        segments, steps=steps, messages=segments, messages_total=all_, sent=segments,
        received=segments, sent_total=all_, alphas=steps, betas=steps,
    )  # fmt: skip


def chain_reduce(n: int, root: int, segments: int) -> Form:
    """T = (S+n-2) (alpha + N/S beta + N/S gamma): the broadcast backwards."""
    form = chain_broadcast(n, root, segments)
    return replace(form, gammas=form.betas)


def binomial_scatter(n: int, root: int) -> Form:
    """T = L alpha + (n-1)/n N beta, for every n; Chan et al. 2007.

    A block passes as many links as its rank, counted from the root, has binary ones.
    """
    rounds = (n - 1).bit_length()
    return Form(
        n,
        steps=rounds,
        messages=rounds,
        messages_total=n - 1,
        sent=n - 1,
        received=_largest_branch(n),
        sent_total=_ones_below(n),
        alphas=rounds,
        betas=n - 1,
    )


def binomial_gather(n: int, root: int) -> Form:
    """T = L alpha + (n-1)/n N beta: the scatter backwards; Chan et al. 2007."""
    return _turned(binomial_scatter(n, root), messages=min(n - 1, 1))


def linear_scatter(n: int, root: int) -> Form:
    """T = (n-1) alpha + (n-1)/n N beta: the root's port sends n - 1 messages; Hockney 1994."""
    return Form(
        n, steps=min(n - 1, 1), messages=n - 1, messages_total=n - 1, sent=n - 1,
        received=min(n - 1, 1), sent_total=n - 1, alphas=n - 1, betas=n - 1,
    )  # fmt: skip


def linear_gather(n: int, root: int) -> Form:
    """T = (n-1) alpha + (n-1)/n N beta: the scatter backwards; Hockney 1994."""
    return _turned(linear_scatter(n, root), messages=min(n - 1, 1))


def scatter_allgather(n: int, root: int) -> Form:
    """T = (L+n-1) alpha + 2 (n-1)/n N beta: binomial scatter, ring; Thakur et al. 2005."""
    return _plus(binomial_scatter(n, root), ring_all_gather(n))


def reduce_scatter_gather(n: int, root: int) -> Form:
    """T = (L+n-1) alpha + 2 (n-1)/n N beta + (n-1)/n N gamma: ring, gather; Chan et al. 2007."""
    return _plus(ring_reduce_scatter(n), binomial_gather(n, root))


def pairwise(n: int) -> Form:
    """T = (n-1) alpha + (n-1)/n N beta; Thakur et al. 2005."""
    return _even(n, n - 1, n - 1)


def bruck_all_to_all(n: int) -> Form:
    """T = L alpha + (N/2) L beta; Bruck 1997. Else blocks travel their distance's binary ones."""
    return _even(n, (n - 1).bit_length(), _ones_below(n))


def dissemination(n: int) -> Form:
    """T = L alpha; Hensgen, Finkel & Manber 1988 (Two algorithms for barrier synchronization)."""
    rounds = (n - 1).bit_length()
    return replace(_even(n, rounds, rounds), chunks=1)


def _folded(n: int) -> tuple[int, int, int, int]:
    """q, n - 2**q, 1 where that is not 0, and the blocks that the first core rank sends or gets.

    Core ranks with a partner stand for two blocks; the first 2**k of them for 2**k and as many
    more as have a partner.
    """
    q = n.bit_length() - 1
    rest = n - (1 << q)
    return q, rest, int(rest > 0), sum((1 << k) + min(1 << k, rest) for k in range(q))


def _ones_below(n: int) -> int:
    """The binary ones of 0, 1, ..., n - 1 in all."""
    return sum(number.bit_count() for number in range(n))


def _largest_branch(n: int) -> int:
    """The largest number of ranks below a child of the root of a binomial tree, it included."""
    if n < 3:
        return n - 1
    half = 1 << ((n - 1).bit_length() - 1)
    return max(n - half, half // 2)
