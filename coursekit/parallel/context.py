"""Context parallelism: one long sequence over the ranks, and attention across all of it.

Ring attention, Liu et al. 2023, arXiv:2310.01889: keys and values go round, queries stay. Ulysses,
Jacobs et al. 2023, arXiv:2309.14509: an all-to-all gives each rank whole sequences of a part of the
heads. The zigzag order evens out causal work, as in Llama 3, arXiv:2407.21783, section 3.3.2.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F

from ._errors import ParallelError
from ._group import group_of


def places(length: int, rank: int, size: int, *, zigzag: bool = False) -> Tensor:
    """Which positions of a sequence a rank has, in its order.

    Args:
        length: of the whole sequence; it need not be divisible.
        zigzag: two pieces of 2K, the r-th and the r-th from the end, instead of one of K: so every
            rank sees as many keys under a causal mask.

    Raises:
        ParallelError: a rank would be without a position.
    """
    pieces = size * (1 + zigzag)
    if length < pieces:
        raise ParallelError(
            f"every piece of a sequence needs a token, got {length} tokens for {pieces} pieces; "
            "take a longer one, or fewer ranks"
        )
    cut = torch.arange(length).tensor_split(pieces)
    return torch.cat([cut[rank], cut[-1 - rank]]) if zigzag else cut[rank]


def pairs(length: int, size: int, *, zigzag: bool = False) -> list[int]:
    """How many pairs of a query and a key each rank of a causal ring multiplies in forward.

    Of every block the queries that see something times the keys that are seen: what the mask hides
    of a rank's own block is multiplied too, what it hides of whole blocks is not.
    """
    every = [places(length, rank, size, zigzag=zigzag) for rank in range(size)]
    seen = [[_seen(mine, theirs) for theirs in every] for mine in every]
    return [
        sum((len(mine) - first) * keys for first, keys in row)
        for mine, row in zip(every, seen, strict=True)
    ]


def ring_attention(
    q: Tensor, k: Tensor, v: Tensor, length: int, group: Any = None, *, causal: bool = True,
    zigzag: bool = False,
) -> Tensor:  # fmt: skip
    """forward: K - 1 times keys and values go to the next rank, while this one's queries meet those
    that are here; backward: once more, and their gradients go along, home in K steps.

    Args:
        q, k, v: this rank's part, of shape (batch, heads, positions, width): the `places` of this
            rank in the group, for the same `zigzag`.
        length: of the whole sequence.
        group: a process group or one axis of a mesh; all ranks by default.

    Returns:
        Attention of this rank's queries over the whole sequence, of the shape of `q`.

    Raises:
        ParallelError: the part has another length than `places` says.
    """
    ring = _Ring(group_of(group), length, causal, zigzag)
    _check(q, k, v, len(ring.places[ring.rank]))
    out: Tensor = _RingAttention.apply(q, k, v, ring)  # type: ignore[no-untyped-call]
    return out


def ulysses(
    q: Tensor, k: Tensor, v: Tensor, length: int, group: Any = None, *, causal: bool = True
) -> Tensor:
    """forward: an all-to-all each of q, k, v gives 1/K of the heads and all positions, one more
    brings the result back; backward: the same four, the other way.

    Args, returns: as `ring_attention`.

    Raises:
        ParallelError: the ranks do not divide the heads, or the part has another length.
    """
    g = group_of(group)
    lengths = [len(places(length, r, g.size())) for r in range(g.size())]
    _check(q, k, v, lengths[g.rank()])
    if q.shape[1] % g.size():
        raise ParallelError(
            f"Ulysses needs a number of ranks that divides the {q.shape[1]} heads, got {g.size()}; "
            "take ring_attention, which does not cut heads"
        )
    q, k, v = (_swap(x, lengths, g, True) for x in (q, k, v))
    return _swap(F.scaled_dot_product_attention(q, k, v, is_causal=causal), lengths, g, False)


def _check(q: Tensor, k: Tensor, v: Tensor, mine: int) -> None:
    if not (q.shape == k.shape == v.shape and q.dim() == 4 and q.shape[2] == mine):
        shapes = ", ".join(str(tuple(x.shape)) for x in (q, k, v))
        raise ParallelError(
            f"q, k and v must be (batch, heads, {mine}, width), this rank's places, got {shapes}; "
            "cut the sequence with parallel.places"
        )


class _Ring:
    """Who has which positions, and how blocks go round."""

    def __init__(self, group: dist.ProcessGroup, length: int, causal: bool, zigzag: bool) -> None:
        self.group, self.causal = group, causal
        self.rank, self.size = group.rank(), group.size()
        self.places = [places(length, r, self.size, zigzag=zigzag) for r in range(self.size)]

    def owner(self, step: int) -> int:
        """Whose keys and values are here after so many steps."""
        return (self.rank - step) % self.size

    def seen(self, owner: int) -> tuple[int, int]:
        """From which of this rank's queries on, and up to which of the owner's keys, to compute."""
        mine, theirs = self.places[self.rank], self.places[owner]
        return _seen(mine, theirs) if self.causal else (0, len(theirs))

    def scores(self, q: Tensor, k: Tensor, owner: int) -> Tensor:
        """Of the queries and keys that `seen` leaves; what is hidden among them is -inf."""
        first, keys = self.seen(owner)
        scores: Tensor = q @ k.mT * float(q.shape[-1] ** -0.5)
        if not self.causal:
            return scores
        mine, theirs = self.places[self.rank][first:], self.places[owner][:keys]
        return scores.masked_fill((theirs > mine[:, None]).to(q.device), -torch.inf)

    def pass_on(self, block: Tensor, owner: int) -> tuple[list[Any], Tensor]:
        """Begin to send a block to the next rank and to receive the one of `owner`."""
        shape = list(block.shape)
        shape[-2] = len(self.places[owner])
        into = block.new_empty(shape)
        if self.size == 1:
            return [], into.copy_(block)
        to, come = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        # Together, so that NCCL cannot wait for the one before it has begun the other.
        both = [
            dist.P2POp(dist.isend, block, group=self.group, group_peer=to),
            dist.P2POp(dist.irecv, into, group=self.group, group_peer=come),
        ]
        return dist.batch_isend_irecv(both), into


class _RingAttention(torch.autograd.Function):
    """forward: online softmax over the blocks; backward: the weights anew, from their log-sums."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, ring: _Ring) -> Tensor:
        block = torch.stack([k, v])
        out = torch.zeros_like(q)
        total = q.new_full((*q.shape[:-1], 1), -torch.inf)
        for step in range(ring.size):
            more = step + 1 < ring.size
            works, coming = ring.pass_on(block, ring.owner(step + 1)) if more else ([], block)
            first, keys = ring.seen(ring.owner(step))
            k_seen, v_seen = block[..., :keys, :]
            scores = ring.scores(q[..., first:, :], k_seen, ring.owner(step))
            # Every query here sees a key, so that this is a number.
            before = total[..., first:, :]
            after = torch.logaddexp(before, scores.logsumexp(-1, keepdim=True))
            out[..., first:, :] *= (before - after).exp()
            out[..., first:, :] += (scores - after).exp() @ v_seen
            total[..., first:, :] = after
            for work in works:
                work.wait()
            block = coming
        ctx.ring = ring
        ctx.save_for_backward(q, k, v, out, total)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        q, k, v, out, total = ctx.saved_tensors
        ring, grad, scale = ctx.ring, grads[0], q.shape[-1] ** -0.5
        along = (grad * out).sum(-1, keepdim=True)
        block = torch.stack([k, v])
        home = torch.zeros_like(block)
        dq = torch.zeros_like(q)
        for step in range(ring.size):
            more, after = step + 1 < ring.size, ring.owner(step + 1)
            works, coming = ring.pass_on(block, after) if more else ([], block)
            first, keys = ring.seen(ring.owner(step))
            k_seen, v_seen = block[..., :keys, :]
            q_here, grad_here = q[..., first:, :], grad[..., first:, :]
            scores = ring.scores(q_here, k_seen, ring.owner(step))
            weights = (scores - total[..., first:, :]).exp()
            inner = weights * (grad_here @ v_seen.mT - along[..., first:, :]) * scale
            dq[..., first:, :] += inner @ k_seen
            home[..., :keys, :] += torch.stack([inner.mT @ q_here, weights.mT @ grad_here])
            for work in works:
                work.wait()
            block = coming
            works, coming = ring.pass_on(home, after)
            for work in works:
                work.wait()
            home = coming
        return dq, home[0], home[1], None


