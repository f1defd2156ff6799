"""What learners do wrong: one clear error each, on every rank that can know, and no hang."""

import pytest
import torch

from coursekit import measure, parallel, pipeline, show
from coursekit.ranks import RankFailed

SHAPE = parallel.small(hidden=32)


def told(ranks, fn, *args):
    """The error of the ranks; afterwards they still work together."""
    with pytest.raises(RankFailed) as caught:
        ranks.run(fn, *args, timeout=20)
    words = str(caught.value)
    assert "ParallelError" in words
    assert ranks.run(lambda: dist.get_world_size()) == [4] * 4  # noqa: F821
    return words


def gpt(**changes):
    return parallel.GPT(parallel.small(hidden=32, **changes))


def test_a_batch_that_does_not_divide(four):
    words = told(four, lambda: parallel.share(torch.zeros(10, 3)))
    assert "4 ranks must divide the batch, got 10 rows; give 8" in words
    words = told(four, lambda: parallel.share(torch.zeros(3, 3), uneven=True))
    assert "every rank needs a row, got 3 rows for 4 ranks" in words


def test_uneven_shares_cover_the_batch_once(four):
    parts = four.run(lambda: parallel.share(torch.arange(10), uneven=True).tolist())
    assert parts == [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]


def test_heads_that_do_not_divide(four):
    words = told(four, lambda: parallel.TensorParallel(gpt(heads=2)))
    assert "the tensor-parallel size must divide the heads 2, got 4; try 1, 2" in words
    words = told(four, lambda: parallel.TensorParallel(gpt(ffn=66)))
    assert "must divide the ffn 66, got 4" in words


def test_sequence_that_does_not_divide(four):
    def run():
        wrapped = parallel.TensorParallel(gpt(), sequence=True)
        wrapped(*parallel.batch(2, 15))

    assert "must divide the sequence, got 15 tokens" in told(four, run)


WRAPS = {
    "Naive": lambda model: parallel.Naive(model),
    "Bucketed": lambda model: parallel.Bucketed(model),
    "Zero": lambda model: parallel.Zero(model, torch.optim.SGD, stage=2),
    "TensorParallel": lambda model: parallel.TensorParallel(model),
    "LayerWise": lambda model: parallel.LayerWise(model),
}


@pytest.mark.parametrize("name", WRAPS)
def test_ranks_with_different_parameters(four, name):
    def run(wrap):
        wrap(parallel.GPT(parallel.small(hidden=32), seed=int(rank == 2)))  # noqa: F821

    words = told(four, run, WRAPS[name])
    assert "all ranks must start from the same parameters, got embed." in words
    assert "on rank 2 unlike rank 0's" in words


def test_ranks_with_different_models(four):
    def run():
        parallel.Naive(gpt(layers=2 if rank == 1 else 4))  # noqa: F821

    assert "all ranks must wrap the same model, got models of" in told(four, run)


@pytest.mark.parametrize("name", ["Naive", "Bucketed", "Zero"])
def test_a_module_cast_after_wrapping(four, name):
    def run(wrap):
        wrapped = wrap(gpt())
        wrapped.double()
        wrapped(*parallel.batch(4, 8))

    words = told(four, run, WRAPS[name])
    assert "must not move, be cast or be rebuilt after it was wrapped" in words
    assert "from torch.float32 on cpu to torch.float64 on cpu" in words


def test_a_parameter_replaced_after_wrapping(four):
    def run():
        model = gpt()
        wrapped = parallel.Bucketed(model)
        model.head.vocab.weight = torch.nn.Parameter(torch.zeros(50, 32))
        wrapped(*parallel.batch(4, 8))

    assert "head.vocab.weight is another parameter than the one" in told(four, run)


@pytest.mark.parametrize("name", ["Naive", "Bucketed", "Zero"])
def test_an_unused_parameter_is_named_where_it_is_missing(four, name):
    def run(wrap):
        model = gpt()
        model.extra = torch.nn.Linear(2, 2)
        wrapped = wrap(model)
        loss = wrapped(*parallel.batch(4, 8))
        if rank != 1:  # noqa: F821
            loss = loss + model.extra(torch.ones(2)).sum()
        loss.backward()
        (wrapped.step if hasattr(wrapped, "step") else wrapped.finish)()

    words = told(four, run, WRAPS[name])
    assert "got none for extra.weight (2 in all) on rank 1; give unused=True" in words


def test_two_backwards_without_no_sync(four):
    def run():
        wrapped = parallel.Bucketed(gpt())
        wrapped(*parallel.batch(4, 8)).backward()
        wrapped(*parallel.batch(4, 8)).backward()

    assert "finish() must follow the backward whose gradients travel" in told(four, run)


