"""A GPT with experts on many ranks against the same one in one process, and the bytes it sends."""

import builtins
from dataclasses import replace

import pytest
import torch

from coursekit import measure, parallel, plan
from coursekit.plan import PlanError
from coursekit.ranks import RankFailed

from .parallel_help import farthest

LENGTH, ROWS, STEPS, EXACT = 12, 8, 4, 1e-9
SHAPE = {"hidden": 32, "layers": 3, "experts": 8, "top_k": 2, "expert_ffn": 24, "dense_layers": 1}
SHAPES = {
    "top2": {},
    "top1_tied": {"top_k": 1, "tied": True},
    "shared": {"shared_experts": 1, "dense_layers": 0},
}
OPTIMIZERS = {
    "adamw": lambda params: torch.optim.AdamW(params, lr=1e-3),
    "sgd": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9),
}


def made(changes=(), **options):
    shape = parallel.small(**{**SHAPE, **dict(changes)})
    return parallel.GPT(shape, **options).double()


def batches(rows):
    return [parallel.batch(rows, LENGTH, seed=step) for step in range(STEPS)]


def alone(rows, way, changes=(), pieces=1, **options):
    """One process; in `pieces`, each with a router's own room, as ranks have it."""
    model = made(changes, **options)
    opt = OPTIMIZERS[way](model.parameters())
    for ids, targets in batches(rows):
        opt.zero_grad()
        for own in torch.arange(rows).tensor_split(pieces):
            (model(ids[own], targets[own]) * len(own) / rows).backward()
        opt.step()
    return {n: p.detach() for n, p in model.named_parameters(remove_duplicate=False)}


def together(rows, way, changes=(), **options):
    wrapped = parallel.ExpertParallel(made(changes, **options))
    opt = OPTIMIZERS[way](wrapped.parameters())
    for ids, targets in batches(rows):
        opt.zero_grad()
        x, y = (parallel.share(whole, uneven=True) for whole in (ids, targets))
        parallel.weigh(wrapped(x, y), len(x), rows).backward()
        wrapped.finish()
        opt.step()
    return wrapped.full_state()


@pytest.mark.parametrize("changes", SHAPES.values(), ids=list(SHAPES))
def test_the_model_has_the_plans_parameters(changes):
    shape = parallel.small(**{**SHAPE, **changes})
    model = parallel.GPT(shape)
    assert sum(p.numel() for p in model.parameters()) == shape.parameters
    layers = [isinstance(block.mlp, parallel.Experts) for block in model.blocks]
    assert layers == [n >= shape.dense_layers for n in range(3)]
    inside = sum(p.numel() for b in model.blocks[-2:] for p in b.mlp.each.parameters())
    assert inside * shape.moe_layers == shape.expert_parameters * 2


def test_the_balance_is_added_with_its_weight():
    model, (ids, targets) = made(balance=0.25), parallel.batch(4, LENGTH)
    both = model(ids, targets).detach()
    balances = [block.mlp.routed.balance for block in model.blocks[1:]]
    model.balance = 0
    assert float(both - model(ids, targets).detach()) == pytest.approx(
        0.25 * float(sum(balances).detach())
    )
    (gradient,) = torch.autograd.grad(balances[0], model.blocks[1].mlp.router.score.weight)
    assert float(gradient.abs().max()) > 0


def test_equal_scores_go_to_the_first_experts():
    router = parallel.Router(16, 64, 3)
    torch.nn.init.zeros_(router.score.weight)
    assert router(torch.randn(40, 16)).chosen.tolist() == [[0, 1, 2]] * 40


@pytest.mark.parametrize("way", OPTIMIZERS)
@pytest.mark.parametrize("changes", SHAPES.values(), ids=list(SHAPES))
def test_it_is_one_process(ranks, changes, way):
    case = {"rows": ROWS, "way": way, "changes": changes, "balance": 0.1}
    assert farthest(ranks.run(together, **case), alone(**case)) < EXACT


def test_uneven_parts_are_one_process(ranks):
    case = {"rows": 7, "way": "adamw", "balance": 0.1}
    assert farthest(ranks.run(together, **case), alone(**case)) < EXACT


