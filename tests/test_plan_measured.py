"""The planner's memory beside the peak that training really has: within 10 % in every mode.

The small GPT trains in fp32 on CPU ranks. From the second step on, all storages of a rank are
summed up after every operation; the fullest rank is compared with the plan.
"""

import gc
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from torch.utils.weak import WeakIdKeyDictionary

from coursekit import Ranks, parallel, pipeline, plan
from coursekit.plan import Plan

ROWS, LENGTH, PIECES = 32, 64, 8
SHAPE = parallel.small(hidden=128, heads=4, layers=8, positions=LENGTH)
WIDE = parallel.small(hidden=256, heads=8, layers=4, positions=128)
MIXED = parallel.small(
    hidden=128, layers=4, positions=LENGTH, experts=4, top_k=2, expert_ffn=256
)  # fmt: skip


def adamw(params):
    return torch.optim.AdamW(list(params), lr=1e-3)


def storages():
    """Of all tensors that this process can reach."""
    gc.collect()
    tensors = [x for x in gc.get_objects() if issubclass(type(x), torch.Tensor)]
    return [t.untyped_storage() for t in tensors if t.device.type == "cpu"]


def weakly(found):
    """These storages, as long as they live."""
    kept = WeakIdKeyDictionary()
    for storage in found:
        kept[storage] = None
    return kept


class Peak(TorchDispatchMode):
    """The most bytes at a time, with those that are here when it begins; `others` left out."""

    def __init__(self, others):
        super().__init__()
        self.others = others
        self.live = weakly(s for s in storages() if s not in others)
        self.begin = self.most = self.now()

    def now(self):
        # Summed up anew: ZeRO-3 frees weights by giving their storage another size.
        return sum(storage.nbytes() for storage in self.live)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        made = [x.untyped_storage() for x in tree_iter(out) if isinstance(x, torch.Tensor)]
        new = [s for s in made if s not in self.live and s not in self.others]
        if new:
            for storage in new:
                self.live[storage] = None
            self.most = max(self.most, self.now())
        return out


def measured(make, *args):
    """On a rank: bytes at the beginning of the second step, and the most in it."""
    others = weakly(storages())
    step = make(*args)
    step()
    with Peak(others) as seen:
        step()
    return seen.begin, seen.most


def plain(wrapped, rows, pieces):
    """A step of `pieces` micro-batches, one after another; gradients add up and stay."""
    opt = adamw(wrapped.parameters())

    def step():
        opt.zero_grad(set_to_none=False)
        for x, y in zip(*(t.chunk(pieces) for t in rows), strict=True):
            (wrapped(x, y) / pieces).backward()
        getattr(wrapped, "finish", lambda: None)()
        opt.step()

    return step


def batch():
    return parallel.batch(ROWS, LENGTH)


def shares(group=None):
    return [parallel.share(x, group) for x in batch()]


def alone(shape, rows, length, pieces):
    return plain(parallel.GPT(shape), parallel.batch(rows, length), pieces)


def data(way):
    return plain(getattr(parallel, way)(parallel.GPT(SHAPE)), shares(), 1)


def zero(stage):
    wrapped = parallel.Zero(parallel.GPT(SHAPE), adamw, stage=stage)
    rows = shares()

    def step():
        for x, y in zip(*(t.chunk(2) for t in rows), strict=True):
            (wrapped(x, y) / 2).backward()
        wrapped.step()

    return step


def tensor(sequence):
    return plain(parallel.TensorParallel(parallel.GPT(SHAPE), sequence=sequence), batch(), 4)


def context(zigzag):
    return plain(parallel.ContextParallel(parallel.GPT(SHAPE), zigzag=zigzag), batch(), 1)


def experts():
    model = parallel.GPT(MIXED)
    for block in model.blocks:
        block.mlp.router.score.register_forward_hook(even)
    return plain(parallel.ExpertParallel(model), shares(), 2)


