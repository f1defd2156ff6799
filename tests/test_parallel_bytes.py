"""Predicted, issued, on the wire; and how many collectives a mode takes."""

import builtins
from dataclasses import replace

import pytest
import torch

from coursekit import measure, parallel, plan
from coursekit.plan import PlanError

SHAPE = parallel.small(hidden=32, vocab=51)
TIED = replace(SHAPE, tied=True)
ROWS, LENGTH = 8, 16
NAMES = "from coursekit import parallel as P\nimport torch\n"


def data(way, compress=None):
    options = {"compress": compress} if compress else {}
    wrapped = getattr(parallel, way)(parallel.GPT(SHAPE), **options)
    ids, targets = (parallel.share(x) for x in parallel.batch(ROWS * 8, LENGTH))

    def step():
        wrapped(ids, targets).backward()
        wrapped.finish()

    return step


def zero(stage, collectives="own", micro=1, shape=SHAPE):
    wrapped = parallel.Zero(
        parallel.GPT(shape), torch.optim.Adam, stage=stage, collectives=collectives
    )
    ids, targets = (parallel.share(x) for x in parallel.batch(ROWS * 8, LENGTH))

    def step():
        for _ in range(micro):
            wrapped(ids, targets).backward()
        wrapped.step()

    return step


def tensor(sequence, shape=SHAPE):
    wrapped = parallel.TensorParallel(parallel.GPT(shape), sequence=sequence)
    ids, targets = parallel.batch(ROWS, LENGTH)

    def step():
        wrapped(ids, targets).backward()
        wrapped.finish()

    return step


def layerwise(shape=TIED, micro=2):
    wrapped = parallel.LayerWise(parallel.GPT(shape))
    ids, targets = parallel.batch(ROWS, LENGTH)

    def step():
        for a, b in zip(ids.chunk(micro), targets.chunk(micro), strict=True):
            wrapped.forward_backward(a, b, 1 / micro)
        wrapped.finish()

    return step


def mode(name, size):
    """What makes a step, and what was predicted for it."""
    if name.startswith("zero"):
        stage, micro = int(name[4]), 2 if name.endswith("m") else 1
        volumes = plan.zero_volume(SHAPE, size, stage, micro_batches=micro)
        return (zero, stage, "own", micro), volumes
    if name == "layerwise":
        return (layerwise,), plan.layerwise_volume(TIED, size, ROWS, LENGTH, micro_batches=2)
    if name in ("tensor", "sequence"):
        sequence = name == "sequence"
        volumes = plan.tp_volume(SHAPE, size, ROWS, LENGTH, sequence_parallel=sequence)
        return (tensor, sequence), volumes
    if name == "bf16":
        return (data, "Bucketed", torch.bfloat16), plan.dp_volume(SHAPE, size, itemsize=2)
    phase = "backward" if name == "Bucketed" else "step"
    return (data, name), plan.dp_volume(SHAPE, size, phase=phase)


MODES = ["Naive", "Flat", "Bucketed", "bf16", "zero1", "zero2", "zero3", "zero1m", "zero2m",
         "zero3m", "layerwise", "tensor", "sequence"]  # fmt: skip


def prepare(make, args):
    """On a rank: make a step, run it once, so that connections are open, and keep it."""
    builtins.kept = make(*args)
    builtins.kept()


def seen(ranks, make, *args):
    """Traffic of one step."""
    ranks.run(prepare, make, args)
    return measure.traffic(ranks, lambda: builtins.kept())


@pytest.mark.parametrize("name", MODES)
def test_predicted_is_issued(ranks, name):
    (make, *args), volumes = mode(name, ranks.size)
    told = seen(ranks, make, *args).ledger(volumes)
    assert told.exact, told
    assert told.issued == sum(v.sent for v in volumes) > 0


@pytest.mark.parametrize("way", ["Naive", "Flat"])
def test_calls_of_data_parallelism(four, way):
    tensors = len(list(parallel.GPT(SHAPE).parameters()))
    calls = seen(four, data, way).calls[0]
    assert sum(c.count for c in calls) == (tensors if way == "Naive" else 1)


def test_buckets_leave_in_backward_and_never_larger_than_asked(four):
    def count():
        wrapped = parallel.Bucketed(parallel.GPT(SHAPE), bucket_mib=0.05, first_mib=0.01)
        with measure.watch() as watched:
            wrapped(*parallel.batch(4, LENGTH)).backward()
            wrapped.finish()
        return watched.issued, len(wrapped.buckets)

    issued, buckets = four.run(count)[0]
    assert {call.phase for call in issued} == {"backward"}
    assert sum(call.count for call in issued) == buckets > 3
    assert max(call.bytes for call in issued) <= 0.05 * 2**20
    assert issued[0].bytes <= 0.01 * 2**20


def test_no_sync_sends_nothing(four):
    def count():
        wrapped = parallel.Bucketed(parallel.GPT(SHAPE))
        with measure.watch() as watched, wrapped.no_sync():
            wrapped(*parallel.batch(4, LENGTH)).backward()
        return watched.issued

    assert four.run(count) == [[]] * 4