def test_a_favourite_expert_is_one_process(ranks):
    case = {"rows": ROWS, "way": "adamw", "balance": 0.1, "skew": 9.0}
    assert farthest(ranks.run(together, **case), alone(**case)) < EXACT


def test_capacity_is_each_ranks_own(ranks):
    """As in one process that takes the ranks' parts in turn; then its balance is each part's."""
    case = {"rows": ROWS, "way": "adamw", "balance": 0.0, "capacity": 0.75, "skew": 1.0}
    expected = alone(**case, pieces=ranks.size)
    assert farthest(ranks.run(together, **case), expected) < EXACT
    assert farthest([alone(**case)], expected) > 1e-6


def on_a_mesh():
    """Experts over two ranks, and two of these pairs."""
    mesh = parallel.mesh(dp=2, ep=2)
    model = made(balance=0.1)
    wrapped = parallel.ExpertParallel(model, mesh["ep"])
    for block in model.blocks[1:]:
        block.mlp.router.counted_over.append(mesh["dp"].get_group())
    both = parallel.Bucketed(wrapped, mesh["dp"])
    opt = OPTIMIZERS["adamw"](both.parameters())
    for ids, targets in batches(ROWS):
        opt.zero_grad()
        x, y = (parallel.share(whole) for whole in (ids, targets))
        both(x, y).backward()
        both.finish()
        wrapped.finish()
        opt.step()
    return wrapped.full_state()


def test_it_stands_beside_data_parallelism(four):
    assert farthest(four.run(on_a_mesh), alone(ROWS, "adamw", balance=0.1)) < EXACT


def with_whole_experts(way, rows):
    """Every rank has all experts: only the balance must hear of the others' tokens."""
    model = made(balance=0.1)
    if way == "Bucketed":
        wrapped = parallel.Bucketed(model, bucket_mib=0.02)
        opt = OPTIMIZERS["adamw"](model.parameters())
    else:
        wrapped = parallel.Zero(model, OPTIMIZERS["adamw"], stage=3)
    for block in model.blocks[1:]:
        block.mlp.router.counted_over.append(wrapped.group)
    for ids, targets in batches(rows):
        x, y = (parallel.share(whole, uneven=True) for whole in (ids, targets))
        parallel.weigh(wrapped(x, y), len(x), rows).backward()
        if way == "Bucketed":
            wrapped.finish()
            opt.step()
            opt.zero_grad()
        else:
            wrapped.step()
    if way == "Zero":
        return wrapped.full_state()
    return {n: p.detach() for n, p in model.named_parameters(remove_duplicate=False)}


@pytest.mark.parametrize("way", ["Bucketed", "Zero"])
def test_whole_experts_are_one_process_in_other_modes(ranks, way):
    told = ranks.run(with_whole_experts, way, 7)
    assert farthest(told, alone(7, "adamw", balance=0.1)) < EXACT


class Even(parallel.Router):
    """Choices go round: as many to every expert."""

    def __init__(self):
        raise NotImplementedError

    def forward(self, tokens):
        told = super().forward(tokens)
        chosen = torch.arange(told.chosen.numel()).view_as(told.chosen) % len(self.skew)
        load = torch.bincount(chosen.flatten(), minlength=len(self.skew))
        return replace(told, chosen=chosen, load=load)


def prepare(skew, even, changes):
    """On a rank: a step, run once, so that connections are open."""
    wrapped = parallel.ExpertParallel(made(changes, skew=skew))
    for block in wrapped.module.blocks:
        if even and isinstance(block.mlp, parallel.Experts):
            block.mlp.router.__class__ = Even
    x, y = (parallel.share(whole) for whole in parallel.batch(ROWS, LENGTH))

    def step():
        wrapped(x, y).backward()
        wrapped.finish()
        return wrapped.received.sum(2).tolist()

    builtins.kept = step
    step()


def step_of(ranks, skew=0.0, even=False, changes=()):
    """What a step sent, and tokens by layer, sender, receiver."""
    ranks.run(prepare, skew, even, changes)
    seen = measure.traffic(ranks, lambda: builtins.kept())
    return seen, torch.tensor(seen.results).permute(1, 2, 0)