def even(_, inputs, scores):
    """A router that sends as many tokens to each expert, as the plan takes it to."""
    number = torch.arange(len(scores)) % scores.shape[1]
    return scores + 100 * (
        torch.eye(scores.shape[1])[number] + torch.eye(scores.shape[1])[number - 1]
    )


def layerwise():
    pipe = parallel.LayerWise(parallel.GPT(SHAPE))
    opt = adamw(pipe.parameters())
    rows = batch()

    def step():
        opt.zero_grad(set_to_none=False)
        for x, y in zip(*(t.chunk(2) for t in rows), strict=True):
            pipe.forward_backward(x, y, 1 / 2)
        opt.step()

    return step


def piped(name, chunks=1):
    pipe = parallel.Pipeline(parallel.GPT(SHAPE), pipeline.build(name, 4, PIECES, chunks))
    opt = adamw(pipe.parameters())
    rows = batch()

    def step():
        opt.zero_grad(set_to_none=False)
        pipe.forward_backward(*rows)
        opt.step()

    return step


def hybrid(sequence):
    mesh = parallel.mesh(dp=2, pp=2, tp=2)
    tensor = parallel.TensorParallel(parallel.GPT(SHAPE), mesh["tp"], sequence=sequence)
    pipe = parallel.Pipeline(tensor, pipeline.build("1f1b", 2, 4), mesh["pp"])
    data = parallel.Naive(pipe, mesh["dp"])
    opt = adamw(pipe.parameters())
    rows = shares(mesh["dp"])

    def step():
        opt.zero_grad(set_to_none=False)
        pipe.forward_backward(*rows)
        data.finish()
        tensor.finish()
        opt.step()

    return step


@dataclass(frozen=True)
class Case:
    """What trains, the plan for it, and what this course keeps that the planner does not count."""

    make: Callable
    args: tuple
    plan: Plan
    options: tuple = ()
    rows: int = ROWS
    shape: plan.Model = SHAPE
    beside: float = 0.0

    def predicted(self):
        job = plan.job(
            self.shape, "a100", sequence=self.shape.positions, batch=self.rows, policy="fp32"
        )
        if self.options:  # What `evaluate` has no word for.
            return plan.footprint(job, self.plan, **dict(self.options))
        return plan.evaluate(job, self.plan).memory


def wide(rows):
    """Bytes of activations between two blocks."""
    return rows * LENGTH * SHAPE.hidden * 4