def test_choices_that_do_not_exist(four):
    cases = {
        lambda: parallel.Zero(gpt(), torch.optim.SGD, stage=0): "stage must be 1, 2 or 3, got 0",
        lambda: parallel.Zero(gpt(), torch.optim.SGD, collectives="mine"): "'own' or 'library'",
        lambda: parallel.Bucketed(gpt(), bucket_mib=0): "buckets must be larger than 0 MiB",
        lambda: parallel.LayerWise(gpt(layers=2)): "every rank needs a block, got 2 blocks for 4",
        lambda: parallel.mesh(dp=3): "product must be the world size 4, got dp=3: 3",
        lambda: parallel.Naive(gpt(), parallel.mesh(dp=2, tp=2)): "pick one: mesh['dp']",
        lambda: parallel.Naive(gpt(), "dp"): "process group or one axis of a mesh, got str",
        lambda: parallel.TensorParallel(torch.nn.Linear(2, 2)): "cuts a parallel.GPT, got Linear",
        lambda: parallel.LayerWise(torch.nn.Linear(2, 2)): "cut from a parallel.GPT, got Linear",
        lambda: parallel.TensorParallel(parallel.TensorParallel(gpt()).module): "wrap it once",
        lambda: parallel.Zero(
            parallel.TensorParallel(gpt(), sequence=True), torch.optim.SGD
        ): "got sequence parallelism",
    }
    for fn, words in cases.items():
        assert words in told(four, fn)


def test_without_ranks():
    for fn in (parallel.group_of, parallel.mesh):
        with pytest.raises(parallel.ParallelError, match="call it inside"):
            fn()


def test_the_model_refuses_shapes_that_it_is_not_for():
    from coursekit import plan

    with pytest.raises(parallel.ParallelError, match="start from parallel"):
        parallel.GPT(plan.model("llama2-7b"))
    with pytest.raises(parallel.ParallelError, match="at most 64 tokens, got 65"):
        parallel.GPT(SHAPE)(torch.zeros(1, 65, dtype=torch.int64))


def test_the_text_refuses_what_it_does_not_have():
    with pytest.raises(parallel.ParallelError, match="got '#'"):
        parallel.encode("a#")
    with pytest.raises(parallel.ParallelError, match="got 0 rows of 8"):
        parallel.batch(0, 8)
    assert parallel.decode(parallel.encode("ring")) == "ring"


def test_equal_seeds_give_equal_models_and_leave_the_generator_alone():
    before = torch.random.get_rng_state()
    one, two = parallel.GPT(SHAPE, seed=3), parallel.GPT(SHAPE, seed=3)
    assert torch.equal(torch.random.get_rng_state(), before)
    pairs = zip(one.parameters(), two.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_it_learns():
    """One process, 60 steps: well below the loss of guessing by frequency, about 3."""
    model = parallel.GPT(parallel.small(layers=2))
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(60):
        opt.zero_grad()
        loss = model(*parallel.batch(16, 32, seed=step))
        loss.backward()
        opt.step()
    assert loss < 2.6


def test_a_clock_and_its_picture():
    clock = measure.Clock(1)
    clock.add("compute", "forward", 0.0, 1.0)
    clock.add("communicate", "wait", 1.0, 4.0)
    assert measure.utilisation([clock.spans]) == [0.25]
    drawn = show.gantt([clock.spans])
    assert list(drawn.data[0].y) == ["rank 1 computes, busy 25%"]
    clock.clear()
    with pytest.raises(ValueError, match="gantt needs spans"):
        show.gantt([clock.spans])


def test_layerwise_uses_at_most_its_share(four):
    """Only one rank computes at a time: shares of the time add up to at most one."""

    def run():
        wrapped = parallel.LayerWise(gpt())
        wrapped.forward_backward(*parallel.batch(8, 32))
        wrapped.clock.clear()
        dist.barrier()  # noqa: F821
        wrapped.forward_backward(*parallel.batch(8, 32))
        return wrapped.clock.spans

    shares = measure.utilisation(four.run(run))
    assert 0 < sum(shares) <= 1.02


def test_pictures_say_what_they_were_given():
    from coursekit import plan

    memory = plan.gpu_memory(SHAPE, dp=4, zero=1, policy="fp32")
    held = {"weights": 1024, "gradients": 2048, "optimizer": 512}
    drawn = show.stages({1: held}, {1: memory})
    assert [bar.y[0] for bar in drawn.data[:3]] == [1.0, 2.0, 0.5]
    assert drawn.data[3].y[0] == pytest.approx(memory.total / 1024, abs=0.1)
    with pytest.raises(ValueError, match="same stages"):
        show.stages({1: held}, {2: memory})
    drawn = show.shards([(8, 4)] * 2, [(4, 8)] * 2)
    assert len(drawn.layout.shapes) == 1 + 2 + 2 + 2 + 1
    with pytest.raises(ValueError, match="outputs must be the second"):
        show.shards([(8, 4)] * 2, [(4, 9)] * 2)
    drawn = show.saturation({2: 1 << 20, 4: 3 << 19}, {2: 1 << 20}, 1 << 21)
    assert list(drawn.data[0].y) == [1.0, 1.5]
    assert list(drawn.data[1].y) == [2.0, 6.0]


def test_an_error_shows_the_learners_line_and_none_of_ours(four):
    def mine():
        parallel.mesh(dp=3)

    words = told(four, mine)
    assert "parallel.mesh(dp=3)" in words
    assert "coursekit.parallel.ParallelError: the degrees'" in words
    assert "_group.py" not in words


@pytest.mark.parametrize(
    "cut",
    [
        lambda model: parallel.TensorParallel(model),
        lambda model: parallel.LayerWise(model),
        lambda model: parallel.Pipeline(model, pipeline.build("gpipe", 4, 4)),
    ],
    ids=["TensorParallel", "LayerWise", "Pipeline"],
)
def test_experts_where_nothing_spreads_them(four, cut):
    words = told(four, lambda: cut(gpt(experts=4, top_k=2)))
    assert "got 4" in words
    assert "parallel.ExpertParallel" in words
