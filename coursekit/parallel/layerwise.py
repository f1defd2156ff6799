"""Layer-wise model parallelism, the naive way: one rank works, the others wait.

It makes a model fit that one card cannot hold, and no step any faster: with p ranks each is busy at
most 1/p of the time (Huang et al. 2019, arXiv:1811.06965, figure 2b). Pipelines mend that.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from coursekit.comm import connect
from coursekit.measure import Clock, phase

from ._errors import ParallelError
from ._group import group_of
from ._same import check_same
from .gpt import GPT

_PHASES = {"activations": "forward", "gradients": "backward"}


class LayerWise(nn.Module):
    """forward: receive activations from the rank before, run own blocks, send them on; backward:
    the same the other way round, with gradients.

    Args:
        module: a `GPT` with the same parameters on every rank; it is cut in place, and the blocks
            of others are dropped. The first rank keeps the embedding, the last one the head.
        group: a process group or one axis of a mesh; all ranks by default.

    Attributes:
        clock: when this rank computed and communicated, since the last `clock.clear()`.
        blocks: the numbers of this rank's blocks.

    Raises:
        ParallelError: there are more ranks than blocks, or the ranks' parameters differ.
    """

    def __init__(self, module: GPT, group: Any = None) -> None:
        super().__init__()
        self.group = group_of(group)
        self.rank, self.size = self.group.rank(), self.group.size()
        self.blocks = range(*_bounds(module, self.rank, self.size))
        check_same(module, self.group)
        self.first, self.last = self.rank == 0, self.rank == self.size - 1
        self.shape = module.shape
        self.module = module
        self._probe = next(module.parameters())
        self._keep_own()
        self.clock = Clock(self.rank)

    def forward_backward(self, ids: Tensor, targets: Tensor, scale: float = 1.0) -> Tensor | None:
        """One whole batch or micro-batch; gradients add up.

        Args:
            ids, targets: the same on every rank, of shape (batch, sequence).
            scale: what the loss is multiplied by before backward, such as 1/m for m micro-batches.

        Returns:
            The loss on the last rank, detached and not scaled; None on the others.
        """
        came = None if self.first else self._receive(self._like(ids), self.rank - 1, "activations")
        # A module that autograd may enter: what came from another process has no history.
        with self.clock.span("compute", "forward"):
            out = self._forward(ids if came is None else came.requires_grad_(), targets)
        if self.last:
            grad = torch.full_like(out, scale)
        else:
            self._send(out.detach(), self.rank + 1, "activations")
            grad = self._receive(torch.empty_like(out), self.rank + 1, "gradients")
        with self.clock.span("compute", "backward"):
            if out.requires_grad:
                out.backward(grad)  # type: ignore[no-untyped-call]
        if came is not None:
            self._send(torch.zeros_like(came) if came.grad is None else came.grad, self.rank - 1,
                       "gradients")  # fmt: skip
        return out.detach() if self.last else None

    def finish(self) -> None:
        """Call it after a step's last backward: a tied embedding sums its two ends' gradients."""
        if not (self.shape.tied and (self.first or self.last) and self.size > 1):
            return
        weight = self.module.embed.tokens.weight if self.first else self.module.head.vocab.weight
        assert isinstance(weight, nn.Parameter)
        if not weight.requires_grad:
            return
        mine = torch.zeros_like(weight) if weight.grad is None else weight.grad
        other = self.size - 1 if self.first else 0
        theirs = torch.empty_like(mine)
        comm = connect(self.group)
        works = comm.isend(mine.contiguous(), other), comm.irecv(theirs, other)
        for work in works:
            work.wait()
        weight.grad = mine + theirs

    def full_state(self) -> dict[str, Tensor]:
        """All weights by the names of the uncut model. Every rank of the group calls it."""
        with torch.device("meta"):
            whole = GPT(self.shape).named_parameters(remove_duplicate=False)
        mine = dict(self.module.named_parameters(remove_duplicate=False))
        state = {}
        for name, like in whole:
            told = self._probe.new_empty(like.shape)
            if self._owner(name) == self.rank:
                told.copy_(mine[name].detach())
            dist.broadcast(told, group=self.group, group_src=self._owner(name))
            state[name] = told
        return state

    def _forward(self, x: Tensor, targets: Tensor) -> Tensor:
        if self.first:
            x = self.module.embed(x)
        for number in self.blocks:
            x = self.module.blocks[number](x)
        return self.module.criterion(self.module.head(x), targets) if self.last else x

    def _keep_own(self) -> None:
        for number in range(self.shape.layers):
            if number not in self.blocks:
                self.module.blocks[number] = nn.Identity()
        if not self.first:
            del self.module.embed
        if not self.last:
            del self.module.head

    def _owner(self, name: str) -> int:
        if not name.startswith("blocks."):
            return 0 if name.startswith("embed.") else self.size - 1
        number = int(name.split(".")[1])
        ends = (_bounds(self.module, rank, self.size)[1] for rank in range(self.size))
        return next(rank for rank, end in enumerate(ends) if number < end)

    def _like(self, ids: Tensor) -> Tensor:
        return self._probe.new_empty(*ids.shape, self.shape.hidden)

    def _send(self, what: Tensor, to: int, label: str) -> None:
        with phase(_PHASES[label]), self.clock.span("communicate", "send", label):
            dist.send(what.contiguous(), group=self.group, group_dst=to)

    def _receive(self, into: Tensor, source: int, label: str) -> Tensor:
        with phase(_PHASES[label]), self.clock.span("communicate", "wait", label):
            dist.recv(into, group=self.group, group_src=source)
        return into


def _bounds(module: GPT, rank: int, size: int) -> tuple[int, int]:
    """A rank's blocks, from and to; the last ranks have one more where the size does not divide."""
    if not isinstance(module, GPT):
        raise ParallelError(f"LayerWise cuts a parallel.GPT, got {type(module).__name__}")
    layers = len(module.blocks)
    if layers < size:
        raise ParallelError(
            f"every rank needs a block, got {layers} blocks for {size} ranks; take a model with "
            f"at least {size} layers, or fewer ranks"
        )
    return rank * layers // size, (rank + 1) * layers // size
