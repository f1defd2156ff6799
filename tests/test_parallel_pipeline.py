"""Pipelines on ranks: against one process, against torch's, together with the other modes."""

import builtins
import contextlib

import pytest
import torch
import torch.distributed as dist

from coursekit import Ranks, measure, parallel, pipeline, plan
from coursekit.parallel import ParallelError

from .parallel_help import LENGTH, Case, alone, farthest, optimizer, trained

# ruff: noqa: F821 - rank, size and dist are names of the ranks

EXACT = 1e-9
BATCH = 8
MODELS = {
    "plain": Case(),
    "tied": Case(shape=(("tied", True), ("vocab", 51))),
    "frozen": Case(frozen=("embed", "blocks.1.mlp", "blocks.2")),
    "frozen_head": Case(frozen=("head.vocab", "blocks.3.attention.qkv.bias")),
}


def deep(case, layers=8):
    return Case(shape=(*case.shape, ("layers", layers)), frozen=case.frozen)


def piped(case, name, micro, chunks=1):
    schedule = pipeline.build(name, dist.get_world_size(), micro, chunks)
    pipe = parallel.Pipeline(case.make(), schedule)
    opt = optimizer(trained(pipe))
    for step in range(5):
        opt.zero_grad()
        loss = pipe.forward_backward(*parallel.batch(BATCH, LENGTH, seed=step))
        pipe.finish()
        opt.step()
    assert (loss is None) == (pipe.rank < pipe.size - 1)
    return pipe.full_state(), pipe.peak, None if loss is None else float(loss)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("name", "micro", "chunks"),
    [("naive", 2, 1), ("gpipe", 4, 1), ("1f1b", 8, 1), ("1f1b", 1, 1), ("interleaved", 4, 2),
     ("interleaved", 8, 2), ("zb-h1", 8, 1), ("zb-h1", 2, 1)],
)  # fmt: skip
def test_every_schedule_is_one_process(four, model, name, micro, chunks):
    case = deep(MODELS[model])
    told = four.run(piped, case, name, micro, chunks)
    assert farthest([state for state, _, _ in told], alone(case)) < EXACT
    assert [peak for _, peak, _ in told] == pipeline.peak(pipeline.build(name, 4, micro, chunks))


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb-h1"])
def test_the_same_on_two_ranks(two, name):
    case = deep(MODELS["tied"], 3)
    assert farthest([told[0] for told in two.run(piped, case, name, 4)], alone(case)) < EXACT


def peer(name, micro):
    """torch.distributed.pipelining on the same stages."""
    from torch.distributed import pipelining

    class Part(torch.nn.Module):
        def __init__(self, model, stage, stages):
            super().__init__()
            each = len(model.blocks) // stages
            self.embed = model.embed if stage == 0 else None
            self.blocks = model.blocks[stage * each : (stage + 1) * each]
            self.head = model.head if stage == stages - 1 else None

        def forward(self, x):
            x = x if self.embed is None else self.embed(x)
            for block in self.blocks:
                x = block(x)
            return x if self.head is None else self.head(x)

    case = deep(MODELS["plain"], 4)
    ids, targets = parallel.batch(BATCH, LENGTH)
    rank, size = dist.get_rank(), dist.get_world_size()
    part = Part(case.make(), rank, size)
    stage = pipelining.PipelineStage(part, rank, size, torch.device("cpu"))
    way = {"gpipe": pipelining.ScheduleGPipe, "1f1b": pipelining.Schedule1F1B}[name]
    losses = []
    run = way(stage, micro, loss_fn=parallel.gpt.CrossEntropy())
    run.step(*([ids] if rank == 0 else []), target=targets, losses=losses)
    theirs = {name: p.grad for name, p in part.named_parameters()}
    pipe = parallel.Pipeline(case.make(), pipeline.build(name, size, micro))
    loss = pipe.forward_backward(ids, targets)
    # Theirs has this rank's block alone, so that its number is always 0.
    ours = {
        name.replace(f"blocks.{rank}", "blocks.0"): p.grad
        for name, p in pipe.module.named_parameters()
    }
    assert set(ours) == set(theirs)
    worst = max(float((theirs[name] - ours[name]).abs().max()) for name in ours)
    return worst, float(sum(losses) / micro - loss) if losses else 0.0


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_gradients_are_those_of_torch(four, name):
    for worst, loss in four.run(peer, name, 4):
        assert worst < 1e-12
        assert abs(loss) < 1e-12


def after_three_steps(shape):
    model = parallel.GPT(shape).double()
    opt = optimizer(model.parameters())
    for step in range(3):
        opt.zero_grad()
        model(*parallel.batch(8, LENGTH, seed=step)).backward()
        opt.step()
    return {n: p.detach() for n, p in model.named_parameters(remove_duplicate=False)}


def hybrid(shape, name, sequence, way, zero):
    mesh = parallel.mesh(dp=2, pp=2, tp=2)
    model = parallel.GPT(shape).double()
    tensor = parallel.TensorParallel(model, mesh["tp"], sequence=sequence)
    chunks = 2 if name == "interleaved" else 1
    pipe = parallel.Pipeline(tensor, pipeline.build(name, 2, 4, chunks), mesh["pp"])
    outer = (
        parallel.Zero(pipe, optimizer, stage=1, group=mesh["dp"])
        if zero
        else getattr(parallel, way)(pipe, mesh["dp"])
    )
    opt = None if zero else optimizer(pipe.parameters())
    for step in range(3):
        pipe.zero_grad()
        mine = (parallel.share(t, mesh["dp"]) for t in parallel.batch(8, LENGTH, seed=step))
        pipe.forward_backward(*mine)
        pipe.finish()
        if zero:
            outer.step()
            continue
        outer.finish()
        tensor.finish()
        opt.step()
    return pipe.full_state()


