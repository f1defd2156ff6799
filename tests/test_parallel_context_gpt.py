"""A GPT whose sequence lies on many ranks against one process; its bytes; and torch's own ring."""

import builtins

import pytest
import torch
import torch.distributed as dist

from coursekit import measure, parallel, plan
from coursekit.plan import PlanError
from coursekit.ranks import RankFailed

from .parallel_help import farthest

ROWS, STEPS, EXACT = 4, 3, 1e-9
WAYS = {
    "ring": {"kind": "ring"},
    "zigzag": {"kind": "ring", "zigzag": True},
    "ulysses": {"kind": "ulysses"},
}
SHAPES = {
    "plain": {},
    "tied": {"tied": True},
    "experts": {"experts": 8, "top_k": 2, "expert_ffn": 24, "dense_layers": 1},
}
OPTIMIZERS = {
    "adamw": lambda params: torch.optim.AdamW(params, lr=1e-3),
    "sgd": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9),
}


def made(changes):
    return parallel.GPT(parallel.small(hidden=32, layers=3, **changes), balance=0.1).double()


def alone(length, optimizer="adamw", changes=()):
    model = made(dict(changes))
    opt = OPTIMIZERS[optimizer](model.parameters())
    for step in range(STEPS):
        opt.zero_grad()
        model(*parallel.batch(ROWS, length, seed=step)).backward()
        opt.step()
    return {n: p.detach() for n, p in model.named_parameters(remove_duplicate=False)}


