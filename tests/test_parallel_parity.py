"""Five steps of the small GPT: each mode against the same model on one process.

In float64 the sums' order may cost about 1e-16 a sum, and AdamW divides by gradients' sizes: what
a bug would do is far above what 1e-9 allows. In float32 five steps of SGD with weights of about 1
may differ by some roundings of 1e-7. (AdamW would not do there: it makes a whole step of a gradient
that is zero but for rounding, as the keys' biases have.)
"""

import pytest
import torch

from coursekit import parallel

from .parallel_help import CASES, LENGTH, STEPS, UNEVEN, Case, alone, farthest, optimizer, trained

EXACT = 1e-9


def data_parallel(way, case, **options):
    model = case.make()
    unused = bool(case.skip)
    wrapped = getattr(parallel, way)(model, unused=unused, **options)
    opt = optimizer(trained(model))
    rank, size = wrapped.group.rank(), wrapped.size
    for step in range(STEPS):
        opt.zero_grad()
        case.skips(model, step, rank)
        ids, targets = (
            parallel.share(whole, uneven=True)
            for whole in parallel.batch(case.rows, LENGTH, seed=step)
        )
        pieces = torch.arange(len(ids)).tensor_split(case.micro)
        for number, rows in enumerate(pieces):
            last = number == len(pieces) - 1
            loss = wrapped(ids[rows], targets[rows])
            loss = parallel.weigh(loss, len(rows), case.rows)
            if way == "Bucketed" and not last:
                with wrapped.no_sync():
                    loss.backward()
            else:
                loss.backward()
        wrapped.finish()
        opt.step()
    assert size == torch.distributed.get_world_size()
    return {n: p.detach() for n, p in model.named_parameters(remove_duplicate=False)}


def zero(stage, case, collectives="own"):
    model = case.make()
    wrapped = parallel.Zero(
        model, optimizer, stage=stage, unused=bool(case.skip), collectives=collectives
    )
    for step in range(STEPS):
        case.skips(model, step, wrapped.group.rank())
        ids, targets = (
            parallel.share(whole, uneven=True)
            for whole in parallel.batch(case.rows, LENGTH, seed=step)
        )
        for rows in torch.arange(len(ids)).tensor_split(case.micro):
            loss = wrapped(ids[rows], targets[rows])
            parallel.weigh(loss, len(rows), case.rows).backward()
        wrapped.step()
    return wrapped.full_state()


def layerwise(case):
    wrapped = parallel.LayerWise(case.make())
    opt = optimizer(trained(wrapped))
    for step in range(STEPS):
        opt.zero_grad()
        case.skips(wrapped.module, step, None)
        ids, targets = parallel.batch(case.rows, LENGTH, seed=step)
        for rows in torch.arange(case.rows).tensor_split(case.micro):
            wrapped.forward_backward(ids[rows], targets[rows], len(rows) / case.rows)
        wrapped.finish()
        opt.step()
    return wrapped.full_state()


def tensor(case, sequence, dp=1):
    mesh = parallel.mesh(dp=dp, tp=torch.distributed.get_world_size() // dp)
    model = case.make()
    wrapped = parallel.TensorParallel(model, mesh["tp"], sequence=sequence)
    both = parallel.Bucketed(wrapped, mesh["dp"], bucket_mib=0.02, unused=bool(case.skip))
    opt = optimizer(trained(model))
    for step in range(STEPS):
        opt.zero_grad()
        case.skips(model, step, None)
        ids, targets = (
            parallel.share(whole, mesh["dp"], uneven=True)
            for whole in parallel.batch(case.rows, LENGTH, seed=step)
        )
        pieces = torch.arange(len(ids)).tensor_split(case.micro)
        for number, rows in enumerate(pieces):
            loss = parallel.weigh(both(ids[rows], targets[rows]), len(rows), case.rows, mesh["dp"])
            if number < len(pieces) - 1:
                with both.no_sync():
                    loss.backward()
            else:
                loss.backward()
        both.finish()
        wrapped.finish()
        opt.step()
    return wrapped.full_state()


@pytest.mark.parametrize("name", [*CASES, *UNEVEN])
@pytest.mark.parametrize("way", ["Naive", "Flat", "Bucketed"])
def test_data_parallel_is_one_process(ranks, way, name):
    case = {**CASES, **UNEVEN}[name]
    options = {"bucket_mib": 0.02, "first_mib": 0.005} if way == "Bucketed" else {}
    assert farthest(ranks.run(data_parallel, way, case, **options), alone(case, ranks.size)) < EXACT


@pytest.mark.parametrize("name", [*CASES, *UNEVEN])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_zero_is_one_process(ranks, stage, name):
    case = {**CASES, **UNEVEN}[name]
    assert farthest(ranks.run(zero, stage, case), alone(case, ranks.size)) < EXACT


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_zero_with_the_backends_collectives(four, stage):
    assert farthest(four.run(zero, stage, CASES["plain"], "library"), alone(CASES["plain"])) < EXACT


@pytest.mark.parametrize("name", [*CASES, "uneven"])
def test_layerwise_is_one_process(ranks, name):
    case = {**CASES, **UNEVEN}[name]
    assert farthest(ranks.run(layerwise, case), alone(case)) < EXACT


@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("name", [*CASES, "uneven"])
def test_tensor_parallel_is_one_process(ranks, name, sequence):
    case = {**CASES, **UNEVEN}[name]
    assert farthest(ranks.run(tensor, case, sequence), alone(case)) < EXACT


@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("name", [*CASES, "uneven"])
def test_data_and_tensor_parallel_together(four, name, sequence):
    case = {**CASES, **UNEVEN}[name]
    assert farthest(four.run(tensor, case, sequence, dp=2), alone(case, 2)) < EXACT


def test_float32_differs_by_no_more_than_rounding_explains(four):
    case = Case(dtype=torch.float32)
    expected = alone(case)
    for fn, given in ((data_parallel, ("Bucketed", case)), (zero, (3, case)), (layerwise, (case,))):
        assert farthest(four.run(fn, *given), expected) < 2e-6
    assert farthest(four.run(tensor, case, True), expected) < 2e-6


def test_a_compressed_sum_is_near_and_not_equal(four):
    """bf16 keeps 8 bits: a gradient is off by up to 2**-9 of itself, then once more per sum."""

    def grads(compress):
        model = parallel.GPT(parallel.small(hidden=32))
        wrapped = parallel.Bucketed(model, compress=compress)
        ids, targets = parallel.batch(8, LENGTH)
        wrapped(parallel.share(ids), parallel.share(targets)).backward()
        wrapped.finish()
        return torch.cat([p.grad.flatten() for p in model.parameters()])

    whole, narrow = (four.run(grads, dtype)[0] for dtype in (None, torch.bfloat16))
    error = float((whole - narrow).norm() / whole.norm())
    assert 1e-4 < error < 4 * 2**-9
