"""Layer-wise model parallelism, the naive way: one rank works, the others wait.

It makes a model fit that one card cannot hold, and no step any faster: with p ranks each is busy at
most 1/p of the time (Huang et al. 2019, arXiv:1811.06965, figure 2b). Pipelines mend that.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from coursekit.measure import Clock, phase

from ._stages import Stages
from .gpt import GPT
from .tensor import TensorParallel

_PHASES = {"activations": "forward", "gradients": "backward"}


class LayerWise(Stages):
    """forward: receive activations from the rank before, run own blocks, send them on; backward:
    the same the other way round, with gradients.

    Args:
        module: a `GPT`, or one in `TensorParallel`, with the same parameters on every rank; it is
            cut in place, and the blocks of others are dropped. The first rank keeps the embedding,
            the last one the head.
        group: a process group or one axis of a mesh; all ranks by default.

    Attributes:
        clock: when this rank computed and communicated, since the last `clock.clear()`.
        blocks: the numbers of this rank's blocks.

    Raises:
        ParallelError: there are more ranks than blocks, or the ranks' parameters differ.
    """

    def __init__(self, module: GPT | TensorParallel, group: Any = None) -> None:
        super().__init__(module, group)
        self.first, self.last = self.rank == 0, self.rank == self.size - 1
        self.blocks = self.bounds[self.rank]
        self.clock = Clock(self.rank)

    def forward_backward(self, ids: Tensor, targets: Tensor, scale: float = 1.0) -> Tensor | None:
        """One whole batch or micro-batch; gradients add up.

        Args:
            ids, targets: the same on every rank, of shape (batch, sequence).
            scale: what the loss is multiplied by before backward, such as 1/m for m micro-batches.

        Returns:
            The loss on the last rank, detached and not scaled; None on the others.
        """
        came = None if self.first else self._receive(self.like(ids), self.rank - 1, "activations")
        # A module that autograd may enter: what came from another process has no history.
        with self.clock.span("compute", "forward"):
            x = ids if came is None else came.requires_grad_()
            out: Tensor = self(self.rank, x, targets)
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

    def _send(self, what: Tensor, to: int, label: str) -> None:
        with phase(_PHASES[label]), self.clock.span("communicate", "send", label):
            dist.send(what.contiguous(), group=self.group, group_dst=to)

    def _receive(self, into: Tensor, source: int, label: str) -> Tensor:
        with phase(_PHASES[label]), self.clock.span("communicate", "wait", label):
            dist.recv(into, group=self.group, group_src=source)
        return into
