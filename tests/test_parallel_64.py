"""Three modes at once: 64 ranks on torch's fake process group, and 8 that are real."""

import builtins
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from coursekit import Ranks, measure, parallel, pipeline, plan
from coursekit.measure._ledger import sent_by_one
from coursekit.plan import PlanError

# 8 nodes of 8: tensor parallelism inside a node, the rest between nodes.
DEGREES = {"dp": 2, "pp": 4, "tp": 8}
SHAPE = parallel.small(hidden=64, heads=8, layers=8, vocab=51)
TIED = replace(SHAPE, tied=True)
ROWS, LENGTH, MICRO = 16, 32, 4
WAYS = [(False, 1), (True, 1), (False, 2), (True, 2)]


def stepper(shape, degrees, sequence, chunks, way="Flat"):
    """A step of all three: a pipeline of tensor ranks, and data parallelism around it."""
    mesh = parallel.mesh(**degrees)
    tensor = parallel.TensorParallel(parallel.GPT(shape), mesh["tp"], sequence=sequence)
    name = "interleaved" if chunks > 1 else "1f1b"
    schedule = pipeline.build(name, degrees["pp"], MICRO, chunks)
    pipe = parallel.Pipeline(tensor, schedule, mesh["pp"])
    data = getattr(parallel, way)(pipe, mesh["dp"])
    opt = torch.optim.AdamW(pipe.parameters())
    rows = [parallel.share(x, mesh["dp"]) for x in parallel.batch(ROWS, LENGTH)]

    def step():
        opt.zero_grad()
        pipe.forward_backward(*rows)
        pipe.finish()
        data.finish()
        tensor.finish()
        opt.step()

    return step


def volumes(shape, degrees, sequence, chunks, stage=None):
    return plan.hybrid_volume(
        shape, ROWS, LENGTH, **degrees, chunks=chunks, micro_batches=MICRO,
        sequence_parallel=sequence, stage=stage,
    )  # fmt: skip


@pytest.fixture
def pretend():
    """torch's fake process group: one process takes the place of one of many ranks."""

    def start(rank, size):
        if dist.is_initialized():
            dist.destroy_process_group()
        dist.init_process_group("fake", rank=rank, world_size=size, store=FakeStore())

    yield start
    if dist.is_initialized():
        dist.destroy_process_group()


def rank_at(dp, pp, tp):
    return (dp * DEGREES["pp"] + pp) * DEGREES["tp"] + tp


def issued(calls):
    """Bytes that this rank sends, by group and phase."""
    told = Counter()
    for call in calls:
        told[call.group, call.phase] += sent_by_one(call)
    return +told


def predicted(rows):
    """Of one rank: of a collective its share, of what is sent to a neighbour all."""
    told = Counter()
    for row in rows:
        told[row.group, row.phase] += Fraction(row.sent, 1 if row.op == "send" else row.ranks)
    return +told


@pytest.mark.parametrize("shape", [SHAPE, TIED], ids=["two_ends", "tied"])
@pytest.mark.parametrize(("sequence", "chunks"), WAYS)
def test_64_ranks_issue_what_is_predicted(pretend, shape, sequence, chunks):
    """First, inner and last stages, at different places of the tensor and data groups."""
    for dp, pp, tp in [(0, 0, 0), (1, 0, 7), (0, 1, 3), (1, 2, 4), (0, 3, 7), (1, 3, 0)]:
        pretend(rank_at(dp, pp, tp), 64)
        step = stepper(shape, DEGREES, sequence, chunks)
        with measure.watch() as seen:
            step()
        told = issued(seen.issued)
        assert told == predicted(volumes(shape, DEGREES, sequence, chunks, stage=pp)), (dp, pp, tp)
        assert {group for group, _ in told} == {"tp", "pp", "dp"}