def together(way, length, optimizer="adamw", changes=(), dp=0):
    """On ranks; with `dp`, rows over so many of them as well."""
    axes = {"dp": dp, "cp": dist.get_world_size() // dp} if dp else {"cp": dist.get_world_size()}
    mesh = parallel.mesh(**axes)
    wrapped = parallel.ContextParallel(made(dict(changes)), mesh["cp"], **WAYS[way])
    both = parallel.Flat(wrapped, mesh["dp"]) if dp else wrapped
    opt = OPTIMIZERS[optimizer](both.parameters())
    for step in range(STEPS):
        opt.zero_grad()
        ids, targets = parallel.batch(ROWS, length, seed=step)
        if dp:
            ids, targets = (parallel.share(x, mesh["dp"]) for x in (ids, targets))
        both(ids, targets).backward()
        both.finish()
        if dp:
            wrapped.finish()
        opt.step()
    named = wrapped.module.named_parameters(remove_duplicate=False)
    return {n: p.detach() for n, p in named}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("length", [16, 37])
@pytest.mark.parametrize("way", WAYS)
def test_it_is_one_process(ranks, way, length, optimizer):
    told = ranks.run(together, way, length, optimizer)
    assert farthest(told, alone(length, optimizer)) < EXACT


@pytest.mark.parametrize("changes", ["tied", "experts"])
@pytest.mark.parametrize("way", WAYS)
def test_other_shapes_are_one_process(ranks, way, changes):
    shape = SHAPES[changes]
    told = ranks.run(together, way, 19, changes=shape)
    assert farthest(told, alone(19, changes=shape)) < EXACT


@pytest.mark.parametrize("way", WAYS)
def test_it_stands_beside_data_parallelism(four, way):
    assert farthest(four.run(together, way, 19, dp=2), alone(19)) < EXACT


def with_experts_over_ranks():
    mesh = parallel.mesh(ep=2, cp=2)
    cut = parallel.ContextParallel(made(SHAPES["experts"]), mesh["cp"], zigzag=True)
    both = parallel.ExpertParallel(cut, mesh["ep"])
    opt = OPTIMIZERS["adamw"](both.parameters())
    for step in range(STEPS):
        opt.zero_grad()
        x, y = (parallel.share(w, mesh["ep"]) for w in parallel.batch(ROWS, 19, seed=step))
        both(x, y).backward()
        both.finish()
        cut.finish()
        opt.step()
    return {name.removeprefix("module."): p for name, p in both.full_state().items()}


def test_it_stands_beside_expert_parallelism(four):
    expected = alone(19, changes=SHAPES["experts"])
    assert farthest(four.run(with_experts_over_ranks), expected) < EXACT


def answers(way, length):
    wrapped = parallel.ContextParallel(made({}), **WAYS[way])
    ids, targets = parallel.batch(ROWS, length)
    return wrapped.places(length), wrapped(ids).detach(), wrapped(ids, targets).detach()


@pytest.mark.parametrize("way", WAYS)
def test_logits_are_of_the_ranks_places_and_losses_mean_the_whole(ranks, way):
    told = ranks.run(answers, way, 37)
    ids, targets = parallel.batch(ROWS, 37)
    model = made({})
    whole = model(ids).detach()
    for mine, logits, _ in told:
        assert float((logits - whole[:, mine]).abs().max()) < EXACT
    losses = torch.stack([loss for *_, loss in told])
    assert float(losses.mean()) == pytest.approx(float(model(ids, targets).detach()), abs=1e-12)
    assert sorted(torch.cat([mine for mine, *_ in told]).tolist()) == list(range(37))


def prepare(way, length, changes):
    """On a rank: a step, run once, so that connections are open."""
    wrapped = parallel.ContextParallel(made(changes), **WAYS[way])
    ids, targets = parallel.batch(ROWS, length)

    def step():
        wrapped(ids, targets).backward()
        wrapped.finish()

    builtins.kept = step
    step()


@pytest.mark.parametrize("changes", SHAPES.values(), ids=list(SHAPES))
@pytest.mark.parametrize("length", [32, 37])
@pytest.mark.parametrize("way", WAYS)
def test_predicted_is_issued(ranks, way, length, changes):
    ranks.run(prepare, way, length, changes)
    seen = measure.traffic(ranks, lambda: builtins.kept())
    shape = parallel.small(hidden=32, layers=3, **changes)
    volumes = plan.context_volume(
        shape, ranks.size, ROWS, length, kind=WAYS[way]["kind"], itemsize=8
    )
    told = seen.ledger(volumes)
    assert told.exact, told
    assert [line.phase for line in told.lines] == ["forward", "backward", "step"]
    if length == 32:
        assert seen.total == pytest.approx(told.issued, rel=0.05)


def test_what_a_block_sends():
    """Of all ranks: a ring 2(K-1) and 2(2K-1) activations, Ulysses 4(K-1)/K each way."""
    shape = parallel.small(layers=1)
    activation = 2 * 64 * 64 * 4
    ring = plan.context_volume(shape, 4, 2, 64)
    assert [(v.op, v.sent, v.calls) for v in ring[:2]] == [
        ("send", 2 * 3 * activation, 12),
        ("send", 2 * 7 * activation, 28),
    ]
    swaps = plan.context_volume(shape, 4, 2, 64, kind="ulysses")
    assert [(v.op, v.sent, v.calls) for v in swaps[:2]] == [
        ("all_to_all", 4 * 3 * activation // 4, 4)
    ] * 2
    # Fewer keys than queries make a ring cheaper, as Llama 3 has it.
    grouped = plan.Model("grouped", 1, 64, 4, 1, 256, 50)
    assert plan.context_volume(grouped, 4, 2, 64)[0].sent * 4 == ring[0].sent
    assert sum(v.sent for v in plan.context_volume(shape, 1, 2, 64)) == 0


def beside_torch(zigzag):
    """The ring of torch's context parallelism, with the CPU's attention inside: its differences."""
    from torch.distributed.tensor.experimental._context_parallel import _attention as theirs

    size = dist.get_world_size()
    made = torch.Generator().manual_seed(0)
    *whole, grad = (torch.randn(2, 4, 32, 8, generator=made).double() for _ in range(4))
    mine = parallel.places(32, dist.get_rank(), size, zigzag=zigzag)
    q, k, v, grad = (x[:, :, mine].contiguous() for x in (*whole, grad))
    theirs._cp_options.enable_load_balance = zigzag
    theirs._cp_options.convert_to_f32 = False
    fused = theirs.aten._scaled_dot_product_flash_attention_for_cpu
    fused_backward = theirs.aten._scaled_dot_product_flash_attention_for_cpu_backward

    def backward(query, key, value, out, logsumexp, is_causal, grad_out):
        return fused_backward(grad_out, query, key, value, out, logsumexp, 0.0, is_causal)

    group = dist.group.WORLD
    out, sums = theirs._templated_ring_attention(group, 2, fused, q, k, v, is_causal=True)
    grads = theirs._templated_ring_attention_backward(
        group, 2, backward, grad, "grad_out", q, k, v, out, sums, is_causal=True
    )
    own = [x.requires_grad_() for x in (q, k, v)]
    ours = parallel.ring_attention(*own, 32, zigzag=zigzag)
    ours.backward(grad)
    pairs = zip([out, *grads], [ours.detach(), *(x.grad for x in own)], strict=True)
    return [float((a - b).abs().max()) for a, b in pairs]


@pytest.mark.parametrize("zigzag", [False, True])
def test_it_is_torchs_ring(ranks, zigzag):
    """torch's load balancing is zigzag: head and tail."""
    assert max(map(max, ranks.run(beside_torch, zigzag))) < 1e-12


def with_torchs_context_manager():
    from torch.distributed.tensor.experimental import context_parallel

    q, k, v = (torch.randn(2, 4, 16, 8) for _ in range(3))
    with context_parallel(
        parallel.mesh(cp=dist.get_world_size()), buffers=[q, k, v], buffer_seq_dims=[2, 2, 2]
    ):
        torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def test_torchs_context_manager_knows_no_attention_on_the_cpu(two):
    """So its ring is called by itself above; when this runs through, compare with it instead."""
    with pytest.raises(
        RankFailed, match=r"flash_attention_for_cpu\.default does not have a sharding"
    ):
        two.run(with_torchs_context_manager)


def twice():
    model = made({})
    parallel.ContextParallel(model)
    parallel.ContextParallel(model)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (
            lambda: parallel.ContextParallel(made({}), kind="star"),
            "'ring' or 'ulysses', got 'star'",
        ),
        (
            lambda: parallel.ContextParallel(made({}), kind="ulysses", zigzag=True),
            "zigzag orders a ring, got kind='ulysses'",
        ),
        (
            lambda: parallel.ContextParallel(made({"heads": 2}), kind="ulysses"),
            "divides the 2 heads, got 4; take kind='ring'",
        ),
        (
            lambda: parallel.ContextParallel(torch.nn.Linear(2, 2)),
            "cuts a parallel.GPT, got Linear; for other models call parallel.ring_attention",
        ),
        (twice, "this model's sequence is cut already; wrap it once"),
        (
            lambda: parallel.ContextParallel(made({}))(torch.zeros(1, 3, dtype=torch.int64)),
            "got 3 tokens for 4 pieces; take a longer one, or fewer ranks",
        ),
        (
            lambda: parallel.ContextParallel(made({}))(torch.zeros(1, 65, dtype=torch.int64)),
            "a sequence must have at most 64 tokens, got 65",
        ),
        (
            lambda: parallel.ContextParallel(made({}))(
                torch.zeros(1, 8, dtype=torch.int64), torch.zeros(1, 2, dtype=torch.int64)
            ),
            "targets must be whole, as ids are, got (1, 2) for (1, 8)",
        ),
    ],
)
def test_bad_input_is_one_clear_error(four, call, told):
    with pytest.raises(RankFailed) as caught:
        four.run(call)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "given", "told"),
    [
        ({}, {"kind": "star"}, "kind must be 'ring' or 'ulysses', got 'star'"),
        ({}, {"sequence": 3}, "got a sequence of 3 for 4 ranks; try sequence=4"),
        ({}, {"batch": 0}, "batch must be a whole number from 1 up, got 0"),
        ({"heads": 2}, {"kind": "ulysses"}, "the model's 2 heads, got ranks=4; try ranks=2"),
        ({"kv_heads": 2}, {"kind": "ulysses"}, "got 2 kv_heads for 4 heads; take kind='ring'"),
        ({"attention": 9}, {}, "counted for the usual attention, got small GPT"),
    ],
)
def test_plans_refuse(changes, given, told):
    sizes = {"ranks": 4, "batch": ROWS, "sequence": 16, **given}
    with pytest.raises(PlanError) as caught:
        plan.context_volume(parallel.small(**changes), **sizes)
    assert told in str(caught.value)