# Gradients travel in buckets, and lie beside the memory from which they came.
BUCKETS = 4 * SHAPE.parameters
# Sequence parallelism keeps what a pair of matrices gathered, 2 times a block and for the head.
# Korthikanti et al. keep a part, as the planner does, and gather once more in backward.
GATHERED = (2 * SHAPE.layers + 1) * wide(8) * 3 / 4
# Of 4 blocks, for 2 micro-batches in flight.
GATHERED_HYBRID = 2 * (2 * SHAPE.layers // 2) * wide(4) / 2
# What the router read; and what a token's two experts answered, which is weighed afterwards.
ANSWERS = (1 + MIXED.top_k) * MIXED.layers * wide(4)
WHOLE = (("sequence_parallel", False),)


def outputs(flying, rows):
    """A stage's output lies beside the input of its next one until its backward; Megatron-LM frees
    it when it has left.
    """
    return flying * wide(rows)


ONE = {
    "deep": Case(alone, (SHAPE, 16, LENGTH, 2), Plan(micro_batch=8), rows=16),
    "wide": Case(alone, (WIDE, 8, 128, 1), Plan(micro_batch=8), rows=8, shape=WIDE),
    "experts": Case(alone, (MIXED, 16, LENGTH, 2), Plan(micro_batch=8), rows=16, shape=MIXED,
                    beside=2 * ANSWERS),
}  # fmt: skip
FOUR = {
    "data": Case(data, ("Naive",), Plan(dp=4, micro_batch=8)),
    "buckets": Case(data, ("Bucketed",), Plan(dp=4, micro_batch=8), beside=BUCKETS),
    "zero1": Case(zero, (1,), Plan(dp=4, zero=1, micro_batch=4)),
    "zero2": Case(zero, (2,), Plan(dp=4, zero=2, micro_batch=4)),
    "zero3": Case(zero, (3,), Plan(dp=4, zero=3, micro_batch=4)),
    "tensor": Case(tensor, (False,), Plan(tp=4, micro_batch=8), WHOLE),
    "sequence": Case(tensor, (True,), Plan(tp=4, micro_batch=8), beside=GATHERED),
    "layerwise": Case(layerwise, (), Plan(pp=4, micro_batch=16), rows=16, beside=outputs(1, 16)),
    "gpipe": Case(
        piped, ("gpipe",), Plan(pp=4, micro_batch=4), (("schedule", "gpipe"),), beside=outputs(8, 4)
    ),
    "1f1b": Case(piped, ("1f1b",), Plan(pp=4, micro_batch=4), beside=outputs(4, 4)),
    "interleaved": Case(
        piped, ("interleaved", 2), Plan(pp=4, chunks=2, micro_batch=4), beside=outputs(11, 4)
    ),
    # `evaluate` refuses pieces that are too short to be worth it.
    "ring": Case(context, (False,), Plan(cp=4, micro_batch=32), (("schedule", "1f1b"),)),
    "zigzag": Case(context, (True,), Plan(cp=4, micro_batch=32), (("schedule", "1f1b"),)),
    "experts": Case(experts, (), Plan(dp=4, ep=4, micro_batch=4), shape=MIXED, beside=ANSWERS),
}
EIGHT = {
    "tensor": Case(hybrid, (False,), Plan(dp=2, tp=2, pp=2, micro_batch=4), WHOLE),
    "sequence": Case(hybrid, (True,), Plan(dp=2, tp=2, pp=2, micro_batch=4),
                     beside=GATHERED_HYBRID),
}  # fmt: skip


def compare(case, told):
    memory = case.predicted()
    begin, most = (max(each) for each in zip(*told, strict=True))
    states = memory.total - memory.activations
    # Neither is so small that it could be wrong unseen.
    assert 0.15 < states / memory.total < 0.85
    assert memory.total + case.beside == pytest.approx(most, rel=0.1)
    if case.plan.zero:  # Gradients are gone when a step begins.
        states -= memory.gradients
    if case.make is data:
        states += case.beside
    assert states == pytest.approx(begin, rel=0.1)


@pytest.mark.parametrize("name", ONE)
def test_one_process(name):
    compare(ONE[name], [measured(ONE[name].make, *ONE[name].args)])


@pytest.mark.parametrize("name", FOUR)
def test_four_ranks(four, name):
    compare(FOUR[name], four.run(measured, FOUR[name].make, *FOUR[name].args))


@pytest.fixture(scope="module")
def eight():
    with Ranks(8, backend="gloo") as made:
        yield made


@pytest.mark.parametrize("name", EIGHT)
def test_data_times_tensor_times_pipeline(eight, name):
    compare(EIGHT[name], eight.run(measured, EIGHT[name].make, *EIGHT[name].args))


def test_gpipe_holds_all_micro_batches_and_1f1b_as_many_as_stages():
    gpipe, line = FOUR["gpipe"].predicted(), FOUR["1f1b"].predicted()
    assert gpipe.total > 1.5 * line.total
    with pytest.raises(plan.PlanError, match="schedule must be 1f1b or gpipe, got 'naive'"):
        plan.footprint(plan.job(SHAPE, sequence=LENGTH, batch=8), Plan(), schedule="naive")


def test_what_is_kept_has_the_weights_dtype():
    """Activations of a policy with 4-byte weights are twice those of one with 2-byte ones."""
    kept = {}
    for policy in ("bf16", "bf16-fp32grad", "fp32"):
        job = plan.job(SHAPE, sequence=LENGTH, batch=8, policy=policy)
        kept[policy] = plan.evaluate(job, Plan()).memory.activations
    assert kept["bf16"] == kept["bf16-fp32grad"] == kept["fp32"] / 2
