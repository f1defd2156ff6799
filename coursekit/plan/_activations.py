"""Bytes of activations that one GPU keeps between forward and backward.

Korthikanti et al. 2022, arXiv:2205.05198, equations 1 to 6, for 16-bit activations and a
GPT-shaped block (feed-forward of 4 times the width, GELU, dropout). A SwiGLU block differs by a
few tens of per cent.
"""

from __future__ import annotations

from coursekit.plan._rules import PlanError, positive
from coursekit.plan.models import Model


def activation_bytes(
    shape: Model | float,
    tp: int,
    micro_batch: int,
    sequence: int,
    recompute: str,
    *,
    split_all: bool,
) -> float:
    if recompute not in ("none", "selective", "full"):
        raise PlanError(
            f"recompute must be none, selective or full, got {recompute!r}; try 'selective'"
        )
    if not micro_batch and not sequence:
        return 0.0
    positive("micro_batch", micro_batch)
    positive("sequence", sequence)
    if not isinstance(shape, Model):
        raise PlanError(
            "activations need the shape of a model, got only a number of parameters; "
            "give a Model or the name of a card"
        )
    factor = _per_layer(shape, tp, sequence, recompute, split_all)
    # The first of p pipeline stages has layers/p blocks and p micro-batches in flight (1F1B):
    # together all layers, whatever p is.
    return sequence * micro_batch * shape.hidden * factor * shape.layers


def _per_layer(shape: Model, tp: int, sequence: int, recompute: str, split_all: bool) -> float:
    """Bytes a token, a unit of width and a block."""
    outside = tp if split_all else 1
    if recompute == "full":
        # Only each block's input stays. Table 2 of the paper counts it whole; where everything is
        # split along the sequence, so is that input.
        return 2 / outside
    scores = 5 * shape.heads * sequence / shape.hidden if recompute == "none" else 0.0
    return 10 / outside + 24 / tp + scores / tp