def _seen(mine: Tensor, theirs: Tensor) -> tuple[int, int]:
    """The first of my positions that sees one of theirs, and how many of theirs are seen at all.

    Both ascend: so the queries are the last ones, and the keys the first ones.
    """
    first = torch.searchsorted(mine, theirs[:1])
    keys = torch.searchsorted(theirs, mine[-1:], right=True)
    return int(first), int(keys)


def _swap(x: Tensor, lengths: list[int], group: dist.ProcessGroup, to_heads: bool) -> Tensor:
    swapped: Tensor = _Swap.apply(x, lengths, group, to_heads)  # type: ignore[no-untyped-call]
    return swapped


class _Swap(torch.autograd.Function):
    """forward: all heads of some positions become all positions of some heads, or back; backward:
    the other way.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, lengths: list[int], group: dist.ProcessGroup, to_heads: bool
    ) -> Tensor:
        ctx.told = lengths, group, not to_heads
        parts = x.chunk(len(lengths), 1) if to_heads else torch.split(x, lengths, 2)
        batch, heads, _, width = parts[0].shape
        mine = lengths[group.rank()]
        take = [batch * heads * (n if to_heads else mine) * width for n in lengths]
        give = [part.numel() for part in parts]
        into = x.new_empty(sum(take))
        flat = torch.cat([part.flatten() for part in parts])
        dist.all_to_all_single(into, flat, take, give, group=group)
        came = [
            piece.view(batch, heads, n if to_heads else mine, width)
            for piece, n in zip(torch.split(into, take), lengths, strict=True)
        ]
        return torch.cat(came, 2 if to_heads else 1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return _swap(grads[0], *ctx.told), None, None, None
