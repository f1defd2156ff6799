"""A small GPT, written to be cut: the model that every parallel mode trains.

Its shape is a `coursekit.plan.Model`, so that what the plans predict is what this model has. The
places where tensor parallelism cuts it have names of their own: `qkv` and `up` are cut by columns,
`out` and `down` by rows.
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
    """Tokens in, logits out; with targets, the mean cross-entropy.

    forward: `ids` of shape (batch, sequence) gives logits (batch, sequence, vocab); with `targets`
    of the shape of `ids`, a scalar.

    Args:
        shape: from `small`, or any `plan.Model` with biases, learned positions, plain attention.
        seed: equal seeds give equal weights, on every rank and whatever was drawn before.

    Raises:
        ParallelError: the shape has rotary positions, grouped queries, a gated feed-forward part,
            experts, or no biases.
    """

    def __init__(self, shape: plan.Model, seed: int = 0) -> None:
        super().__init__()
        plain = shape.bias and shape.positions and shape.kv_heads == shape.heads
        if not plain or shape.glu or shape.experts or shape.attention:
            raise ParallelError(
                "GPT takes a shape with bias, positions, one key per head, no glu and no experts, "
                f"got {shape.title}; start from parallel.small()"
            )
        self.shape = shape
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.embed = Embed(shape)
            self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
            self.head = Head(shape)
        if shape.tied:
            self.head.vocab.weight = self.embed.tokens.weight
        self.criterion: nn.Module = CrossEntropy()

    def forward(self, ids: Tensor, targets: Tensor | None = None) -> Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(x)
        return logits if targets is None else self.criterion(logits, targets)


class Embed(nn.Module):
    """forward: the token's vector plus the position's; (b, s) to (b, s, h)."""

    def __init__(self, shape: plan.Model) -> None:
        super().__init__()
        self.tokens: nn.Module = nn.Embedding(shape.vocab, shape.hidden)
        self.positions = nn.Parameter(torch.randn(shape.positions, shape.hidden) * 0.02)
        nn.init.normal_(self.tokens.weight, std=0.02)
        # Where a rank keeps a part of the sequence only, its positions are chosen here.
        self.place: Callable[[Tensor], Tensor] = lambda positions: positions

    def forward(self, ids: Tensor) -> Tensor:
        if ids.shape[1] > len(self.positions):
            raise ParallelError(
                f"a sequence must have at most {len(self.positions)} tokens, got {ids.shape[1]}; "
                "cut it, or use a shape with more positions"
            )
        x: Tensor = self.tokens(ids) + self.place(self.positions[: ids.shape[1]])
        return x


class Block(nn.Module):
    """forward: attention, then the feed-forward part, each beside a residual stream."""

    def __init__(self, shape: plan.Model) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(shape.hidden)
        self.attention = Attention(shape.hidden, shape.heads)
        self.norm2 = nn.LayerNorm(shape.hidden)
        self.mlp = MLP(shape.hidden, shape.ffn)

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

    def forward(self, x: Tensor) -> Tensor:
        # As many heads as the matrix has columns for: a cut matrix has a part of them.
        q, k, v = self.qkv(x).unflatten(-1, (-1, 3, self.width)).transpose(1, 2).unbind(3)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        mixed: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return mixed


class MLP(nn.Module):
    """forward: up, GELU, down."""

    def __init__(self, hidden: int, ffn: int) -> None:
        super().__init__()
        self.up: nn.Module = nn.Linear(hidden, ffn)
        self.down: nn.Module = nn.Linear(ffn, hidden)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down(F.gelu(self.up(x)))
        return y


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
