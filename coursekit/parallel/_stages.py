"""A GPT cut between its layers: the stages that one rank keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from coursekit.comm import connect
from coursekit.comm._comm import Request

from ._errors import ParallelError
from ._group import group_of
from ._same import check_same
from .gpt import GPT
from .tensor import TensorParallel


class Stages(nn.Module):
    """forward: the blocks of one stage; the first stage has the embedding too, the last the head
    and the loss. Stage s lies on rank ``s % ranks``.

    Args:
        module: a `GPT`, or one in `TensorParallel`, with the same parameters on every rank; it is
            cut in place, and what belongs to others is dropped.
        group: the ranks, as of every mode.
        chunks: stages a rank.

    Raises:
        ParallelError: there are more stages than blocks, or the ranks' parameters differ.
    """

    puts_off = False  # Whether gradients of weights come after backward.

    def __init__(self, module: GPT | TensorParallel, group: Any = None, chunks: int = 1) -> None:
        super().__init__()
        self.group = group_of(group)
        self.rank, self.size = self.group.rank(), self.group.size()
        self.tensor = module if isinstance(module, TensorParallel) else None
        self.module = _gpt(module)
        self.shape = self.module.shape
        self.bounds = _bounds(len(self.module.blocks), self.size * chunks)
        check_same(self.module, self.group)
        self.numbers = range(self.rank, len(self.bounds), self.size)
        self._keep_own()

    def forward(self, stage: int, x: Tensor, targets: Tensor) -> Tensor:
        if stage == 0:
            x = self.module.embed(x)
        for number in self.bounds[stage]:
            x = self.module.blocks[number](x)
        if stage < len(self.bounds) - 1:
            return x
        loss: Tensor = self.module.criterion(self.module.head(x), targets)
        return loss

    def like(self, ids: Tensor) -> Tensor:
        """Memory for what travels between two stages when the input is `ids`."""
        batch, tokens = ids.shape
        if self.tensor is not None and self.tensor.seam.sequence:
            tokens //= self.tensor.seam.size
        return self._new(batch, tokens, self.shape.hidden)

    def finish(self) -> None:
        """Call it after a step's last backward: a tied embedding sums its two ends' gradients."""
        first, last = self.rank == 0, self.rank == self.size - 1
        if not (self.shape.tied and (first or last) and self.size > 1):
            return
        weight = self.module.embed.tokens.weight if first else self.module.head.vocab.weight
        assert isinstance(weight, nn.Parameter)
        if not weight.requires_grad:
            return
        mine = torch.zeros_like(weight) if weight.grad is None else weight.grad
        other = self.size - 1 if first else 0
        theirs = torch.empty_like(mine)
        comm = connect(self.group)
        # In one order on both, for backends that do the messages of a pair one after the other.
        calls: list[Callable[[], Request]] = [
            lambda: comm.isend(mine.contiguous(), other),
            lambda: comm.irecv(theirs, other),
        ]
        for work in [call() for call in (calls if first else calls[::-1])]:
            work.wait()
        weight.grad = mine + theirs

    def full_state(self) -> dict[str, Tensor]:
        """All weights by the names of the uncut model. Every rank of the group calls it."""
        with torch.device("meta"):
            whole = GPT(self.shape).named_parameters(remove_duplicate=False)
        named = dict(self.module.named_parameters(remove_duplicate=False))
        mine = named if self.tensor is None else self.tensor.full_state()
        state = {}
        for name, like in whole:
            told = self._new(*like.shape)
            if self._owner(name) == self.rank:
                told.copy_(mine[name].detach())
            dist.broadcast(told, group=self.group, group_src=self._owner(name))
            state[name] = told
        return state

    def _new(self, *shape: int) -> Tensor:
        like = next(self.module.parameters(), None)
        if like is None:
            raise ParallelError(
                f"a stage must have a parameter, which says the type of its messages; rank "
                f"{self.rank}'s has none: give it a block with weights"
            )
        return torch.empty(shape, dtype=like.dtype, device=like.device)

    def _keep_own(self) -> None:
        own = {number for stage in self.numbers for number in self.bounds[stage]}
        for number in range(self.shape.layers):
            if number not in own:
                self.module.blocks[number] = nn.Identity()
        if 0 not in self.numbers:
            del self.module.embed
        if len(self.bounds) - 1 not in self.numbers:
            del self.module.head

    def _owner(self, name: str) -> int:
        if not name.startswith("blocks."):
            return 0 if name.startswith("embed.") else self.size - 1
        number = int(name.split(".")[1])
        return next(s for s, own in enumerate(self.bounds) if number in own) % self.size


def _gpt(module: Any) -> GPT:
    inner = module.module if isinstance(module, TensorParallel) else module
    if not isinstance(inner, GPT):
        raise ParallelError(
            f"stages are cut from a parallel.GPT, got {type(inner).__name__}; for other models "
            "use torch.distributed.pipelining"
        )
    if inner.shape.experts:
        raise ParallelError(
            "stages are cut from a GPT without experts, whose balance would be lost between them, "
            f"got {inner.shape.experts} experts; spread these with parallel.ExpertParallel"
        )
    return inner


def _bounds(layers: int, stages: int) -> list[range]:
    """The blocks of each stage; the last ones have one more where the number does not divide."""
    if layers < stages:
        raise ParallelError(
            f"every stage needs a block, got {layers} blocks for {stages} stages; take a model "
            f"with at least {stages} layers, or fewer ranks"
        )
    return [range(s * layers // stages, (s + 1) * layers // stages) for s in range(stages)]
