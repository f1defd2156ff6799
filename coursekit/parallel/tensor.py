"""Tensor and sequence parallelism: every rank has a part of every matrix.

Shoeybi et al. 2019, arXiv:1909.08053: the first matrix of a pair is cut by columns, the second by
rows, so that one sum per pair is enough; sequence parallelism, Korthikanti et al. 2022,
arXiv:2205.05198, cuts what lies between the pairs too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from ._errors import ParallelError
from ._group import group_of
from ._same import check_same
from ._seam import Seam
from .gpt import GPT, Block
from .vocab import VocabCrossEntropy, VocabEmbedding, VocabHead, vocab_rows


@dataclass
class Cut:
    """How a parameter was cut: along which axis, and how long that axis was."""

    axis: int
    length: int


class ColumnLinear(nn.Module):
    """forward: f, then x A_i: this rank's part of the outputs; backward: f's all-reduce of dx.

    Args:
        whole: the linear layer to cut, the same on every rank; (n, k) weights become (n/t, k).
        seam: the ranks, and what surrounds the pair.

    Raises:
        ParallelError: t does not divide the outputs.
    """

    def __init__(self, whole: nn.Linear, seam: Seam) -> None:
        super().__init__()
        self.seam = seam
        self.weight = cut(whole.weight, 0, seam)
        self.bias = None if whole.bias is None else cut(whole.bias, 0, seam)
        self.product: Callable[..., Tensor] = F.linear

    def forward(self, x: Tensor) -> Tensor:
        return self.product(self.seam.enter(x), self.weight, self.bias)


class RowLinear(nn.Module):
    """forward: x_i A_i, then g's all-reduce, then the bias, once; backward: nothing to send.

    Args:
        whole: the linear layer to cut, the same on every rank; (n, k) weights become (n, k/t).
        seam: the ranks, and what surrounds the pair.

    Raises:
        ParallelError: t does not divide the inputs.
    """

    def __init__(self, whole: nn.Linear, seam: Seam) -> None:
        super().__init__()
        self.seam = seam
        self.weight = cut(whole.weight, 1, seam)
        self.bias = whole.bias
        self.product: Callable[..., Tensor] = F.linear

    def forward(self, x: Tensor) -> Tensor:
        y = self.seam.leave(self.product(x, self.weight))
        return y if self.bias is None else y + self.bias


def cut(whole: Tensor, axis: int, seam: Seam) -> nn.Parameter:
    """This rank's part of a parameter along an axis, in memory of its own."""
    length = whole.shape[axis]
    if length % seam.size:
        raise ParallelError(
            f"tensor parallelism must divide each matrix, got {length} for {seam.size} ranks; "
            "choose a size that divides it"
        )
    mine = whole.detach().chunk(seam.size, axis)[seam.rank].clone()
    return marked(nn.Parameter(mine, whole.requires_grad), Cut(axis, length))


def marked(parameter: nn.Parameter, how: Cut) -> nn.Parameter:
    """The parameter, with the mark by which `TensorParallel` finds how it was cut."""
    parameter.cut = how  # type: ignore[attr-defined]
    return parameter


