"""The vocabulary cut over ranks: embedding, scores, and the cross-entropy without whole scores.

Shoeybi et al. 2019, arXiv:1909.08053, section 3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from ._seam import Seam


def vocab_rows(whole: Tensor, seam: Seam) -> Tensor:
    """This rank's rows, as many on every rank: the last ones are filled up with zeros."""
    filled = F.pad(whole.detach(), (0, 0, 0, -len(whole) % seam.size))
    return filled.chunk(seam.size)[seam.rank].clone()


class VocabEmbedding(nn.Module):
    """forward: the vectors of the tokens whose rows are here, zeros for others, then g; backward:
    nothing to send.
    """

    def __init__(self, rows: nn.Parameter, seam: Seam) -> None:
        super().__init__()
        self.weight, self.seam = rows, seam

    def forward(self, ids: Tensor) -> Tensor:
        local, here = _local(ids, len(self.weight), self.seam)
        found = F.embedding(local, self.weight) * here.unsqueeze(-1)
        return self.seam.leave(found)


class VocabHead(nn.Module):
    """forward: f, then the scores of this rank's tokens, (b, s, h) to (b, s, vocab/t); backward:
    f's all-reduce.
    """

    def __init__(self, rows: nn.Parameter, seam: Seam) -> None:
        super().__init__()
        self.weight, self.seam = rows, seam
        self.product: Callable[..., Tensor] = F.linear

    def forward(self, x: Tensor) -> Tensor:
        return self.product(self.seam.enter(x), self.weight)


class VocabCrossEntropy(nn.Module):
    """forward: the mean of -log p(target), by 3 all-reduces of one number a token; backward: local.

    The greatest score, the target's score and the sum of exponentials travel; the scores, vocab/t
    numbers a token, do not.
    """

    def __init__(self, vocab: int, seam: Seam) -> None:
        super().__init__()
        self.vocab, self.seam = vocab, seam

    def forward(self, scores: Tensor, targets: Tensor) -> Tensor:
        first = self.seam.rank * scores.shape[-1]
        numbers = torch.arange(first, first + scores.shape[-1], device=scores.device)
        known = scores.masked_fill(numbers >= self.vocab, -torch.inf)
        loss: Tensor = _CrossEntropy.apply(known, targets, self.seam)  # type: ignore[no-untyped-call]
        return loss


class _CrossEntropy(torch.autograd.Function):
    """forward: as said above; backward: softmax minus one at the target, of this rank's tokens."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, targets: Tensor, seam: Seam) -> Tensor:
        group = seam.group
        top = scores.amax(-1)
        dist.all_reduce(top, dist.ReduceOp.MAX, group=group)
        local, here = _local(targets, scores.shape[-1], seam)
        ours = (scores.gather(-1, local.unsqueeze(-1)).squeeze(-1) - top).masked_fill(~here, 0)
        dist.all_reduce(ours, group=group)
        powers = (scores - top.unsqueeze(-1)).exp()
        total = powers.sum(-1)
        dist.all_reduce(total, group=group)
        ctx.save_for_backward(powers / total.unsqueeze(-1), local, here)
        return (total.log() - ours).mean()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        softmax, local, here = ctx.saved_tensors
        at_target = torch.zeros_like(softmax).scatter_(-1, local.unsqueeze(-1), 1)
        grad = softmax - at_target * here.unsqueeze(-1)
        return grad * (grads[0] / here.numel()), None, None


def _local(ids: Tensor, rows: int, seam: Seam) -> tuple[Tensor, Tensor]:
    """Where tokens lie among this rank's rows, and whether they do."""
    local = ids - seam.rank * rows
    here = (local >= 0) & (local < rows)
    return local.masked_fill(~here, 0), here
