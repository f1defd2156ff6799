"""The ledger of bytes holds the facts that the course teaches, and refuses plans that cannot be."""

from __future__ import annotations

import pytest

from coursekit import plan
from coursekit.plan.memory import GB, GIB, POLICIES

P = 1_000_000_000


def test_plain_data_parallel_7b_does_not_fit() -> None:
    memory = plan.gpu_memory("llama2-7b", dp=8)
    assert memory.total == 16 * plan.model("llama2-7b").parameters
    assert memory.gb == pytest.approx(107.8, abs=0.05)
    assert memory.gib == pytest.approx(100.4, abs=0.05)
    assert not memory.fits(80 * GB)
    # Nor on the 79.25 GiB that such a card has in truth.
    assert not memory.fits(79.25 * GIB)
    assert str(memory) == "weights 13.5 + gradients 13.5 + optimizer 80.9 = 107.8 GB"


@pytest.mark.parametrize(
    ("parameters", "zero", "gb", "fits"),
    [
        (100e9, 0, 50.0, True),
        (100e9, 1, 31.25, True),
        (175e9, 0, 87.5, False),
        (175e9, 1, 54.6875, True),
    ],
)
def test_64_gpus(parameters: float, zero: int, gb: float, fits: bool) -> None:
    memory = plan.gpu_memory(parameters, tp=8, pp=4, dp=2, zero=zero)
    assert memory.gb == pytest.approx(gb)
    assert memory.fits() == fits


@pytest.mark.parametrize(
    ("zero", "parts"),
    [(0, (2, 2, 12)), (1, (2, 2, 12 / 8)), (2, (2, 2 / 8, 12 / 8)), (3, (2 / 8, 2 / 8, 12 / 8))],
)
def test_zero_stages(zero: int, parts: tuple[float, float, float]) -> None:
    memory = plan.gpu_memory(P, dp=8, zero=zero)
    assert (memory.weights, memory.gradients, memory.optimizer) == tuple(P * part for part in parts)


def test_zero_shares_among_replicas_only() -> None:
    assert plan.gpu_memory(P, tp=8, pp=4, zero=3) == plan.gpu_memory(P, tp=8, pp=4)


@pytest.mark.parametrize(
    ("policy", "alone", "shared"),
    # Megatron-LM's table of its distributed optimizer has the last two rows: 18 and 6 + 12/d,
    # 16 and 8 + 8/d.
    [("bf16", 16, 4 + 12 / 4), ("bf16-fp32grad", 18, 6 + 12 / 4), ("fp32", 16, 8 + 8 / 4)],
)
def test_bytes_a_parameter(policy: str, alone: float, shared: float) -> None:
    assert POLICIES[policy].total == alone
    assert plan.gpu_memory(P, policy=policy, dp=4).total == alone * P
    assert plan.gpu_memory(P, policy=policy, dp=4, zero=1).total == shared * P


def korthikanti(tp: int, sequence: int, recompute: str, whole: bool) -> float:
    """GPT-3's activations by the formulas of arXiv:2205.05198, written out anew."""
    s, b, h, a, layers = sequence, 1, 12288, 96, 96
    if recompute == "full":
        return layers * 2 * s * b * h / (tp if whole else 1)
    scores = 5 * a * s / h if recompute == "none" else 0
    if whole:
        return layers * s * b * h / tp * (34 + scores)
    return layers * s * b * h * (10 + 24 / tp + scores / tp)


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("tp", [1, 8])
def test_activations(tp: int, whole: bool, recompute: str) -> None:
    memory = plan.gpu_memory(
        "gpt3-175b",
        tp=tp,
        micro_batch=1,
        sequence=2048,
        recompute=recompute,
        sequence_parallel=whole,
    )
    assert memory.activations == pytest.approx(korthikanti(tp, 2048, recompute, whole))


def test_activations_do_not_shrink_with_pipeline_stages() -> None:
    parts = [
        plan.gpu_memory("gpt3-175b", pp=pp, micro_batch=1, sequence=2048).activations
        for pp in (1, 4)
    ]
    assert parts[0] == parts[1] > 0


def test_only_recomputing_lets_gpt3_fit_64_cards() -> None:
    def total(recompute: str) -> plan.Memory:
        return plan.gpu_memory(
            "gpt3-175b",
            tp=8,
            pp=4,
            dp=2,
            zero=1,
            micro_batch=1,
            sequence=2048,
            recompute=recompute,
            sequence_parallel=True,
        )

    assert not total("none").fits()
    assert total("selective").fits()


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (
            {"model": "llama2-7b", "tp": 7},
            "tp must divide the model's 32 heads, got tp=7; try tp=4",
        ),
        ({"model": "llama2-7b", "tp": 64}, "32 heads, got tp=64; try tp=32"),
        ({"model": "llama2-7b", "pp": 5}, "pp must divide the model's 32 layers, got pp=5"),
        ({"model": "llama2-7b", "zero": 4}, "zero must be a stage from 0 to 3, got 4"),
        ({"model": "llama2-7b", "zero": True}, "zero must be a stage from 0 to 3, got True"),
        ({"model": "llama2-7b", "zero": 1.0}, "zero must be a stage from 0 to 3, got 1.0"),
        ({"model": "llama2-7b", "dp": -2}, "dp must be a whole number from 1 up, got -2"),
        ({"model": "llama2-7b", "dp": 1.5}, "dp must be a whole number from 1 up, got 1.5"),
        ({"model": -7e9}, "model must be a number above 0, got -7000000000.0"),
        ({"model": float("nan")}, "model must be a number above 0, got nan"),
        (
            {"model": "llama"},
            "deepseek-v3, course-100b, got 'llama'; or make a Model",
        ),
        ({"model": 7e9, "policy": "fp8"}, "policy must be one of bf16, bf16-fp32grad, fp32"),
        ({"model": 7e9, "policy": ["bf16"]}, "got ['bf16']; try 'bf16'"),
        ({"model": 7e9, "recompute": "some"}, "recompute must be none, selective or full"),
        ({"model": 7e9, "micro_batch": 1, "sequence": 1}, "activations need the shape of a model"),
        ({"model": "llama2-7b", "micro_batch": 1}, "sequence must be a whole number from 1 up"),
    ],
)
def test_a_wrong_plan_is_one_clear_error(call: dict[str, object], told: str) -> None:
    with pytest.raises(plan.PlanError) as error:
        plan.gpu_memory(**call)  # type: ignore[arg-type]
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_the_ledger_has_every_strategy_and_model() -> None:
    ledger = plan.ledger(plan.models("llama2-7b", "llama2-70b", "gpt3-175b"))
    names = "1 GPU, DP8, DP8 ZeRO-1, DP8 ZeRO-2, DP8 ZeRO-3, TP8, TP8 PP4, TP8 PP4 DP2"
    assert [str(strategy) for strategy in ledger] == [*names.split(", "), "TP8 PP4 DP2 ZeRO-1"]
    assert [strategy.gpus for strategy in ledger] == [1, 8, 8, 8, 8, 8, 32, 64, 64]
    for strategy, row in ledger.items():
        assert list(row) == ["Llama-2 7B", "Llama-2 70B", "GPT-3 175B"]
        want = plan.gpu_memory(
            "gpt3-175b", dp=strategy.dp, tp=strategy.tp, pp=strategy.pp, zero=strategy.zero
        )
        assert row["GPT-3 175B"] == want
