"""Our modes beside torch's: DistributedDataParallel, FSDP2, DTensor; and what they issue."""

import pytest
import torch

from coursekit import measure, parallel, plan

SHAPE = parallel.small(hidden=32, vocab=52)
LENGTH = 16


def batch():
    return (parallel.share(x) for x in parallel.batch(8, LENGTH))


def grads(model):
    return {
        n.removeprefix("module."): (
            p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad
        )
        for n, p in model.named_parameters()
    }


def worst(a, b):
    assert set(a) == set(b)
    return max(float((a[n] - b[n]).abs().max()) for n in a)


def test_bucketed_gives_the_gradients_of_ddp(ranks):
    def both():
        from torch.nn.parallel import DistributedDataParallel

        ours, theirs = (parallel.GPT(SHAPE).double() for _ in range(2))
        wrapped, peer = parallel.Bucketed(ours), DistributedDataParallel(theirs)
        issued = []
        for model, finish in ((wrapped, wrapped.finish), (peer, lambda: None)):
            with measure.watch() as watched:
                model(*batch()).backward()
                finish()
            issued.append(sum(c.bytes * c.count for c in watched.issued if c.phase == "backward"))
        return worst(grads(ours), grads(theirs)), issued

    for difference, (ours, theirs) in ranks.run(both):
        assert difference < 1e-12
        assert ours == theirs == 8 * SHAPE.parameters


def test_zero_3_gives_the_weights_of_fsdp2(ranks):
    def both():
        from torch.distributed.fsdp import fully_shard

        ours, theirs = (parallel.GPT(SHAPE).double() for _ in range(2))
        wrapped = parallel.Zero(ours, lambda p: torch.optim.AdamW(p, lr=1e-3), stage=3)
        for module in (*theirs.blocks, theirs):
            fully_shard(module)
        opt = torch.optim.AdamW(theirs.parameters(), lr=1e-3)
        for _ in range(3):
            wrapped(*batch()).backward()
            wrapped.step()
            opt.zero_grad()
            theirs(*batch()).backward()
            opt.step()
        with measure.watch() as watched:
            theirs(*batch()).backward()
        whole = {n: p.full_tensor() for n, p in theirs.named_parameters()}
        state = wrapped.full_state()
        found = [(c.phase, c.op, c.bytes * c.count) for c in watched.issued]
        return worst({n: state[n] for n in whole}, whole), found

    expected = plan.zero_volume(SHAPE, ranks.size, 3, itemsize=8)
    for difference, issued in ranks.run(both):
        assert difference < 1e-9
        gathered = sum(b for phase, op, b in issued if (phase, op) == ("forward", "all_gather"))
        reduced = sum(b for _, op, b in issued if op == "reduce_scatter")
        # FSDP2 pads each parameter instead of each unit.
        assert gathered == pytest.approx(expected[0].bytes, rel=0.02)
        assert reduced == pytest.approx(expected[2].bytes, rel=0.02)


def test_tensor_parallel_gives_the_loss_and_calls_of_dtensor(ranks):
    def both():
        from torch.distributed.tensor.parallel import (
            ColwiseParallel,
            RowwiseParallel,
            parallelize_module,
        )

        mesh = parallel.mesh(tp=torch.distributed.get_world_size())
        ours, theirs = (parallel.GPT(SHAPE).double() for _ in range(2))
        wrapped = parallel.TensorParallel(ours, mesh["tp"])
        for block in theirs.blocks:
            way = {"attention.qkv": ColwiseParallel(), "attention.out": RowwiseParallel(),
                   "mlp.up": ColwiseParallel(), "mlp.down": RowwiseParallel()}  # fmt: skip
            parallelize_module(block, mesh["tp"], way)
        ids, targets = parallel.batch(8, LENGTH)
        found = []
        for model in (wrapped, theirs):
            with measure.watch() as watched:
                loss = model(ids, targets)
                loss.backward()
            size = 8 * LENGTH * SHAPE.hidden * 8
            calls = {
                phase: sum(c.count for c in watched.issued
                           if c.phase == phase and c.op == "all_reduce" and c.bytes == size)
                for phase in ("forward", "backward")
            }  # fmt: skip
            found.append((float(loss.detach()), calls))
        return found

    for (our_loss, ours), (their_loss, theirs) in ranks.run(both):
        assert our_loss == pytest.approx(their_loss, abs=1e-12)
        assert theirs == {"forward": 2 * SHAPE.layers, "backward": 2 * SHAPE.layers}
        # Ours cuts the vocabulary too: one more for the embedding, one for the scores.
        assert ours == {phase: count + 1 for phase, count in theirs.items()}