@pytest.mark.parametrize("sequence", [False, True])
def test_two_and_two_collectives_a_block(four, sequence):
    """Two depths of the same model: the difference is what the blocks between them cost."""

    def calls(layers):
        watched = seen(four, tensor, sequence, replace(SHAPE, layers=layers)).calls[0]
        found = {}
        for call in watched:
            if call.bytes == ROWS * LENGTH * SHAPE.hidden * 4 or call.op == "send":
                key = (call.phase, call.op)
                found[key] = found.get(key, 0) + call.count
        return found

    two, four_blocks = calls(2), calls(4)
    each = {key: (four_blocks[key] - two[key]) / 2 for key in two}
    if sequence:  # Two all-gathers and two reduce-scatters, of K-1 messages each.
        assert each == {("forward", "send"): 12, ("backward", "send"): 12}
    else:
        assert each == {("forward", "all_reduce"): 2, ("backward", "all_reduce"): 2}


def test_sequence_parallelism_moves_equal_bytes(ranks):
    plain = seen(ranks, tensor, False).ledger().lines
    cut = seen(ranks, tensor, True).ledger().lines
    assert [i.issued for i in plain if i.phase != "step"] == [
        i.issued for i in cut if i.phase != "step"
    ]


def test_zero_3_costs_one_and_a_half(ranks):
    issued = {stage: seen(ranks, zero, stage).ledger().issued for stage in (1, 2, 3)}
    assert issued[1] == issued[2]
    assert issued[3] * 2 == issued[1] * 3


@pytest.mark.parametrize("name", ["Flat", "Bucketed", "zero1", "zero2", "zero3", "tensor",
                                  "sequence", "layerwise"])  # fmt: skip
def test_on_the_wire(four, name):
    """A step of a larger model, so that headers do not count: within 3 %."""
    wide = replace(SHAPE, hidden=256, ffn=1024, vocab=64)
    watched = seen(four, _wire_step, name, wide)
    assert watched.total == pytest.approx(sum(v.sent for v in _wire_volumes(name, wide)), rel=0.03)


def _wire_step(name, shape):
    ids, targets = parallel.batch(32, 32)
    if name == "layerwise":
        wrapped = parallel.LayerWise(parallel.GPT(shape))
        return lambda: wrapped.forward_backward(ids, targets)
    if name in ("tensor", "sequence"):
        wrapped = parallel.TensorParallel(parallel.GPT(shape), sequence=name == "sequence")
    else:
        ids, targets = parallel.share(ids), parallel.share(targets)
        if name.startswith("zero"):
            wrapped = parallel.Zero(parallel.GPT(shape), torch.optim.SGD, stage=int(name[4]))
        else:
            wrapped = getattr(parallel, name)(parallel.GPT(shape))

    def step():
        wrapped(ids, targets).backward()
        (wrapped.step if name.startswith("zero") else wrapped.finish)()

    return step


def _wire_volumes(name, shape):
    if name in ("Flat", "Bucketed"):
        return plan.dp_volume(shape, 4)
    if name.startswith("zero"):
        return plan.zero_volume(shape, 4, int(name[4]))
    if name == "layerwise":
        return plan.layerwise_volume(shape, 4, 32, 32)
    return plan.tp_volume(shape, 4, 32, 32, sequence_parallel=name == "sequence")


def test_gloo_s_reduce_scatter_is_told(four):
    watched = seen(four, zero, 2, "library")
    told = watched.ledger(plan.zero_volume(SHAPE, 4, 2))
    assert told.exact
    assert "Gloo ran reduce_scatter as all_reduce" in repr(told)
    assert watched.total > 1.3 * told.issued
    assert "Gloo ran" not in repr(seen(four, zero, 2).ledger())


