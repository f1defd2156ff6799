"""Attention over a sequence that lies on many ranks, against attention in one process."""

import pytest
import torch
import torch.distributed as dist

from coursekit import Ranks, parallel
from coursekit.ranks import RankFailed


@pytest.fixture(scope="module", params=[1, 2, 4])
def ranks(request):
    with Ranks(request.param, backend="gloo") as started:
        yield started


def whole(length, heads=4):
    made = torch.Generator().manual_seed(length)
    return [torch.randn(2, heads, length, 8, generator=made, dtype=torch.float64) for _ in range(4)]


def cut(way, length, causal, zigzag):
    """On a rank: this rank's result and gradients, and the positions that they are of."""
    mine = parallel.places(length, dist.get_rank(), dist.get_world_size(), zigzag=zigzag)
    *qkv, grad = (x[:, :, mine] for x in whole(length))
    qkv = [x.requires_grad_() for x in qkv]
    options = {"zigzag": True} if zigzag else {}
    out = getattr(parallel, way)(*qkv, length, causal=causal, **options)
    out.backward(grad)
    return mine, [out.detach(), *(x.grad for x in qkv)]


WAYS = [("ring_attention", False), ("ring_attention", True), ("ulysses", False)]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("length", [8, 16, 37])
@pytest.mark.parametrize(("way", "zigzag"), WAYS)
def test_it_is_full_attention(ranks, way, zigzag, length, causal):
    *qkv, grad = whole(length)
    qkv = [x.requires_grad_() for x in qkv]
    out = torch.nn.functional.scaled_dot_product_attention(*qkv, is_causal=causal)
    out.backward(grad)
    seen = []
    for mine, told in ranks.run(cut, way, length, causal, zigzag):
        seen += mine.tolist()
        for ours, full in zip(told, [out, *(x.grad for x in qkv)], strict=True):
            assert float((ours - full.detach()[:, :, mine]).abs().max()) < 1e-12
    assert sorted(seen) == list(range(length))


def multiplied(length, zigzag):
    """Pairs of queries and keys in forward, from the operations that torch counts."""
    from torch.utils.flop_counter import FlopCounterMode

    mine = parallel.places(length, dist.get_rank(), dist.get_world_size(), zigzag=zigzag)
    q, k, v, _ = (x[:, :, mine] for x in whole(length))
    with FlopCounterMode(display=False) as counted:
        parallel.ring_attention(q, k, v, length, zigzag=zigzag)
    batch, heads, _, width = q.shape
    # A pair is two products of that width, in scores and in their sum, of two operations each.
    return counted.get_total_flops() / (4 * batch * heads * width)


@pytest.mark.parametrize("length", [37, 64])
@pytest.mark.parametrize("zigzag", [False, True])
def test_the_pairs_that_are_multiplied_are_the_predicted_ones(ranks, length, zigzag):
    told = ranks.run(multiplied, length, zigzag)
    assert told == parallel.pairs(length, ranks.size, zigzag=zigzag)


def test_zigzag_evens_out_causal_work():
    part = 64 // 4
    assert parallel.pairs(64, 4) == [(rank + 1) * part**2 for rank in range(4)]
    # Its own block whole, and half of each other one.
    assert parallel.pairs(64, 4, zigzag=True) == [part**2 + 3 * part**2 // 2] * 4


def sent(way):
    from coursekit import measure

    mine = parallel.places(16, dist.get_rank(), 4)
    *qkv, grad = (x[:, :, mine] for x in whole(16))
    qkv = [x.requires_grad_() for x in qkv]
    with measure.watch() as watched:
        getattr(parallel, way)(*qkv, 16).backward(grad)
    return {
        op: (sum(c.count for c in watched.issued if c.op == op),
             sum(c.count * c.bytes for c in watched.issued if c.op == op))
        for op in {c.op for c in watched.issued}
    }  # fmt: skip


def test_what_is_sent(four):
    """A ring: K - 1 hops of k and v forward, as many and K hops of their gradients backward."""
    part = 2 * 4 * 4 * 8 * 8  # batch, heads, a rank's positions, width, bytes of a double
    for told in four.run(sent, "ring_attention"):
        assert told["send"] == (3 + 3 + 4, (3 + 3 + 4) * 2 * part)
    for told in four.run(sent, "ulysses"):
        assert told == {"all_to_all": (8, 8 * part)}


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: parallel.places(3, 0, 4), "got 3 tokens for 4 pieces"),
        (lambda: parallel.places(7, 0, 4, zigzag=True), "got 7 tokens for 8 pieces"),
        (
            lambda: parallel.ulysses(*[torch.ones(1, 6, 2, 4)] * 3, 8),
            "divides the 6 heads, got 4; take ring_attention",
        ),
        (
            lambda: parallel.ring_attention(*[torch.ones(1, 4, 3, 4)] * 3, 8),
            "(batch, heads, 2, width), this rank's places, got (1, 4, 3, 4)",
        ),
    ],
)
def test_bad_input_is_one_clear_error(four, call, told):
    with pytest.raises(RankFailed) as caught:
        four.run(call)
    assert f"ParallelError: {'every piece' if 'pieces' in told else ''}" in str(caught.value)
    assert told in str(caught.value)
