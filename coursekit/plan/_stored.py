"""Bytes that each block keeps for backward, counted tensor by tensor.

As Korthikanti et al. 2022, arXiv:2205.05198, section 4, but without dropout's masks, for any
feed-forward part, grouped queries and experts, and with attention that keeps no scores (Dao et al.
2022, arXiv:2205.14135).
"""

from __future__ import annotations

from coursekit.plan.models import Model

# A number that is sent: 16 bits.
SIZE = 2


def attention_stored(
    shape: Model, sequence: int, recompute: str, *, flash: bool, size: int = 2
) -> float:
    """Bytes a token, `size` a number: input, its norm, q, k, v, what the heads give, and unless
    `flash` the scores: raw, as weights, and dropped's mask (5 bytes each in 16 bits).
    """
    if recompute == "full":
        return size * shape.hidden
    width = shape.heads_width or shape.hidden
    cheap = recompute == "cheap"
    # Where q, k and v grow out of a few numbers, they are made again from these.
    queries = 0 if cheap and shape.heads_width else _queries(shape)
    kept = size * (shape.hidden * (1 if cheap else 2) + queries + width)
    scores = (2 * size + 1) * shape.heads * sequence
    return kept + (0 if flash or recompute != "none" else scores)


def feed_stored(
    shape: Model, recompute: str, *, moe: bool, size: int = 2, product: int | None = None
) -> float:
    """Bytes a token of a feed-forward part: input, norm, one or two ups, what goes into down.
    Each expert has its own copy of the norm's output; in fp8, products keep inputs of one byte:
    `product`, else `size` too.
    """
    if recompute == "full":
        return 0.0
    width, visits = shape.ffn, 1
    if moe:
        width, visits = shape.expert_ffn or shape.ffn, shape.top_k + shape.shared_experts
    ups = (2 if shape.glu else 1) * width
    inputs = shape.hidden if moe or recompute != "cheap" else 0
    return size * shape.hidden + visits * (product or size) * (
        inputs + ups + (0 if recompute == "cheap" else width)
    )


def whole_stored(shape: Model, recompute: str, *, size: int) -> float:
    """Of these bytes, those that only sequence parallelism cuts: inputs and norms."""
    return size * shape.hidden * {"full": 1, "cheap": 2}.get(recompute, 4)


def backward_held(shape: Model, *, moe: bool, size: int, copies: int = 1) -> float:
    """Bytes a token beside all that forward kept, when backward enters a block: the gradients of
    its output, of which tensor ranks may have `copies`, and of what goes into down.
    """
    width = shape.ffn
    if moe:
        width = (shape.expert_ffn or shape.ffn) * (shape.top_k + shape.shared_experts)
    return size * (copies * shape.hidden + width)


def _queries(shape: Model) -> int:
    """Width of q, k and v together."""
    if shape.heads_width:
        return 3 * shape.heads_width
    return shape.hidden + 2 * shape.kv_width