class TensorParallel(nn.Module):
    """forward: 2 all-reduces a block, backward: 2 a block; each rank computes its heads.

    With `sequence`, all-gather and reduce-scatter stand in their places, with the same bytes, and
    norms and residuals hold only s/t of the sequence.

    Args:
        module: a `GPT` with the same parameters on every rank; it is cut in place.
        group: a process group or one axis of a mesh; all ranks by default.
        sequence: sequence parallelism.
        collectives: who does all-gather and reduce-scatter, see `Zero`.

    Raises:
        ParallelError: the ranks do not divide the heads or the feed-forward part, the ranks'
            parameters differ, or, in `forward`, they do not divide the sequence.
    """

    def __init__(
        self, module: GPT, group: Any = None, *, sequence: bool = False, collectives: str = "own"
    ) -> None:
        super().__init__()
        g = group_of(group)
        _check(module, g.size())
        check_same(module, g)
        self.seam = Seam(g, sequence, collectives)
        self.module = module
        for block in module.blocks:
            assert isinstance(block, Block)
            self._cut_block(block)
        self._cut_vocabulary(module)

    def forward(self, ids: Tensor, targets: Tensor | None = None) -> Tensor:
        if self.seam.sequence and ids.shape[1] % self.seam.size:
            raise ParallelError(
                f"sequence parallelism over {self.seam.size} ranks must divide the sequence, got "
                f"{ids.shape[1]} tokens; cut or pad it"
            )
        out: Tensor = self.module(ids, targets)
        return out

    def finish(self) -> None:
        """Call it before the optimizer, and after data parallelism's `finish`: that comes first.

        With `sequence`, norms, positions and the biases of rows saw only a part of the sequence:
        their gradients are summed, in one all-reduce. Without, there is nothing to do.
        """
        if not self.seam.sequence:
            return
        partial = [p for p in self.module.parameters() if not hasattr(p, "cut")]
        grads = [p.grad for p in partial if p.grad is not None]
        if grads:
            sizes = [g.numel() for g in grads]
            whole = torch.cat([g.flatten() for g in grads])
            dist.all_reduce(whole, group=self.seam.group)
            for grad, summed in zip(grads, torch.split(whole, sizes), strict=True):
                grad.copy_(summed.view_as(grad))

    def full_state(self) -> dict[str, Tensor]:
        """All weights, whole, by the names of the uncut model. Every rank of the group calls it."""
        return {n: self._whole(p) for n, p in self.module.named_parameters(remove_duplicate=False)}

    def _whole(self, p: nn.Parameter) -> Tensor:
        mine = p.detach().contiguous()
        how: Cut | None = getattr(p, "cut", None)
        if how is None:
            return mine.clone()
        parts = [torch.empty_like(mine) for _ in range(self.seam.size)]
        dist.all_gather(parts, mine, group=self.seam.group)
        return torch.cat(parts, how.axis).narrow(how.axis, 0, how.length)

    def _cut_block(self, block: Block) -> None:
        block.attention.qkv = ColumnLinear(_linear(block.attention.qkv), self.seam)
        block.attention.out = RowLinear(_linear(block.attention.out), self.seam)
        block.mlp.up = ColumnLinear(_linear(block.mlp.up), self.seam)
        block.mlp.down = RowLinear(_linear(block.mlp.down), self.seam)

    def _cut_vocabulary(self, model: GPT) -> None:
        def rows(whole: nn.Parameter) -> nn.Parameter:
            mine = nn.Parameter(vocab_rows(whole, self.seam), whole.requires_grad)
            return marked(mine, Cut(0, model.shape.vocab))

        tokens, scores = model.embed.tokens.weight, model.head.vocab.weight
        assert isinstance(tokens, nn.Parameter)
        assert isinstance(scores, nn.Parameter)
        own = rows(tokens)
        model.embed.tokens = VocabEmbedding(own, self.seam)
        model.head.vocab = VocabHead(own if scores is tokens else rows(scores), self.seam)
        model.criterion = VocabCrossEntropy(model.shape.vocab, self.seam)
        if self.seam.sequence:
            model.embed.place = self._own_positions

    def _own_positions(self, positions: Tensor) -> Tensor:
        return positions.chunk(self.seam.size)[self.seam.rank]


def _check(module: GPT, size: int) -> None:
    if not isinstance(module, GPT):
        raise ParallelError(
            f"TensorParallel cuts a parallel.GPT, got {type(module).__name__}; for other models "
            "use torch's parallelize_module"
        )
    if module.shape.experts:
        raise ParallelError(
            f"TensorParallel cuts a GPT without experts, got {module.shape.experts} of them; "
            "spread them with parallel.ExpertParallel"
        )
    for name, length in (("heads", module.shape.heads), ("ffn", module.shape.ffn)):
        if length % size:
            ways = [t for t in range(1, length + 1) if length % t == 0]
            raise ParallelError(
                f"the tensor-parallel size must divide the {name} {length}, got {size}; "
                f"try {', '.join(map(str, ways[:6]))}"
            )


def _linear(module: nn.Module) -> nn.Linear:
    if not isinstance(module, nn.Linear):
        raise ParallelError("this model is cut already; wrap it once")
    return module