@pytest.mark.parametrize(
    ("name", "sequence", "way", "zero"),
    [("1f1b", False, "Flat", False), ("interleaved", True, "Naive", False),
     ("zb-h1", True, "Flat", False), ("zb-h1", False, "Flat", True)],
)  # fmt: skip
def test_data_times_tensor_times_pipeline_is_one_process(name, sequence, way, zero):
    shape = parallel.small(hidden=32, vocab=51, tied=True)
    one = after_three_steps(shape)
    with Ranks(8, backend="gloo") as eight:
        told = eight.run(hybrid, shape, name, sequence, way, zero)
    assert farthest(told, one) < EXACT


def beside(stage, name):
    mesh = parallel.mesh(dp=2, pp=2)
    model = parallel.GPT(parallel.small(hidden=32, vocab=51)).double()
    pipe = parallel.Pipeline(model, pipeline.build(name, 2, 4), mesh["pp"])
    if stage:
        outer = parallel.Zero(pipe, optimizer, stage=stage, group=mesh["dp"])
    else:
        outer = parallel.Bucketed(pipe, mesh["dp"])
        opt = optimizer(pipe.parameters())
    for step in range(3):
        pipe.zero_grad()
        mine = [parallel.share(t, mesh["dp"]) for t in parallel.batch(8, LENGTH, seed=step)]
        with contextlib.nullcontext() if stage else outer.no_sync():
            pipe.forward_backward(*mine)
        if stage:
            outer.step()
        else:
            outer.finish()
            opt.step()
    return pipe.full_state()


@pytest.mark.parametrize(
    ("stage", "name"), [(0, "1f1b"), (0, "zb-h1"), (1, "1f1b"), (1, "zb-h1"), (2, "1f1b")]
)
def test_buckets_and_zero_beside_a_pipeline(four, stage, name):
    one = after_three_steps(parallel.small(hidden=32, vocab=51))
    assert farthest(four.run(beside, stage, name), one) < EXACT


def test_a_naive_order_of_sends_and_receives_is_named_as_a_circle(two):
    """In 1F1B's middle both neighbours have something for each other: who sends first?"""

    def middle(buffer):
        forward, gradient = buffer.clone(), buffer.clone()
        if rank == 0:
            dist.send(forward, 1)
            dist.send(forward, 1)
            dist.recv(gradient, 1)
        else:
            dist.recv(forward, 0)
            dist.send(gradient, 0)
            dist.recv(forward, 0)

    told = measure.record_own(two, middle, 8, timeout=4)
    assert set(told.deadlock.cycle) == {0, 1}
    assert "deadlock: ranks" in str(told.deadlock)
    assert "send to rank" in str(told.deadlock)


def step(pipe):
    pipe.forward_backward(*parallel.batch(BATCH, LENGTH))
    pipe.finish()


@pytest.mark.parametrize(("name", "chunks"), [("gpipe", 1), ("1f1b", 1), ("interleaved", 2)])
def test_bytes_are_the_predicted_ones(four, name, chunks):
    shape = parallel.small(hidden=32, layers=8, tied=True)

    def make():
        pipe = parallel.Pipeline(
            parallel.GPT(shape), pipeline.build(name, dist.get_world_size(), 4, chunks)
        )
        builtins.step = lambda: step(pipe)

    four.run(make)
    seen = measure.traffic(four, lambda: builtins.step())
    volumes = plan.pipeline_volume(shape, 4, BATCH, LENGTH, chunks=chunks, micro_batches=4)
    told = seen.ledger(volumes)
    assert told.exact, told
    assert told.predicted <= told.wire < 1.1 * told.predicted
    # Rank 0's own calls, in both directions: a send and a receive of every chunk that has a cut
    # on that side, however early they are begun.
    rows = {line.phase: set(line.calls.split(", ")) for line in told.lines}
    after, before = 4 * chunks, 4 * (chunks - 1)
    assert rows["forward"] == {f"{after} x send"} | ({f"{before} x recv"} if before else set())
    assert rows["backward"] == {f"{after} x recv"} | ({f"{before} x send"} if before else set())


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (
            lambda: parallel.Pipeline(parallel.GPT(parallel.small()), pipeline.build("1f1b", 2, 4)),
            "for the group's 4 ranks, got one for 2; build('1f1b', 4, ...)",
        ),
        (
            lambda: parallel.Pipeline(
                parallel.GPT(parallel.small()), pipeline.build("interleaved", 4, 4, 2)
            ),
            "got 4 blocks for 8 stages",
        ),
        (
            lambda: parallel.Pipeline(
                parallel.GPT(parallel.small()), pipeline.build("1f1b", 4, 3)
            ).forward_backward(*parallel.batch(8, 16)),
            "3 micro-batches must divide the batch, got 8 rows; give 9",
        ),
        (
            lambda: parallel.Zero(
                parallel.Pipeline(parallel.GPT(parallel.small()), pipeline.build("zb-h1", 4, 4)),
                torch.optim.Adam,
                stage=2,
            ),
            "stage 2 needs one whole backward after each forward, got a Pipeline; beside it take",
        ),
        (
            lambda: parallel.Zero(
                parallel.LayerWise(parallel.GPT(parallel.small())), torch.optim.Adam, stage=3
            ),
            "stage 3 needs one whole backward after each forward, got a LayerWise",
        ),
    ],
)
def test_bad_input_is_one_clear_error(four, call, told):
    from coursekit.ranks import RankFailed

    with pytest.raises(RankFailed) as caught:
        four.run(call)
    assert told in str(caught.value)
    assert ParallelError.__name__ in str(caught.value)
