"""Plans: their rules, memory, bytes and seconds, and the search over all of them."""

from __future__ import annotations

from dataclasses import asdict, replace
from fractions import Fraction
from itertools import product

import pytest

from coursekit import pipeline, plan
from coursekit.plan import Plan
from coursekit.plan._footprint import in_flight
from coursekit.plan.memory import GB

CARDS, MACHINES = plan.models(), plan.machines()
EIGHT_BY_EIGHT = Plan(dp=2, tp=8, pp=4)
CHAPTER = plan.job("course-100b", "a100")


@pytest.mark.parametrize("name", MACHINES)
def test_machines_are_sound(name: str) -> None:
    machine = plan.machine(name)
    assert machine.source
    assert machine.network < machine.link < machine.hbm
    assert 0 < machine.reserve < machine.room < machine.gpu.memory


def test_a_group_uses_the_network_as_soon_as_it_leaves_a_node() -> None:
    machine = plan.machine("h100")
    assert [machine.carrier(size, 1) for size in (1, 8, 16)] == ["", "link", "network"]
    assert machine.carrier(2, 4) == "link"
    assert machine.carrier(2, 8) == "network"
    # Two ranks of a group in a node have two network cards; eight have eight, up to NVLink's speed.
    assert machine.bandwidth(4, 4) == 2 * machine.network
    assert machine.bandwidth(64, 1) == machine.link
    assert machine.bandwidth(64, 8) == machine.network


def test_waiting_grows_with_nodes_for_a_ring_and_with_their_logarithm_for_a_tree() -> None:
    machine = plan.machine("h100")
    assert machine.ring(64) == 7 * machine.latency + 7 * machine.network_latency
    assert machine.tree(64) == 2 * (7 * machine.latency + 3 * machine.network_latency)
    assert machine.tree(8) == 2 * machine.ring(8)


@pytest.mark.parametrize(
    ("model", "made", "rule"),
    [
        ("llama3-405b", Plan(tp=16), "inside a node of 8"),
        ("llama3-405b", Plan(tp=3), "divide the 128 heads"),
        (
            replace(CARDS["llama3-405b"], kv_heads=4, heads=120, hidden=15360),
            Plan(tp=6),
            "key-value",
        ),
        ("mixtral-8x7b", Plan(tp=8, pp=64), "at most the 32 blocks and the two ends"),
        ("llama3-405b", Plan(chunks=2), "chunks need a pipeline"),
        ("llama3-405b", Plan(cp=3), "2 CP equal pieces"),
        ("llama3-405b", Plan(cp=8), "at least 1024 tokens"),
        ("llama3-405b", Plan(dp=8, ep=8), "needs experts"),
        ("mixtral-8x7b", Plan(dp=3, ep=3), "divide the 8 experts"),
        ("mixtral-8x7b", Plan(dp=4, ep=8), "folds into"),
        ("llama3-405b", Plan(dp=3), "divide the batch of 2048"),
        ("llama3-405b", Plan(dp=512, pp=8, chunks=2), "that PP divides"),
        ("llama3-405b", Plan(tp=8, zero=1), "replicas to share"),
        ("llama3-405b", Plan(dp=8, pp=8, zero=3), "beside a pipeline"),
    ],
)
def test_each_rule_is_told_first(model: str | plan.Model, made: Plan, rule: str) -> None:
    work = plan.job(model, "h100")
    assert rule in plan.broken_rule(work, made)
    with pytest.raises(plan.PlanError, match=rule):
        plan.evaluate(work, made)


def test_experts_fold_into_the_ranks_that_are_there() -> None:
    # Megatron-LM's row for DeepSeek-V3: 1024 GPUs, TP 2, PP 16, EP 64 (TP x PP x EP is twice that).
    made = Plan(dp=32, tp=2, pp=16, ep=64)
    assert made.gpus == 1024
    assert not plan.broken_rule(plan.job("deepseek-v3", "h100", batch=2048), made)
    assert made.expert_replicas == 1


