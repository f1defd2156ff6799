"""Training runs that their authors published, to hold the planner against.

The runs stand in `data/published_plans.yaml`. What an author left open (the micro-batch, the chunks
of an interleaved schedule), the planner chooses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import log
from typing import Any

from coursekit import _data
from coursekit.plan._seconds import Efficiency
from coursekit.plan.models import Model
from coursekit.plan.plans import Job, Plan, broken_rule, job
from coursekit.plan.step import Outcome, evaluate


@dataclass(frozen=True)
class Run:
    """One published run.

    Parameters
    ----------
    name, source : str
        What it is, and where it was published.
    plans : tuple of Plan
        The published plan, in every way that it leaves open.
    tflops : float
        TFLOP/s a GPU as published.
    recomputes : bool
        Whether these count what was computed again.
    """

    name: str
    source: str
    job: Job
    plans: tuple[Plan, ...]
    tflops: float
    recomputes: bool = False

    def predict(self, efficiency: Efficiency | None = None) -> Outcome:
        """The fastest of its plans that fit."""
        outcomes = [evaluate(self.job, plan, efficiency) for plan in self.plans]
        return max((o for o in outcomes if o.fits), key=lambda o: o.tflops)

    def told(self, outcome: Outcome) -> float:
        """An outcome's TFLOP/s a GPU, counted as the authors did."""
        return outcome.hardware_tflops if self.recomputes else outcome.tflops


def published(name: str) -> list[Run]:
    """The runs of one publication: ``megatron_sc21``, ``llama3_405b`` or ``deepseek_v3``.

    Raises:
        PlanError: a plan of it breaks a rule.
    """
    table = _data.load("published_plans.yaml")[name]
    return [_MAKERS[name](table, row) for row in _rows(table)]


def fit(runs: Sequence[Run]) -> Efficiency:
    """The two constants with the least squared error of log TFLOP/s, to half a per cent."""
    grids = ((0.5, 0.05), (0.05, 0.01), (0.01, 0.005))
    best = Efficiency(0.6, 0.6)
    for reach, width in grids:
        around = [
            Efficiency(round(m, 4), round(b, 4))
            for m, b in product(_near(best.matmul, reach, width), _near(best.memory, reach, width))
        ]
        best = min(around, key=lambda e: _error(runs, e))
    return best


def _near(middle: float, reach: float, width: float) -> Iterator[float]:
    count = round(reach / width)
    for k in range(-count, count + 1):
        if 0.1 <= middle + k * width <= 1:
            yield middle + k * width


def _error(runs: Sequence[Run], efficiency: Efficiency) -> float:
    return sum(log(r.told(r.predict(efficiency)) / r.tflops) ** 2 for r in runs)


def _rows(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]


def _open(job: Job, plans: Iterable[Plan]) -> tuple[Plan, ...]:
    return tuple(p for p in plans if not broken_rule(job, p))


def _megatron(table: Mapping[str, Any], row: Mapping[str, Any]) -> Run:
    shape = Model(
        f"GPT {row['parameters']:g}B", row["layers"], row["hidden"], row["heads"], row["heads"],
        4 * row["hidden"], table["vocab"], table["sequence"], tied=True, bias=True,
    )  # fmt: skip
    work = job(
        shape, table["machine"], sequence=table["sequence"], batch=row["batch"], flash=False,
        overlap=(), policy="bf16-fp32grad",
    )  # fmt: skip
    dp = row["gpus"] // row["tp"] // row["pp"]
    stage = row["layers"] // row["pp"]
    plans = (
        Plan(dp, row["tp"], row["pp"], micro_batch=b, chunks=v, recompute="full")
        for b in (1, 2, 4, 8, 16)
        for v in range(1, stage + 1)
        if stage % v == 0
    )
    source = table["source"]
    return Run(shape.title, source, work, _open(work, plans), row["tflops"], recomputes=True)


def _llama(table: Mapping[str, Any], row: Mapping[str, Any]) -> Run:
    # Its context parallelism gathers all keys and values first: nothing hides that.
    work = job(
        table["model"], table["machine"], sequence=row["sequence"], batch=row["batch"],
        overlap=("dp", "pp"),
    )  # fmt: skip
    plans = (
        Plan(row["dp"], row["tp"], row["pp"], zero, cp=row["cp"], chunks=v, recompute=again)
        for zero, v, again in product((1, 2), range(1, 9), ("none", "cheap"))
    )
    name = f"{work.model.title}, {row['gpus']} GPUs, {row['sequence']} tokens"
    return Run(name, table["source"], work, _open(work, plans), row["tflops"])


def _deepseek(table: Mapping[str, Any], row: Mapping[str, Any]) -> Run:
    work = job(table["model"], table["machine"], fp8=True, overlap=("dp", "cp", "pp", "ep"))
    plans = (
        Plan(row["dp"], row["tp"], row["pp"], 1, ep=row["ep"], chunks=v, recompute=again)
        for v, again in product((1, 2), ("none", "cheap", "full"))
    )
    kept = _open(work, plans)
    seconds = row["gpu_hours_per_trillion"] * 3600 / row["gpus"] * work.tokens / 1e12
    flops = evaluate(work, kept[0]).flops
    return Run(work.model.title, table["source"], work, kept, flops / seconds / row["gpus"] / 1e12)


_MAKERS = {"megatron_sc21": _megatron, "llama3_405b": _llama, "deepseek_v3": _deepseek}
