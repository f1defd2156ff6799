"""How one layer's tokens come to the ranks of their experts, and the answers back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


class Exchange:
    """Two all-to-alls, in forward and in backward.

    Args:
        group: the ranks; each has as many experts, in order.
        own: experts of a rank.
        answer: what this rank's experts make of rows (n, h) that lie expert after expert, and how
            many there are for each.

    Attributes:
        received: rows that this rank's experts had in the last forward, from each rank: (K, own).
    """

    def __init__(
        self, group: dist.ProcessGroup, own: int, answer: Callable[[Tensor, Tensor], Tensor]
    ) -> None:
        self.group, self.size, self.answer = group, group.size(), answer
        self.received = torch.zeros(self.size, own, dtype=torch.int64)

    def ask(self, rows: Tensor, load: Tensor) -> Tensor:
        """What all the experts make of rows that lie expert after expert, `load` for each."""
        here = self.dispatch(rows, load)
        # Rank after rank, and within each expert after expert: now expert after expert.
        each = torch.arange(self.received.shape[1], device=here.device).repeat(self.size)
        order = each.repeat_interleave(self.received.flatten()).argsort(stable=True)
        answers = self.answer(here[order], self.received.sum(0))
        return self.combine(answers[order.argsort()], load)

    def dispatch(self, rows: Tensor, load: Tensor) -> Tensor:
        """Rows that lie expert after expert, to the experts' ranks; there they lie rank after rank.

        Args:
            rows: (n, h).
            load: how many for each of all experts.
        """
        told = torch.empty_like(load)
        dist.all_to_all_single(told, load, group=self.group)
        self.received = told.view(self.size, -1)
        return self._send(rows, load.view(self.size, -1).sum(1), self.received.sum(1))

    def combine(self, answers: Tensor, load: Tensor) -> Tensor:
        """The way back of `dispatch`, to the rows' places there."""
        return self._send(answers, self.received.sum(1), load.view(self.size, -1).sum(1))

    def _send(self, rows: Tensor, give: Tensor, take: Tensor) -> Tensor:
        sent: Tensor = _AllToAll.apply(rows, give.tolist(), take.tolist(), self.group)  # type: ignore[no-untyped-call]
        return sent


class _AllToAll(torch.autograd.Function):
    """forward: rows to other ranks, so many to each; backward: their gradients back."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, give: list[int], take: list[int], group: dist.ProcessGroup
    ) -> Tensor:
        ctx.told = take, give, group
        into = rows.new_empty(sum(take), *rows.shape[1:])
        dist.all_to_all_single(into, rows.contiguous(), take, give, group=group)
        return into

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return _AllToAll.apply(grads[0], *ctx.told), None, None, None  # type: ignore[no-untyped-call]