def test_100b_fits_on_64_gpus_and_175b_needs_zero_1() -> None:
    hundred = plan.evaluate(CHAPTER, replace(EIGHT_BY_EIGHT, recompute="full"))
    assert hundred.fits
    states = hundred.memory.total - hundred.memory.activations
    assert states / GB == pytest.approx(50.6, rel=0.02)
    gpt3 = plan.job("gpt3-175b", "a100")
    plain = plan.evaluate(gpt3, replace(EIGHT_BY_EIGHT, recompute="full"))
    zero = plan.evaluate(gpt3, replace(EIGHT_BY_EIGHT, recompute="full", zero=1))
    assert not plain.fits
    assert zero.fits
    assert plain.memory.optimizer == 2 * zero.memory.optimizer


@pytest.mark.parametrize("name", CARDS)
@pytest.mark.parametrize("zero", range(4))
def test_states_are_those_of_the_ledger_where_nothing_is_cut(name: str, zero: int) -> None:
    work = plan.job(name, "h100")
    states = plan.evaluate(work, Plan(dp=8, zero=zero)).memory
    told = plan.gpu_memory(CARDS[name].parameters, dp=8, zero=zero)
    for part in ("weights", "gradients", "optimizer"):
        assert getattr(states, part) == pytest.approx(getattr(told, part), rel=1e-9)


def test_cut_states_add_up_to_the_model() -> None:
    work = plan.job("deepseek-v3", "h800")
    # One stage, so that no rounding of blocks to stages stands between.
    made = Plan(dp=32, tp=2, ep=64, zero=0)
    dense = CARDS["deepseek-v3"].parameters - CARDS["deepseek-v3"].expert_parameters
    experts = CARDS["deepseek-v3"].expert_parameters
    weights = plan.evaluate(work, made).memory.weights
    assert weights == pytest.approx(2 * (dense / 2 + experts / 64))


@pytest.mark.parametrize(
    ("p", "m", "v"), [(2, 4, 1), (4, 8, 1), (8, 8, 1), (4, 2, 1), (2, 4, 2), (4, 8, 2), (4, 8, 3)]
)
def test_micro_batches_in_flight_and_the_bubble_are_those_of_the_schedule(
    p: int, m: int, v: int
) -> None:
    schedule = pipeline.build(
        "interleaved" if v > 1 else "1f1b", p, m, **({"chunks": v} if v > 1 else {})
    )
    made = Plan(pp=p, chunks=v)
    assert in_flight(made, m) == max(pipeline.peak(schedule))
    work = plan.job(
        replace(CARDS["llama3-405b"], layers=48, vocab=8),
        "h100",
        batch=m,
        overlap=("dp", "cp", "pp"),
    )
    seconds = plan.evaluate(work, made).seconds
    assert seconds.bubble / seconds.compute == pytest.approx(
        float(Fraction(p - 1, v * m)), rel=1e-9
    )


# Bytes that a GPU sends in a step of 1024 sequences of 4096 tokens, 64 GPUs, in GB; the last column
# of the course's own table counts pipelines without the scatter and gather between tensor ranks.
B5 = {
    Plan(dp=64): 26.5,
    Plan(dp=64, zero=3): 39.8,
    Plan(dp=8, tp=8): 965,
    Plan(dp=2, tp=8, pp=4): 997,
    Plan(dp=8, tp=2, pp=4): 149,
    Plan(dp=8, pp=8): 11.5,
}


