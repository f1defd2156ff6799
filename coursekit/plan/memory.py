"""What one GPU must hold to train: weights, gradients, optimizer states, activations, in bytes.

GB is 10**9 bytes and GiB is 2**30 bytes, here and in every lesson. "Bytes a parameter" are those
of ZeRO's section 3.1 (Rajbhandari et al. 2020, arXiv:1910.02054): with Adam in mixed precision
2 (weights) + 2 (gradients) + 12 (master copy, momentum, variance in fp32) = 16.
"""

from __future__ import annotations

from dataclasses import dataclass

from coursekit.plan._activations import activation_bytes
from coursekit.plan._rules import PlanError, above_zero, divides, positive
from coursekit.plan.models import Model
from coursekit.plan.models import model as card

GB = 10**9
GIB = 2**30


@dataclass(frozen=True)
class Policy:
    """Bytes that one parameter costs before anything is sharded."""

    weights: int
    gradients: int
    optimizer: int

    @property
    def total(self) -> int:
        """Bytes a parameter, all together."""
        return self.weights + self.gradients + self.optimizer

    @property
    def kept(self) -> int:
        """Bytes of a number that is kept for backward: weights and activations have one dtype."""
        return self.weights


POLICIES = {
    # Weights and gradients in bf16; master copy, momentum and variance in fp32.
    "bf16": Policy(2, 2, 4 + 4 + 4),
    # The same with gradients summed in fp32: Megatron-LM's default for bf16, 18 bytes.
    "bf16-fp32grad": Policy(2, 4, 4 + 4 + 4),
    # No master copy is needed: the weights are fp32 themselves.
    "fp32": Policy(4, 4, 4 + 4),
}


@dataclass(frozen=True)
class Memory:
    """Bytes on one GPU, by component."""

    weights: float
    gradients: float
    optimizer: float
    activations: float = 0.0

    @property
    def total(self) -> float:
        """All components together, in bytes."""
        return self.weights + self.gradients + self.optimizer + self.activations

    @property
    def gb(self) -> float:
        """The total in GB (10**9 bytes)."""
        return self.total / GB

    @property
    def gib(self) -> float:
        """The total in GiB (2**30 bytes)."""
        return self.total / GIB

    def fits(self, limit: float = 80 * GB) -> bool:
        """Whether the total is at most `limit` bytes."""
        return self.total <= limit

    def __str__(self) -> str:
        parts = {
            "weights": self.weights,
            "gradients": self.gradients,
            "optimizer": self.optimizer,
            "activations": self.activations,
        }
        told = " + ".join(f"{name} {size / GB:.1f}" for name, size in parts.items() if size)
        return f"{told} = {self.gb:.1f} GB"


def gpu_memory(
    model: Model | str | float,
    *,
    dp: int = 1,
    tp: int = 1,
    pp: int = 1,
    zero: int = 0,
    policy: str = "bf16",
    micro_batch: int = 0,
    sequence: int = 0,
    recompute: str = "none",
    sequence_parallel: bool = False,
) -> Memory:
    """Bytes that each GPU holds under a plan of ``dp * tp * pp`` GPUs.

    Tensor and pipeline parallelism cut the model into ``tp * pp`` equal parts; ZeRO then spreads
    over the `dp` replicas the optimizer states (stage 1), the gradients too (2), the weights
    too (3), as arXiv:1910.02054, figure 1. Embeddings count as if they were cut evenly too.

    Parameters
    ----------
    model : Model, str, or float
        A shape, the name of a card, or only a number of parameters.
    dp, tp, pp : int
        Degrees of data, tensor and pipeline parallelism.
    zero : {0, 1, 2, 3}
        ZeRO stage.
    policy : {"bf16", "bf16-fp32grad", "fp32"}
        Bytes a parameter, see `POLICIES`.
    micro_batch, sequence : int
        Sequences in a micro-batch and tokens in a sequence; 0 leaves activations out.
    recompute : {"none", "selective", "full"}
        What is computed again in the backward pass instead of kept.
    sequence_parallel : bool
        Whether tensor parallelism also splits the parts between its matrices.

    Returns
    -------
    Memory
        Bytes on one GPU; buffers, fragmentation and the CUDA context come on top.

    Raises
    ------
    PlanError
        A degree does not divide the model, or a choice does not exist.

    Examples
    --------
    >>> print(gpu_memory("llama2-7b", dp=8))
    weights 13.5 + gradients 13.5 + optimizer 80.9 = 107.8 GB
    """
    for name, value in (("dp", dp), ("tp", tp), ("pp", pp)):
        positive(name, value)
    shape = card(model) if isinstance(model, str) else model
    if isinstance(shape, Model):
        divides("tp", tp, "heads", shape.heads)
        divides("pp", pp, "layers", shape.layers)
    part = _parameters(shape) / (tp * pp)
    cost = _policy(policy)
    shards = [dp if _stage(zero) >= stage else 1 for stage in (3, 2, 1)]
    activations = activation_bytes(
        shape, tp, micro_batch, sequence, recompute, split_all=sequence_parallel
    )
    return Memory(
        part * cost.weights / shards[0],
        part * cost.gradients / shards[1],
        part * cost.optimizer / shards[2],
        activations,
    )


def _parameters(shape: Model | float) -> float:
    if isinstance(shape, Model):
        return shape.parameters
    above_zero("model", shape, 7e9)
    return shape


def _policy(name: str) -> Policy:
    if not isinstance(name, str) or name not in POLICIES:
        raise PlanError(f"policy must be one of {', '.join(POLICIES)}, got {name!r}; try 'bf16'")
    return POLICIES[name]


def _stage(zero: int) -> int:
    if isinstance(zero, bool) or not isinstance(zero, int) or zero not in range(4):
        raise PlanError(f"zero must be a stage from 0 to 3, got {zero!r}; try zero=1")
    return zero