@pytest.mark.parametrize(("dp", "tp"), [(2, 2), (1, 4)])
def test_a_mesh_tells_its_axes(four, dp, tp):
    four.cell(
        NAMES + f"m = P.mesh(dp={dp}, tp={tp})\n"
        "t = P.TensorParallel(P.GPT(P.small()), m['tp'])\n"
        "d = P.Bucketed(t, m['dp'])\n"
        "x, y = (P.share(i, m['dp']) for i in P.batch(8, 32))"
    )
    with measure.traffic(four) as watched:
        four.cell("d(x, y).backward(); d.finish(); t.finish()")
    volumes = plan.tp_volume(parallel.small(), tp, 8 // dp, 32)
    volumes += plan.dp_volume(parallel.small(), dp, tp=tp)
    told = watched.ledger(volumes, tp=dp, dp=tp)
    assert told.exact, told
    assert {line.group for line in told.lines} == ({"dp", "tp"} if dp > 1 else {"tp"})


@pytest.fixture
def pretend():
    """torch's fake process group: one process takes the place of one of many ranks."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    def start(rank, size):
        if dist.is_initialized():
            dist.destroy_process_group()
        dist.init_process_group("fake", rank=rank, world_size=size, store=FakeStore())

    yield start
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.mark.parametrize("name", ["Flat", "Bucketed", "zero1", "zero2", "zero3", "tensor",
                                  "sequence", "layerwise"])  # fmt: skip
def test_predicted_is_issued_on_64_ranks(pretend, name):
    """What one rank issues, of a model with 64 heads and 64 blocks; ends and middle of a line."""
    from coursekit.measure._ledger import sent_by_one

    wide = parallel.small(hidden=64, heads=64, layers=64 if name == "layerwise" else 2)
    amounts = []
    for rank in (0, 31, 63):
        pretend(rank, 64)
        if name == "layerwise":
            step = layerwise(wide, 1)
        elif name in ("tensor", "sequence"):
            wrapped = parallel.TensorParallel(parallel.GPT(wide), sequence=name == "sequence")
            ids = torch.zeros(2, 64, dtype=torch.int64)

            def step(wrapped=wrapped, ids=ids):
                wrapped(ids, ids).backward()
                wrapped.finish()
        elif name.startswith("zero"):
            step = zero(int(name[4]), shape=wide)
        else:
            wrapped = getattr(parallel, name)(parallel.GPT(wide))

            def step(wrapped=wrapped):
                wrapped(*parallel.batch(2, LENGTH)).backward()
                wrapped.finish()

        with measure.watch() as watched:
            step()
        amounts.append(sum(map(sent_by_one, watched.issued)))
    if name == "layerwise":
        one_way = ROWS * LENGTH * wide.hidden * 4
        assert amounts == [one_way, 2 * one_way, one_way]
        total = sum(v.sent for v in plan.layerwise_volume(wide, 64, ROWS, LENGTH))
        assert total == 2 * one_way + 62 * 2 * one_way
        return
    volumes = {
        "F": lambda: plan.dp_volume(wide, 64),
        "B": lambda: plan.dp_volume(wide, 64),
        "z": lambda: plan.zero_volume(wide, 64, int(name[4])),
        "t": lambda: plan.tp_volume(wide, 64, 2, 64),
        "s": lambda: plan.tp_volume(wide, 64, 2, 64, sequence_parallel=True),
    }[name[0]]()
    assert [64 * amount for amount in amounts] == [sum(v.sent for v in volumes)] * 3


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_memory_is_what_the_plan_says(four, stage):
    """After a backward; but for the padding of each unit to a multiple of 4."""
    four.cell(
        NAMES + f"z = P.Zero(P.GPT(P.small()), torch.optim.AdamW, stage={stage})\n"
        "x, y = (P.share(i) for i in P.batch(8, 32))\n"
        "z(x, y).backward(); z.step(); z(x, y).backward()"
    )
    expected = plan.gpu_memory(parallel.small(), dp=4, zero=stage, policy="fp32")
    for held in four.run(lambda: z.memory()):  # noqa: F821
        for part, amount in held.items():
            assert amount == pytest.approx(getattr(expected, part), abs=5 * 4 * 8), part


def test_the_plan_counts_the_models_parameters():
    for shape in (SHAPE, TIED, parallel.small(layers=2, heads=8, hidden=128)):
        held = sum(p.numel() for p in parallel.GPT(shape).parameters())
        assert held == shape.parameters == plan.local_parameters(shape)
    assert plan.local_parameters(SHAPE, 4) * 4 > SHAPE.parameters


def test_published_volumes():
    """ZeRO, section 7: 2 and 3 times the parameters; Megatron: 4 all-reduces a block and step."""
    seven = plan.model("llama2-7b")
    dp, z3 = plan.dp_volume(seven, 64, itemsize=2), plan.zero_volume(seven, 64, 3, itemsize=2)
    whole = 2 * seven.parameters * 63 / 64
    assert sum(v.sent_per_rank for v in dp) == pytest.approx(2 * whole)
    assert sum(v.sent_per_rank for v in z3) == pytest.approx(3 * whole, rel=1e-6)
    tp = plan.tp_volume(seven, 8, 1, 4096, itemsize=2)
    per_block = sum(v.calls for v in tp if v.bytes > 10**9) / seven.layers
    assert per_block == pytest.approx(4, rel=0.02)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: plan.zero_volume(SHAPE, 4, 0), "stage must be 1, 2 or 3, got 0"),
        (lambda: plan.zero_volume(SHAPE, 4, 4), "stage from 0 to 3, got 4"),
        (lambda: plan.dp_volume(SHAPE, 0), "ranks must be a whole number from 1 up, got 0"),
        (lambda: plan.tp_volume(SHAPE, 3, 8, 16), "tp must divide the model's 4 heads, got tp=3"),
        (lambda: plan.tp_volume(SHAPE, 4, 8, 15, sequence_parallel=True), "15 sequence"),
        (lambda: plan.layerwise_volume(SHAPE, 2, 8, 0), "sequence must be"),
    ],
)
def test_plans_refuse(call, words):
    with pytest.raises(PlanError, match=words):
        call()
