"""A small GPT, written to be cut: the model that every parallel mode trains.

Its shape is a `coursekit.plan.Model`, so that what the plans predict is what this model has. The
places where tensor parallelism cuts it have names of their own: `qkv` and `up` are cut by columns,
`out` and `down` by rows. With experts in its shape, they stand in the feed-forward part's place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from coursekit import plan

from ._errors import ParallelError
from ._mlp import MLP as MLP
from .expert import Experts, layers_of_experts


def small(**changes: Any) -> plan.Model:
    """The shape that the lessons train: 4 blocks of width 64, 4 heads, 64 positions, 50 tokens.

    Args:
        changes: fields of `plan.Model` to change; `ffn` follows `hidden` unless it is given.

    Raises:
        PlanError: the changed shape breaks a rule.

    Examples:
        >>> small(layers=2).parameters
        112512
    """
    hidden = changes.get("hidden", 64)
    heads = changes.get("heads", 4)
    shape = plan.Model(
        "small GPT", layers=4, hidden=64, heads=4, kv_heads=4, ffn=256, vocab=50, positions=64,
        bias=True,
    )  # fmt: skip
    return replace(shape, **{"ffn": 4 * hidden, "kv_heads": heads, **changes})


class GPT(nn.Module):
    """Tokens in, logits out; with targets, the mean cross-entropy, and the experts' balance.

    forward: `ids` of shape (batch, sequence) gives logits (batch, sequence, vocab); with `targets`
    of the shape of `ids`, a scalar.

    Args:
        shape: from `small`, or any `plan.Model` with biases, learned positions, plain attention.
        seed: equal seeds give equal weights, on every rank and whatever was drawn before.
        balance: the weight with which each block's `Routed.balance` is added to the loss. 0.01 is
            Switch Transformer's, arXiv:2101.03961, section 2.2.
        capacity, skew: of the routers, see `Router`.

    Attributes:
        balance: may be set at any time; 0 leaves the cross-entropy alone.

    Raises:
        ParallelError: the shape has rotary positions, grouped queries, a gated feed-forward part,
            or no biases.

    Examples:
        >>> shape = small(experts=8, top_k=2, expert_ffn=64)
        >>> sum(p.numel() for p in GPT(shape).parameters()) == shape.parameters
        True
    """

    def __init__(
        self, shape: plan.Model, seed: int = 0, *, balance: float = 0.01,
        capacity: float | None = None, skew: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__()
        plain = shape.bias and shape.positions and shape.kv_heads == shape.heads
        if not plain or shape.glu or shape.attention or shape.heads_width:
            raise ParallelError(
                "GPT takes a shape with bias, positions, one key per head, the usual attention and "
                f"no glu, got {shape.title}; start from parallel.small()"
            )
        self.shape, self.balance = shape, balance
        dense = shape.layers - shape.moe_layers
        options = {"capacity": capacity, "skew": skew}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.embed = Embed(shape)
            self.blocks = nn.ModuleList(
                Block(shape, _experts(shape, **options) if number >= dense else None)
                for number in range(shape.layers)
            )
            self.head = Head(shape)
        if shape.tied:
            self.head.vocab.weight = self.embed.tokens.weight
        self.criterion: nn.Module = CrossEntropy()

    def forward(self, ids: Tensor, targets: Tensor | None = None) -> Tensor:
        mixed = layers_of_experts(self)
        for layer in mixed:
            layer.routed = None  # A block that this step leaves out has nothing to balance.
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(x)
        if targets is None:
            return logits
        loss: Tensor = self.criterion(logits, targets)
        for layer in mixed:
            if layer.routed is not None:
                loss = loss + self.balance * layer.routed.balance
        return loss


class Embed(nn.Module):
    """forward: the token's vector plus the position's; (b, s) to (b, s, h)."""

    def __init__(self, shape: plan.Model) -> None:
        super().__init__()
        self.tokens: nn.Module = nn.Embedding(shape.vocab, shape.hidden)
        self.positions = nn.Parameter(torch.randn(shape.positions, shape.hidden) * 0.02)
        nn.init.normal_(self.tokens.weight, std=0.02)
        # Where a rank keeps a part of the sequence only, its positions are chosen here,
        self.place: Callable[[Tensor], Tensor] = lambda positions: positions
        # and here its tokens, where no one else needs their vectors.
        self.choose: Callable[[Tensor], Tensor] = lambda ids: ids

    def forward(self, ids: Tensor) -> Tensor:
        if ids.shape[1] > len(self.positions):
            raise ParallelError(
                f"a sequence must have at most {len(self.positions)} tokens, got {ids.shape[1]}; "
                "cut it, or use a shape with more positions"
            )
        x: Tensor = self.tokens(self.choose(ids)) + self.place(self.positions[: ids.shape[1]])
        return x


class Block(nn.Module):
    """forward: attention, then the feed-forward part or experts, each beside a residual stream."""

    def __init__(self, shape: plan.Model, experts: Experts | None = None) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(shape.hidden)
        self.attention = Attention(shape.hidden, shape.heads)
        self.norm2 = nn.LayerNorm(shape.hidden)
        self.mlp: Any = experts or MLP(shape.hidden, shape.ffn)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        y: Tensor = x + self.mlp(self.norm2(x))
        return y


class Attention(nn.Module):
    """forward: causal self-attention; `qkv` has the heads side by side, each with its q, k, v."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.width = hidden // heads
        self.qkv: nn.Module = nn.Linear(hidden, 3 * hidden)
        self.out: nn.Module = nn.Linear(hidden, hidden)
        # Where the sequence lies on many ranks, they meet here.
        self.core: Callable[[Tensor, Tensor, Tensor], Tensor] = causal

    def forward(self, x: Tensor) -> Tensor:
        # As many heads as the matrix has columns for: a cut matrix has a part of them.
        q, k, v = self.qkv(x).unflatten(-1, (-1, 3, self.width)).transpose(1, 2).unbind(3)
        y = self.core(q, k, v)
        mixed: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return mixed


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention of each position to itself and those before, (batch, heads, positions, width)."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Head(nn.Module):
    """forward: the last norm and the scores of every token; (b, s, h) to (b, s, vocab)."""

    def __init__(self, shape: plan.Model) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(shape.hidden)
        self.vocab: nn.Module = nn.Linear(shape.hidden, shape.vocab, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.vocab(self.norm(x))
        return logits


class CrossEntropy(nn.Module):
    """forward: the mean over all tokens of -log p(target)."""

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def _experts(shape: plan.Model, **options: Any) -> Experts:
    ffn, shared = shape.expert_ffn or shape.ffn, shape.shared_experts
    return Experts(shape.hidden, ffn, shape.experts, shape.top_k, shared=shared, **options)
