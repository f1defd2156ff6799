"""Experts on many ranks against the same experts in one process."""

import pytest
import torch
import torch.distributed as dist

from coursekit import parallel
from coursekit.ranks import RankFailed

ROWS, LENGTH, WIDTH = 8, 5, 16


def experts(**options):
    torch.manual_seed(3)
    return parallel.Experts(WIDTH, 32, 8, **options).double()


def rows(step):
    made = torch.Generator().manual_seed(step)
    return torch.randn(ROWS, LENGTH, WIDTH, generator=made, dtype=torch.float64)


def together(options):
    """Five steps on the rank's part of the rows; the experts that it has, and the rest."""
    module = parallel.ExpertParallel(experts(**options))
    opt = torch.optim.AdamW(module.parameters(), lr=1e-2)
    for step in range(5):
        opt.zero_grad()
        x = parallel.share(rows(step))
        (module(x) - x.roll(1, -1)).square().mean().backward()
        module.finish()
        opt.step()
    first = dist.get_rank() * len(module.module.each)
    state = {}
    for name, p in module.module.named_parameters():
        kind, *rest = name.split(".")
        if kind == "each":
            rest[0] = str(int(rest[0]) + first)
        state[".".join([kind, *rest])] = p.detach()
    return state


@pytest.mark.parametrize(
    "options",
    [{}, {"top_k": 1}, {"shared": 1}, {"skew": 9.0}, {"top_k": 8}],
    ids=["top2", "top1", "shared", "skewed", "all"],
)
def test_it_is_one_process(ranks, options):
    module = experts(**options)
    opt = torch.optim.AdamW(module.parameters(), lr=1e-2)
    for step in range(5):
        opt.zero_grad()
        x = rows(step)
        (module(x) - x.roll(1, -1)).square().mean().backward()
        for p in module.parameters():
            # An expert without tokens: on ranks it has a gradient of zeros.
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        opt.step()
    one = {name: p.detach() for name, p in module.named_parameters()}
    seen = set()
    for state in ranks.run(together, options):
        seen |= set(state)
        for name, p in state.items():
            assert float((p - one[name]).abs().max()) < 1e-9, name
    assert seen == set(one)


@pytest.mark.parametrize(
    "options", [{}, {"top_k": 1}, {"shared": 2}, {"capacity": 0.5, "skew": 2.0}], ids=str
)
def test_it_is_what_a_loop_over_tokens_finds(options):
    module = experts(**options)
    x, k = rows(0).flatten(0, 1), options.get("top_k", 2)
    room = -(-len(x) * k // 16) if "capacity" in options else len(x) * k
    taken, found = [0] * 8, []
    scores = x @ module.router.score.weight.T + module.router.skew
    for token, row in zip(x, scores, strict=True):
        best = row.argsort(descending=True)[:k]
        answer = sum((expert(token) for expert in module.shared), torch.zeros_like(token))
        for weight, number in zip(row[best].softmax(0), best.tolist(), strict=True):
            if taken[number] < room:
                taken[number] += 1
                answer = answer + weight * module.each[number](token)
        found.append(answer)
    assert torch.allclose(module(rows(0)), torch.stack(found).view(rows(0).shape), atol=1e-12)
    assert module.routed.load.tolist() == taken
    chosen = torch.bincount(scores.topk(k).indices.flatten(), minlength=8) / (len(x) * k)
    even = 8 * (chosen * scores.softmax(1).mean(0)).sum()
    assert float(module.routed.balance.detach()) == pytest.approx(float(even.detach()))


def round_trip(skew):
    module = parallel.ExpertParallel(experts(skew=skew, top_k=1))
    x = torch.randn(40, WIDTH, dtype=torch.float64)
    routed = module.module.router(x)
    order = routed.chosen.flatten().argsort(stable=True)
    there = module.dispatch(x[order], routed.load)
    back = module.combine(there, routed.load)
    return torch.equal(back, x[order]), len(there), module.received.sum().item()


@pytest.mark.parametrize("skew", [0.0, 50.0])
def test_the_round_trip_is_exact(ranks, skew):
    told = ranks.run(round_trip, skew)
    assert all(same for same, _, _ in told)
    assert sum(count for _, count, _ in told) == 40 * ranks.size
    assert all(count == received for _, count, received in told)
    if skew:
        assert told[0][1] == 40 * ranks.size


def test_a_full_expert_takes_no_more():
    x = rows(0).flatten(0, 1)
    routed = experts(capacity=1.0, skew=50.0).router(x)
    assert int(routed.load.max()) == len(x) * 2 // 8
    assert int(routed.load.sum()) == int(routed.kept.sum()) < routed.kept.numel()
    # First come, first served.
    assert routed.kept[: len(x) * 2 // 8].all()
    assert not routed.kept[len(x) * 2 // 8 :][:, 0].any()


def test_balance_is_one_for_a_router_without_favourites_and_more_for_one_with():
    even = experts()
    torch.nn.init.zeros_(even.router.score.weight)
    x = rows(0).flatten(0, 1)
    assert float(even.router(x).balance.detach()) == pytest.approx(1)
    assert float(experts(skew=50.0).router(x).balance.detach()) > 3


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: parallel.Experts(8, 8, 4, 5), "from 1 to the 4 experts, got 5"),
        (lambda: parallel.Experts(8, 8, 4, capacity=0), "capacity must be above 0, got 0"),
        (
            lambda: parallel.ExpertParallel(parallel.Experts(8, 8, 6)),
            "must divide the 6 experts, got 4; take 8 experts",
        ),
        (
            lambda: parallel.ExpertParallel(torch.nn.Linear(2, 2)),
            "cuts parallel.Experts, got Linear; give it the experts",
        ),
        (
            lambda: parallel.ExpertParallel(parallel.ExpertParallel(experts()).module),
            "cut already; wrap them once",
        ),
        (
            lambda: parallel.ExpertParallel(parallel.Experts(8, 8, 4)),
            "all ranks must start from the same parameters",
        ),
    ],
)
def test_bad_input_is_one_clear_error(four, call, told):
    def seeded():
        torch.manual_seed(dist.get_rank())
        call()

    with pytest.raises(RankFailed) as caught:
        four.run(seeded)
    assert "ParallelError" in str(caught.value)
    assert told in str(caught.value)