@pytest.mark.parametrize("way", ["Flat", "Naive"])
def test_calls_are_those_predicted(pretend, way):
    """Of an inner stage: two and two all-reduces a block and micro-batch, one send each way."""
    pretend(rank_at(0, 1, 0), 64)
    step = stepper(SHAPE, DEGREES, False, 1, way)
    with measure.watch() as seen:
        step()
    told = Counter()
    for call in seen.issued:
        if call.op != "recv":
            told[call.group, call.phase, call.op] += call.count
    expected = {(v.group, v.phase, v.op): v.calls for v in volumes(SHAPE, DEGREES, False, 1, 1)}
    if way == "Naive":
        # 2 blocks: 2 norms and 4 matrices each, every one with a bias.
        expected["dp", "step", "all_reduce"] = 2 * 6 * 2
    assert told == expected


def on_ranks(*args):
    builtins.kept = stepper(*args)
    builtins.kept()


@pytest.fixture(scope="module")
def eight():
    with Ranks(8, backend="gloo") as made:
        yield made


@pytest.mark.parametrize(
    ("sequence", "chunks", "tied"), [(False, 1, False), (True, 2, True), (True, 1, False)]
)
def test_8_real_ranks_issue_what_is_predicted(eight, sequence, chunks, tied):
    shape, degrees = (TIED if tied else SHAPE), {"dp": 2, "pp": 2, "tp": 2}
    eight.run(on_ranks, shape, degrees, sequence, chunks)
    seen = measure.traffic(eight, lambda: builtins.kept())
    told = seen.ledger(volumes(shape, degrees, sequence, chunks), tp=2, dp=2, pp=4)
    assert told.exact, told
    assert {line.group for line in told.lines} == {"tp", "pp", "dp"}
    assert told.predicted <= told.wire < 1.2 * told.predicted


@pytest.mark.parametrize("shape", [SHAPE, TIED], ids=["two_ends", "tied"])
@pytest.mark.parametrize("split", [False, True])
def test_one_kind_alone_is_that_kinds_volume(shape, split):
    """All places together are what the single modes say; an axis of one sends nothing."""

    def total(rows):
        told = Counter()
        for row in rows:
            told[row.group, row.phase, row.op] += row.sent
        return +told

    def hybrid(**degrees):
        return total(plan.hybrid_volume(shape, ROWS, LENGTH, **degrees))

    single = plan.tp_volume(shape, 8, ROWS, LENGTH, sequence_parallel=split)
    assert hybrid(tp=8, sequence_parallel=split) == total(single)
    line = plan.pipeline_volume(shape, 4, ROWS, LENGTH, chunks=2, micro_batches=4)
    assert hybrid(pp=4, chunks=2, micro_batches=4) == total(line)
    assert hybrid(dp=8) == total(plan.dp_volume(shape, 8, phase="step"))
    assert hybrid() == {}
    # Cut by tensor ranks, or into stages of which a tied embedding lies in two.
    whole = total(plan.dp_volume(shape, 2, tp=8, phase="step"))
    assert hybrid(dp=2, tp=8)["dp", "step", "all_reduce"] == whole["dp", "step", "all_reduce"]
    again = 2 * 4 * shape.vocab * shape.hidden if shape.tied else 0
    stages = total(plan.dp_volume(shape, 2, phase="step"))["dp", "step", "all_reduce"] + again
    assert hybrid(dp=2, pp=4)["dp", "step", "all_reduce"] == stages


def test_tensor_ranks_with_a_cut_sequence_send_a_part_each():
    rows = {split: predicted(volumes(SHAPE, DEGREES, split, 1, stage=1)) for split in (False, True)}
    assert rows[False]["pp", "forward"] == 8 * rows[True]["pp", "forward"]
    assert rows[False]["tp", "forward"] == rows[True]["tp", "forward"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"stage": 4, "pp": 4}, "stage must be from 0 to 3, got 4"),
        ({"tp": 3}, "tp must divide the model's 8 heads, got tp=3"),
        ({"pp": 8, "chunks": 2}, "got 8 blocks for 16 stages"),
        ({"dp": 2, "micro_batches": 16}, "must divide the batch, got 16 rows for 2 x 16"),
        ({"dp": 0}, "dp must be a whole number from 1 up, got 0"),
    ],
)
def test_hybrids_refuse(options, words):
    with pytest.raises(PlanError, match=words):
        plan.hybrid_volume(SHAPE, ROWS, LENGTH, **options)
