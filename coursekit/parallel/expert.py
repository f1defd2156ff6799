"""Experts: a router sends each token to a few of many feed-forward parts, on whichever rank.

Shazeer et al. 2017, arXiv:1701.06538; GShard, arXiv:2006.16668, for capacity and all-to-all; the
balance loss is Switch Transformer's, arXiv:2101.03961, equation 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ._errors import ParallelError
from ._group import group_of
from ._same import check_same
from .gpt import MLP


@dataclass(frozen=True)
class Routed:
    """Where tokens go: n tokens, k choices each, E experts.

    Attributes:
        chosen: the experts, of shape (n, k).
        weights: of each choice, (n, k); 0 where the expert was full.
        kept: whether the expert had room, (n, k).
        load: tokens that each expert gets, (E,).
        balance: E times the sum of share chosen x mean probability; 1 when all are used alike.
    """

    chosen: Tensor
    weights: Tensor
    kept: Tensor
    load: Tensor
    balance: Tensor


class Router(nn.Module):
    """forward: a score for each expert, the k best, and the softmax over these as their weights.

    Args:
        hidden, experts, top_k: width of a token, experts in all, experts a token visits.
        capacity: an expert takes at most ``capacity * n * k / E`` of n tokens, rounded up, the
            first ones first; None: all.
        skew: added to expert 0's score, and the less to later ones: a router that has favourites.

    Raises:
        ParallelError: `top_k` is not from 1 to `experts`, or the capacity is not above 0.
    """

    def __init__(
        self, hidden: int, experts: int, top_k: int, *, capacity: float | None = None,
        skew: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__()
        if not 1 <= top_k <= experts:
            raise ParallelError(
                f"top_k must be from 1 to the {experts} experts, got {top_k}; 2 is usual"
            )
        if capacity is not None and capacity <= 0:
            raise ParallelError(
                f"capacity must be above 0, got {capacity}; 1.25 leaves a quarter of room"
            )
        self.top_k, self.capacity = top_k, capacity
        self.score = nn.Linear(hidden, experts, bias=False)
        self.skew: Tensor
        self.register_buffer("skew", torch.linspace(skew, 0, experts))

    def forward(self, tokens: Tensor) -> Routed:
        scores = self.score(tokens) + self.skew
        best, chosen = scores.topk(self.top_k, -1)
        experts, n = len(self.skew), len(tokens)
        kept = torch.ones_like(chosen, dtype=torch.bool)
        if self.capacity is not None:
            room = math.ceil(self.capacity * n * self.top_k / experts)
            turns = torch.nn.functional.one_hot(chosen.flatten(), experts).cumsum(0)
            kept = turns.gather(1, chosen.view(-1, 1)).view_as(chosen) <= room
        share = torch.bincount(chosen.flatten(), minlength=experts) / max(chosen.numel(), 1)
        return Routed(
            chosen,
            best.softmax(-1) * kept,
            kept,
            torch.bincount(chosen[kept], minlength=experts),
            experts * (share * scores.softmax(-1).mean(0)).sum(),
        )


class Experts(nn.Module):
    """forward: each token to its experts, their answers weighed and added; the shared experts' too.
    (b, s, h) to (b, s, h). All are in one process, unless `ask` has others answer.

    Args:
        hidden, ffn: width of a token, and inside each expert.
        experts, top_k, capacity, skew: see `Router`.
        shared: experts that every token visits besides.

    Attributes:
        routed: what the router chose in the last forward.

    Raises:
        ParallelError: as `Router`.
    """

    def __init__(
        self, hidden: int, ffn: int, experts: int, top_k: int = 2, *, shared: int = 0,
        capacity: float | None = None, skew: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.router = Router(hidden, experts, top_k, capacity=capacity, skew=skew)
        self.each = nn.ModuleList(MLP(hidden, ffn) for _ in range(experts))
        self.shared = nn.ModuleList(MLP(hidden, ffn) for _ in range(shared))
        self.routed: Routed | None = None

    def forward(self, x: Tensor, ask: Callable[[Tensor, Tensor], Tensor] | None = None) -> Tensor:
        tokens = x.flatten(0, 1)
        routed = self.routed = self.router(tokens)
        order, origin = _order(routed)
        answers = (ask or self.answer)(tokens[origin], routed.load)
        weights = routed.weights.flatten()[order]
        y = torch.zeros_like(tokens).index_add(0, origin, answers * weights[:, None])
        for expert in self.shared:
            y = y + expert(tokens)
        return y.view_as(x)

    def answer(self, rows: Tensor, load: Tensor) -> Tensor:
        """What the experts make of rows that lie expert after expert."""
        parts = torch.split(rows, load.tolist())
        return torch.cat([e(part) for e, part in zip(self.each, parts, strict=True)])


class ExpertParallel(nn.Module):
    """forward: an all-to-all brings each token to the rank of its expert, another one the answer
    back; backward: the same two, the other way. Each rank has its own tokens and E/K experts.

    Args:
        module: with the same parameters on every rank; it is cut in place.
        group: a process group or one axis of a mesh; all ranks by default.

    Attributes:
        received: tokens that this rank's experts had in the last forward, from each rank: (K, E/K).

    Raises:
        ParallelError: the ranks do not divide the experts, or their parameters differ.
    """

    def __init__(self, module: Experts, group: Any = None) -> None:
        super().__init__()
        if not isinstance(module, Experts):
            raise ParallelError(
                f"ExpertParallel cuts parallel.Experts, got {type(module).__name__}; give it the "
                "experts of a block"
            )
        self.group = group_of(group)
        self.rank, self.size = self.group.rank(), self.group.size()
        count = len(module.each)
        if count != len(module.router.skew):
            raise ParallelError("these experts are cut already; wrap them once")
        if count % self.size:
            raise ParallelError(
                f"the ranks must divide the {count} experts, got {self.size}; take "
                f"{-(-count // self.size) * self.size} experts"
            )
        check_same(module, self.group)
        own = count // self.size
        module.each = module.each[self.rank * own : (self.rank + 1) * own]
        self.module, self.received = module, torch.zeros(self.size, own, dtype=torch.int64)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.module(x, self._answer)
        return out

    def finish(self) -> None:
        """Before the optimizer: gradients of the mean over all ranks' tokens, with one all-reduce
        for the router and the shared experts. An expert has had everyone's tokens: its gradient is
        whole, and is only divided.
        """
        inside = {id(p) for p in self.module.each.parameters()}
        everywhere = [p for p in self.parameters() if id(p) not in inside and p.requires_grad]
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in everywhere]
        whole = torch.cat([g.flatten() for g in grads]) / self.size
        dist.all_reduce(whole, group=self.group)
        for p, grad in zip(everywhere, torch.split(whole, [g.numel() for g in grads]), strict=True):
            p.grad = grad.view_as(p)
        for p in self.module.each.parameters():
            if p.grad is not None:
                p.grad /= self.size

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

    def _answer(self, rows: Tensor, load: Tensor) -> Tensor:
        here = self.dispatch(rows, load)
        # Rank after rank, and within each expert after expert: now expert after expert.
        each = torch.arange(self.received.shape[1], device=here.device).repeat(self.size)
        order = each.repeat_interleave(self.received.flatten()).argsort(stable=True)
        answers = self.module.answer(here[order], self.received.sum(0))
        return self.combine(answers[order.argsort()], load)


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


def _order(routed: Routed) -> tuple[Tensor, Tensor]:
    """The choices that are kept, expert after expert; and of each the token."""
    flat, kept = routed.chosen.flatten(), routed.kept.flatten()
    order = flat.argsort(stable=True)
    order = order[kept[order]]
    return order, order // routed.chosen.shape[1]