@pytest.mark.parametrize("changes", SHAPES.values(), ids=list(SHAPES))
@pytest.mark.parametrize("skew", [0.0, 30.0])
def test_predicted_is_issued_for_the_counts_that_were_measured(ranks, skew, changes):
    seen, counts = step_of(ranks, skew, changes=changes)
    shape = parallel.small(**{**SHAPE, **changes})
    volumes = plan.expert_volume(
        shape, ranks.size, ROWS, LENGTH, counts=counts.tolist(), itemsize=8
    )
    told = seen.ledger(volumes)
    assert told.exact, told
    assert [line.phase for line in told.lines] == ["forward", "backward", "step"]
    assert (counts.sum((1, 2)) == ROWS * LENGTH * shape.top_k).all()


def test_predicted_is_issued_and_on_the_wire_for_an_even_router(ranks):
    seen, counts = step_of(ranks, even=True)
    size, shape = ranks.size, parallel.small(**SHAPE)
    assert (counts == ROWS * LENGTH * 2 // size**2).all()
    even = plan.expert_volume(shape, size, ROWS, LENGTH, itemsize=8)
    assert even == plan.expert_volume(shape, size, ROWS, LENGTH, counts=counts.tolist(), itemsize=8)
    told = seen.ledger(even)
    assert told.exact, told
    # Two layers, there and back, forward and backward.
    rows = ROWS * LENGTH * 2 * (size - 1) // size
    assert sum(v.sent for v in even if v.op == "all_to_all") == 8 * rows * 32 * 8 + 2 * 64 * (
        size - 1
    )
    assert seen.total == pytest.approx(told.issued, rel=0.05)


def test_an_uneven_exchange_has_sizes_of_the_larger_buffers(four):
    _, counts = step_of(four, skew=30.0)
    shape = parallel.small(**SHAPE)
    (ways,) = {
        v.bytes
        for v in plan.expert_volume(shape, 4, ROWS, LENGTH, counts=counts.tolist())
        if v.op == "all_to_all_v"
    }
    larger = torch.maximum(counts.sum(2), counts.sum(1))
    assert ways == 2 * int(larger.sum()) * shape.hidden * 4
    assert plan.Volume("ep", "forward", "all_to_all_v", 10, 1, 4).sent == 8


def cut_with_ten():
    return parallel.ExpertParallel(made({"experts": 10}))


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (cut_with_ten, "the ranks must divide the 10 experts, got 4; take 12 experts"),
        (
            lambda: parallel.ExpertParallel(parallel.GPT(parallel.small())),
            "cuts parallel.Experts, got GPT; give it the experts of a block, or a GPT whose shape",
        ),
        (
            lambda: parallel.ExpertParallel(parallel.ExpertParallel(made()).module),
            "these experts are cut already; wrap them once",
        ),
        (
            lambda: parallel.ExpertParallel(made(seed=torch.distributed.get_rank())),
            "all ranks must start from the same parameters",
        ),
    ],
)
def test_bad_input_is_one_clear_error(four, call, told):
    with pytest.raises(RankFailed, match="ParallelError") as caught:
        four.run(call)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "given", "told"),
    [
        ({"experts": 0, "top_k": 0}, {}, "needs a shape with experts, got small GPT"),
        ({"experts": 6}, {}, "ranks must divide the model's 6 experts, got ranks=4; try ranks=3"),
        ({}, {"batch": 3}, "got 72 choices for 4 x 4 ways; try a batch that 16 divides, or give"),
        ({}, {"counts": [[[1, 2], [3, 4]]]}, "by layer, sender, receiver: 2 x 4 x 4, got 1"),
        ({}, {"batch": 0}, "batch must be a whole number from 1 up, got 0"),
    ],
)
def test_plans_refuse(changes, given, told):
    shape = parallel.small(**{**SHAPE, **changes})
    sizes = {"ranks": 4, "batch": ROWS, "sequence": LENGTH, **given}
    with pytest.raises(PlanError) as caught:
        plan.expert_volume(shape, **sizes)
    assert told in str(caught.value)
