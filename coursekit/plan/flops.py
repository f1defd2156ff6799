"""How much arithmetic training takes, and how long that lasts.

One FLOP is one multiplication or one addition. A matrix that a token passes costs 2 FLOPs a weight
forward and 4 backward: hence "6 times parameters times tokens" (Kaplan et al. 2020,
arXiv:2001.08361, section 2.1).
"""

from __future__ import annotations

from dataclasses import dataclass

from coursekit import _data
from coursekit.plan._rules import PlanError, above_zero, positive
from coursekit.plan.models import Model
from coursekit.plan.models import model as card

DAY = 86_400.0


@dataclass(frozen=True)
class Gpu:
    """One card: memory in bytes as its label says, peak in dense bf16 FLOP/s."""

    title: str
    memory: float
    peak: float
    source: str = ""


def gpu(name: str) -> Gpu:
    """The GPU `name` of `data/gpus.yaml`, such as `a100-80gb`.

    Raises:
        PlanError: there is no such GPU.
    """
    cards = _data.load("gpus.yaml")
    if name not in cards:
        raise PlanError(f"a GPU must be one of {', '.join(cards)}, got {name!r}; or make a Gpu")
    return Gpu(**cards[name])


def train_flops(model: Model | str | float, tokens: float) -> float:
    """FLOPs to train on `tokens` by the rule 6 * parameters * tokens (Kaplan et al. 2020).

    `model` is a shape, the name of a card, or a number of parameters; of a mixture of experts
    those count that a token meets. Attention's products of activations are left out: see
    `exact_flops`.

    Raises:
        PlanError: a number is not above 0.
    """
    above_zero("tokens", tokens, 2e12)
    shape = card(model) if isinstance(model, str) else model
    parameters = shape.active_parameters if isinstance(shape, Model) else shape
    above_zero("model", parameters, 7e9)
    return 6.0 * parameters * tokens


def layer_flops(model: Model | str, sequence: int) -> float:
    """Forward FLOPs of one block for one token in a sequence of `sequence` tokens.

    Its matrices cost 2 a weight; scores (QK) and their sum (AV) cost ``2 * sequence * hidden``
    each, with the half that a causal mask throws away counted in: Narayanan et al. 2021,
    arXiv:2104.04473, appendix, here also for grouped queries and SwiGLU.

    Raises:
        PlanError: `sequence` is not a positive whole number.
    """
    positive("sequence", sequence)
    shape = card(model) if isinstance(model, str) else model
    return 2.0 * shape.dense.layer_matrices + 4.0 * sequence * shape.hidden


def exact_flops(
    model: Model | str, tokens: float, sequence: int, *, recompute: bool = False
) -> float:
    """FLOPs of all matrix products to train on `tokens`, in sequences of `sequence`.

    Forward once, backward twice as much, and with `recompute` each block's forward once more.
    Without grouped queries and SwiGLU this is arXiv:2104.04473's
    ``96 B s l h^2 (1 + s/6h + V/16lh)`` with recomputation.

    Raises:
        PlanError: a number is not above 0.
    """
    above_zero("tokens", tokens, 2e12)
    shape = card(model) if isinstance(model, str) else model
    positive("sequence", sequence)
    width = shape.heads_width or shape.hidden
    blocks = 2.0 * shape.active_matrices + 4.0 * sequence * width * shape.layers
    logits = 2.0 * shape.hidden * shape.vocab
    return tokens * ((4 if recompute else 3) * blocks + 3 * logits)


def days(flops: float, *, gpus: int = 1, peak: float = 312e12, mfu: float = 0.4) -> float:
    """Days that `flops` take on `gpus` of `peak` FLOP/s each, used at the fraction `mfu`.

    Model FLOPs utilisation (MFU) is the share of the peak that becomes useful arithmetic
    (Chowdhery et al. 2022, arXiv:2204.02311, appendix B). The default peak is an A100's in bf16.

    Raises:
        PlanError: a number is not above 0, or `mfu` is above 1.
    """
    positive("gpus", gpus)
    above_zero("flops", flops, 1e23)
    above_zero("peak", peak, 312e12)
    above_zero("mfu", mfu, 0.4)
    if mfu > 1:
        raise PlanError(f"mfu must be a fraction of the peak, at most 1, got {mfu!r}; try mfu=0.4")
    return flops / (gpus * peak * mfu) / DAY
