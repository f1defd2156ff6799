"""A whole GPT whose sequence lies on many ranks."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ._errors import ParallelError
from ._group import group_of
from ._rows import weigh
from ._same import check_same
from .context import places, ring_attention, ulysses
from .expert import layers_of_experts
from .gpt import GPT, Block, causal


class ContextParallel(nn.Module):
    """forward: each rank has a part of the sequence in all blocks, and only attention sends: keys
    and values round a ring, or Ulysses' four all-to-alls a block; backward: their gradients.

    Every rank gets the same whole sequences and takes its own positions of them.

    forward: `ids` of shape (batch, sequence) gives the logits of this rank's positions, (batch,
    positions, vocab), in the order of `places`. With `targets`, of the shape of `ids`, a scalar:
    this rank's loss, weighed so that the ranks' mean is the mean over all tokens, also where the
    parts differ in length.

    Args:
        module: a `GPT` with the same parameters on every rank; its attention is replaced in place.
        group: a process group or one axis of a mesh; all ranks by default.
        kind: ``ring`` or ``ulysses``.
        zigzag: of the ring, two pieces a rank, so that causal work is even; see `places`.

    Raises:
        ParallelError: the kind is another one, Ulysses is to go zigzag or its ranks do not divide
            the heads, the parameters differ, or, in `forward`, the sequence has too few tokens or
            `targets` another shape than `ids`.
    """

    def __init__(
        self, module: GPT, group: Any = None, kind: str = "ring", *, zigzag: bool = False
    ) -> None:
        super().__init__()
        self.group = group_of(group)
        self.rank, self.size = self.group.rank(), self.group.size()
        _check(module, self.size, kind, zigzag)
        check_same(module, self.group)
        self.module, self.kind, self.zigzag = module, kind, zigzag
        self._length = 0
        module.embed.choose = lambda ids: ids[:, self.places(ids.shape[1])]
        module.embed.place = lambda positions: positions[self.places(len(positions))]
        for block in _blocks(module):
            block.attention.core = self._meet
        for layer in layers_of_experts(module):
            layer.router.counted_over.append(self.group)

    def forward(self, ids: Tensor, targets: Tensor | None = None) -> Tensor:
        self._length = ids.shape[1]
        mine = self.places(self._length)
        if targets is None:
            logits: Tensor = self.module(ids)
            return logits
        if targets.shape != ids.shape:
            raise ParallelError(
                f"targets must be whole, as ids are, got {tuple(targets.shape)} for "
                f"{tuple(ids.shape)}; give both uncut, each rank takes its places"
            )
        loss = self.module(ids, targets[:, mine])
        return weigh(loss, len(mine), self._length, self.group)

    def places(self, length: int) -> Tensor:
        """This rank's positions in a sequence of so many tokens, in its order."""
        return places(length, self.rank, self.size, zigzag=self.zigzag)

    def finish(self) -> None:
        """Before the optimizer: every gradient is the ranks' mean, with one all-reduce for all. A
        rank's gradients are those of its own positions, through everyone's attention.
        """
        trained = [p for p in self.parameters() if p.requires_grad]
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in trained]
        if not grads:
            return
        whole = torch.cat([g.flatten() for g in grads]) / self.size
        dist.all_reduce(whole, group=self.group)
        for p, grad in zip(trained, torch.split(whole, [g.numel() for g in grads]), strict=True):
            p.grad = grad.view_as(p)

    def _meet(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if self.kind == "ulysses":
            return ulysses(q, k, v, self._length, self.group)
        return ring_attention(q, k, v, self._length, self.group, zigzag=self.zigzag)


def _check(module: GPT, size: int, kind: str, zigzag: bool) -> None:
    if kind not in ("ring", "ulysses"):
        raise ParallelError(f"kind must be 'ring' or 'ulysses', got {kind!r}; try 'ring'")
    if not isinstance(module, GPT):
        raise ParallelError(
            f"ContextParallel cuts a parallel.GPT, got {type(module).__name__}; for other models "
            "call parallel.ring_attention in their attention"
        )
    if any(block.attention.core is not causal for block in _blocks(module)):
        raise ParallelError("this model's sequence is cut already; wrap it once")
    if kind == "ulysses" and zigzag:
        raise ParallelError(
            "zigzag orders a ring, got kind='ulysses', where every rank has whole sequences and as "
            "much work; leave zigzag out"
        )
    if kind == "ulysses" and module.shape.heads % size:
        raise ParallelError(
            f"Ulysses needs a number of ranks that divides the {module.shape.heads} heads, got "
            f"{size}; take kind='ring', which does not cut heads"
        )


def _blocks(module: GPT) -> list[Block]:
    return [block for block in module.blocks if isinstance(block, Block)]
