"""The planner beside published runs: one set of constants, fitted on three of them."""

from __future__ import annotations

import pytest

from coursekit import _data, plan

TABLE = _data.load("published_plans.yaml")
MEGATRON = plan.published("megatron_sc21")
FITTED = TABLE["efficiency"]["fitted_on"]
ROWS = [
    dict(zip(TABLE["megatron_sc21"]["columns"], r, strict=True))
    for r in TABLE["megatron_sc21"]["rows"]
]


@pytest.mark.parametrize(
    ("run", "row"), list(zip(MEGATRON, ROWS, strict=True)), ids=lambda x: getattr(x, "name", "")
)
def test_the_table_agrees_with_itself(run: plan.Run, row: dict[str, float]) -> None:
    """Its columns were printed independently: a wrong digit would show here."""
    assert run.job.model.parameters / 1e9 == pytest.approx(row["parameters"], abs=0.06)
    assert row["tflops"] * row["gpus"] / 1e3 == pytest.approx(row["all"], rel=0.01)
    assert all(p.gpus == row["gpus"] for p in run.plans)


def test_the_constants_are_the_fit_of_three_rows() -> None:
    chosen = [run for run, row in zip(MEGATRON, ROWS, strict=True) if row["parameters"] in FITTED]
    assert len(chosen) == 3
    assert plan.fit(chosen) == plan.fitted()


@pytest.mark.parametrize("run", MEGATRON, ids=lambda r: r.name)
def test_megatron_is_predicted(run: plan.Run) -> None:
    made = run.predict()
    assert made.fits
    assert run.told(made) == pytest.approx(run.tflops, rel=0.25)


def test_rows_that_were_not_fitted_are_closer_than_a_constant_would_be() -> None:
    errors = {
        row["parameters"]: abs(run.told(run.predict()) / run.tflops - 1)
        for run, row in zip(MEGATRON, ROWS, strict=True)
        if row["parameters"] not in FITTED
    }
    assert len(errors) == 7
    mean = sum(r["tflops"] for r in ROWS if r["parameters"] in FITTED) / 3
    constant = [abs(mean / r["tflops"] - 1) for r in ROWS if r["parameters"] not in FITTED]
    assert sum(errors.values()) < sum(constant)
    assert max(errors.values()) < 0.1


@pytest.mark.parametrize("run", plan.published("llama3_405b"), ids=lambda r: r.name)
def test_the_plan_of_llama_3_is_feasible_and_within_a_tenth_of_the_best(run: plan.Run) -> None:
    made = run.predict()
    assert made.fits
    assert run.told(made) == pytest.approx(run.tflops, rel=0.25)
    search = plan.try_all(run.job, made.plan.gpus)
    assert made.seconds.total <= search.best.seconds.total * 1.1


def test_the_plan_of_deepseek_v3_is_feasible_and_its_speed_is_within_a_third() -> None:
    (run,) = plan.published("deepseek_v3")
    made = run.predict()
    assert made.fits
    assert made.plan.gpus == 2048
    # Three quarters of its messages of experts run beside the computing, as its authors say.
    assert made.seconds.hidden > 3 * made.seconds.ep
    assert run.told(made) == pytest.approx(run.tflops, rel=0.35)
