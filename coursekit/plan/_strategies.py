"""The plans that lesson 00 compares, from one GPU to a mixture of all kinds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from coursekit.plan.memory import Memory, gpu_memory
from coursekit.plan.models import Model


@dataclass(frozen=True)
class Strategy:
    """How many GPUs share what: degrees of data, tensor, pipeline parallelism, ZeRO stage."""

    dp: int = 1
    tp: int = 1
    pp: int = 1
    zero: int = 0

    @property
    def gpus(self) -> int:
        """GPUs altogether."""
        return self.dp * self.tp * self.pp

    def __str__(self) -> str:
        degrees = {"TP": self.tp, "PP": self.pp, "DP": self.dp}
        parts = [f"{name}{degree}" for name, degree in degrees.items() if degree > 1]
        parts += [f"ZeRO-{self.zero}"] if self.zero else []
        return " ".join(parts) or "1 GPU"


STRATEGIES = (
    Strategy(),
    Strategy(dp=8),
    Strategy(dp=8, zero=1),
    Strategy(dp=8, zero=2),
    Strategy(dp=8, zero=3),
    Strategy(tp=8),
    Strategy(tp=8, pp=4),
    Strategy(tp=8, pp=4, dp=2),
    Strategy(tp=8, pp=4, dp=2, zero=1),
)


def ledger(
    models: Mapping[str, Model], strategies: Iterable[Strategy] = STRATEGIES, policy: str = "bf16"
) -> dict[Strategy, dict[str, Memory]]:
    """Bytes a GPU for every strategy and model, by strategy, then by the model's title.

    Raises:
        PlanError: a strategy does not divide a model.
    """
    return {
        strategy: {
            each.title: gpu_memory(each, policy=policy, **asdict(strategy))
            for each in models.values()
        }
        for strategy in strategies
    }