def sent(made: Plan, model: str = "llama2-7b", **options: int) -> float:
    work = plan.job(model, "a100", **options)
    # As many sequences in a micro-batch as there are: gathers of ZeRO-3 happen once.
    made = replace(made, micro_batch=work.batch // made.dp if made.zero else 1)
    outcome = plan.evaluate(work, made)
    return sum(r.bytes * (made.tp if r.group == "pp" else 1) for r in outcome.sent)


@pytest.mark.parametrize(("made", "gb"), B5.items(), ids=str)
def test_bytes_of_one_model_under_six_plans(made: Plan, gb: float) -> None:
    # The fullest stage of a pipeline has an embedding besides its part of the blocks.
    assert sent(made) / GB == pytest.approx(gb, rel=0.04)


def test_one_model_has_84_times_the_bytes_under_another_plan() -> None:
    assert sent(Plan(dp=8, tp=8)) / sent(Plan(dp=8, pp=8)) == pytest.approx(84, rel=0.04)
    few = {"batch": 64}
    assert sent(Plan(dp=8, tp=8), **few) / sent(Plan(dp=8, pp=8), **few) == pytest.approx(
        18, rel=0.1
    )


def test_bytes_are_those_that_the_modes_send() -> None:
    """For a shape that the small GPT has too: there `predicted == issued` is tested on ranks."""
    shape = plan.Model("small", 4, 64, 4, 4, 256, 50, 64, sequence=64, batch=16)
    work = plan.job(shape, "a100", policy="fp32")
    two = {r.group: r.bytes for r in plan.evaluate(work, Plan(dp=2)).sent}
    told = plan.dp_volume(shape, 2, itemsize=4)
    assert two["dp"] == sum(v.sent_per_rank for v in told)
    line = {r.group: r.bytes for r in plan.evaluate(work, Plan(pp=4)).sent}
    told = [v for v in plan.pipeline_volume(shape, 4, 16, 64, itemsize=2) if v.phase != "step"]
    # An inner stage sends both ways; all four together send over three cuts.
    assert line["pp"] == sum(v.sent for v in told) / 3
    cut = {r.group: r.bytes for r in plan.evaluate(work, Plan(tp=4)).sent}
    told = plan.tp_volume(shape, 4, 16, 64, sequence_parallel=True, itemsize=2)
    blocks = sum(v.sent_per_rank for v in told if v.op in ("all_gather", "reduce_scatter"))
    # The planner leaves out the pair of the embedding and the head: one of 2 L + 1.
    assert cut["tp"] == pytest.approx(blocks * 8 / 9)


@pytest.mark.parametrize("gpus", [8, 64, 96])
def test_every_plan_is_for_exactly_the_gpus_and_none_comes_twice(gpus: int) -> None:
    made = list(plan.enumerate(plan.job("mixtral-8x7b", "h100"), gpus))
    assert {p.gpus for p in made} == {gpus}
    assert len(made) == len(set(made))
    # Every product of powers of two that 64 GPUs allow is tried.
    if gpus == 64:
        degrees = {(p.tp, p.pp) for p in made}
        wanted = {(t, p) for t, p in product((1, 2, 4, 8, 16), (1, 2, 4, 8, 16, 32)) if t * p <= 64}
        assert wanted <= degrees


def test_the_best_is_the_best_and_the_rest_fail_for_the_reason_told() -> None:
    search = plan.best("llama2-70b", 64, "a100")
    totals = [o.seconds.total for o in search.outcomes]
    assert totals == sorted(totals)
    assert search.best.seconds.total <= totals[0] * 1.01
    assert all(o.fits for o in search.outcomes)
    for made, reason in search.rejected.items():
        rule = plan.broken_rule(search.job, made)
        assert reason == rule if rule else reason.startswith("it does not fit")
        if not rule:
            assert not plan.evaluate(search.job, made).fits
    assert sum(search.reasons.values()) == len(search.rejected)


def test_why_names_what_a_plan_loses_its_time_to() -> None:
    search = plan.best("llama3-405b", 1024, "h100", batch=512)
    assert search.why(search.best.plan) == "it is the best"
    assert "node of 8" in search.why(Plan(tp=16, pp=8, dp=8))
    assert "does not fit" in search.why(Plan(dp=128, tp=8))
    slow = next(o for o in search.outcomes if o.plan.pp == 32)
    assert "bubble +" in search.why(slow.plan)
    with pytest.raises(plan.PlanError, match="for 1024 GPUs, got 8"):
        search.why(Plan(dp=8))


def test_by_gives_each_value_its_fastest_plan_or_its_reason() -> None:
    search = plan.best("llama3-405b", 1024, "h100", batch=512)
    by = search.by("tp")
    assert list(by) == [1, 2, 4, 8, 16]
    assert "inside a node" in by[16]
    for value in (4, 8):
        wanted = min(o.seconds.total for o in search.outcomes if o.plan.tp == value)
        assert by[value].seconds.total == wanted
    with pytest.raises(plan.PlanError, match="degree must be one of"):
        search.by("gpus")


def test_no_plan_says_what_is_in_the_way() -> None:
    search = plan.best("llama3-405b", 8, "h100")
    assert not search.outcomes
    with pytest.raises(plan.PlanError, match=r"no plan fits Llama-3 405B on 8 GPUs.*does not fit"):
        _ = search.best


def test_recomputation_is_the_least_that_fits() -> None:
    search = plan.best("llama2-70b", 64, "a100")
    again = [o for o in search.outcomes if o.plan.recompute == "cheap"]
    assert again
    for outcome in again[:20]:
        assert not plan.evaluate(search.job, replace(outcome.plan, recompute="none")).fits


def test_more_micro_batches_shrink_the_bubble_and_chunks_too() -> None:
    shares = [
        plan.evaluate(plan.job("llama3-405b", "h100", batch=b), Plan(tp=8, pp=16, chunks=v)).seconds
        for b, v in ((16, 1), (64, 1), (16, 4))
    ]
    plain, many, cut = (s.bubble / s.compute for s in shares)
    assert many == pytest.approx(plain / 4)
    assert cut == pytest.approx(plain / 4)


def test_memory_of_activations_is_that_of_the_paper_without_dropout() -> None:
    """Korthikanti et al. 2022, table 2: 34 s b h a block, of which 2 are dropout's masks."""
    shape = replace(CARDS["gpt3-175b"], layers=96)
    work = plan.job(shape, "a100", batch=96)
    kept = plan.evaluate(work, Plan(tp=8)).memory.activations
    head = 6 * 2048 * shape.vocab / 8
    assert kept - head == pytest.approx(32 * 2048 * shape.hidden * 96 / 8)
    slow = plan.job(shape, "a100", batch=96, flash=False)
    scores = plan.evaluate(slow, Plan(tp=8)).memory.activations - kept
    assert scores == pytest.approx(5 * 96 * 2048**2 * 96 / 8)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: plan.best("llama", 8), "a model must be one of llama2-7b"),
        (lambda: plan.best("llama2-7b", 8, "tpu"), "a machine must be one of a100"),
        (lambda: plan.best("llama2-7b", 0), "gpus must be a whole number from 1 up, got 0"),
        (lambda: plan.job("llama2-7b", batch=-1), "batch must be a whole number"),
        (lambda: plan.job("llama2-7b", policy="int4"), "policy must be one of"),
        (lambda: plan.job("llama2-7b", overlap=("tp",)), "overlap must be of dp, cp, pp, ep"),
    ],
)
def test_mistakes_are_one_clear_error(call, told: str) -> None:
    with pytest.raises(plan.PlanError, match=told):
        call()


def test_a_strategy_is_still_what_lesson_00_compares() -> None:
    assert asdict(plan.Strategy(dp=8)) == {"dp": 8, "tp": 1, "pp": 1, "zero": 0}
    assert str(Plan(dp=8, tp=2, zero=1, chunks=2, recompute="cheap")) == (
        "TP2 DP8 ZeRO-1 2 chunks recompute cheap"
    )


def test_a_rack_can_have_more_tensor_ranks_than_key_value_heads() -> None:
    search = plan.best("llama3-405b", 1152, "nvl72", batch=1152)
    by = search.by("tp")
    assert isinstance(by[16], plan.Outcome)
    assert by[16].plan.tp == 2 * CARDS["llama3-405b"].kv_heads
