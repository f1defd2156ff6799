"""Experts: a router sends each token to a few of many feed-forward parts, on whichever rank.

Shazeer et al. 2017, arXiv:1701.06538; GShard, arXiv:2006.16668, for capacity and all-to-all; the
balance loss is Switch Transformer's, arXiv:2101.03961, equation 4, over all ranks' tokens, as in
Qiu et al. 2025, arXiv:2501.11873.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ._errors import ParallelError
from ._exchange import Exchange
from ._group import group_of
from ._mlp import MLP
from ._same import check_same


@dataclass(frozen=True)
class Routed:
    """Where tokens go: n tokens, k choices each, E experts.

    Attributes:
        chosen: the experts, of shape (n, k).
        weights: of each choice, (n, k); 0 where the expert was full.
        kept: whether the expert had room, (n, k).
        load: tokens that each expert gets, (E,).
        balance: E times the sum of share chosen x mean probability; 1 when all are used alike.
            Shares are those of all ranks' tokens where the modes say so, so that the mean of the
            ranks' balances is the balance of all tokens.
    """

    chosen: Tensor
    weights: Tensor
    kept: Tensor
    load: Tensor
    balance: Tensor


class Router(nn.Module):
    """forward: a score for each expert, the k best, and the softmax over these as their weights.
    Of equal scores the first expert's counts more, so that equal tokens always go equal ways.

    Args:
        hidden, experts, top_k: width of a token, experts in all, experts a token visits.
        capacity: an expert takes at most ``capacity * n * k / E`` of n tokens, rounded up, the
            first ones first; None: all.
        skew: added to expert 0's score, and the less to later ones: a router that has favourites.

    Attributes:
        counted_over: groups whose ranks' tokens count in the balance too, each for an all-reduce of
            E int64 in forward. The modes that cut experts or the sequence add theirs; to others,
            such as data parallelism, a balance is each rank's own unless you append their group.

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
        # Given, not learned: so it is in no checkpoint.
        self.register_buffer("skew", torch.linspace(skew, 0, experts), persistent=False)
        self.counted_over: list[dist.ProcessGroup] = []

    def forward(self, tokens: Tensor) -> Routed:
        scores = self.score(tokens) + self.skew
        ranked = scores.sort(dim=-1, descending=True, stable=True)
        best, chosen = (x[:, : self.top_k] for x in ranked)
        experts, n = len(self.skew), len(tokens)
        kept = torch.ones_like(chosen, dtype=torch.bool)
        if self.capacity is not None:
            room = math.ceil(self.capacity * n * self.top_k / experts)
            turns = torch.nn.functional.one_hot(chosen.flatten(), experts).cumsum(0)
            kept = turns.gather(1, chosen.reshape(-1, 1)).view(chosen.shape) <= room
        share = self._shares(torch.bincount(chosen.flatten(), minlength=experts)).to(scores)
        return Routed(
            chosen,
            best.softmax(-1) * kept,
            kept,
            torch.bincount(chosen[kept], minlength=experts),
            experts * (share * scores.softmax(-1).mean(0)).sum(),
        )

    def _shares(self, counts: Tensor) -> Tensor:
        for group in self.counted_over:
            dist.all_reduce(counts, group=group)
        return counts.double() / counts.sum().clamp(min=1)


class Experts(nn.Module):
    """forward: each token to its experts, their answers weighed and added; the shared experts' too.
    (b, s, h) to (b, s, h). All are in one process, unless `ask` is set to have others answer.

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
        self.ask: Callable[[Tensor, Tensor], Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, 1)
        routed = self.routed = self.router(tokens)
        order, weights = _order(routed), routed.weights
        # A place for every choice, and a sum over a token's: in one order, on any device.
        asked = tokens.repeat_interleave(weights.shape[1], 0)[order]
        answers = (self.ask or self.answer)(asked, routed.load)
        heard = tokens.new_zeros(weights.numel(), tokens.shape[1]).index_copy(0, order, answers)
        y = (heard.view(*weights.shape, -1) * weights[..., None]).sum(1)
        for expert in self.shared:
            y = y + expert(tokens)
        whole: Tensor = y.view_as(x)
        return whole

    def answer(self, rows: Tensor, load: Tensor) -> Tensor:
        """What the experts make of rows that lie expert after expert."""
        parts = torch.split(rows, load.tolist())
        return torch.cat([e(part) for e, part in zip(self.each, parts, strict=True)])


class ExpertParallel(nn.Module):
    """forward: in each layer of experts an all-to-all brings each token to the rank of its expert,
    another one the answer back; backward: the same two, the other way. Each rank has its own part
    of the batch, and of every layer E/K experts: these are the data-parallel ranks too.

    The router's capacity is each rank's own: so much room for its own tokens.

    Args:
        module: with the same parameters on every rank, `Experts` or anything that has them inside,
            such as a `GPT` whose shape has experts; it is cut in place.
        group: a process group or one axis of a mesh; all ranks by default.

    Attributes:
        exchanges: one a layer of experts.

    Raises:
        ParallelError: the ranks do not divide the experts, or their parameters differ.
    """

    def __init__(self, module: nn.Module, group: Any = None) -> None:
        super().__init__()
        layers = layers_of_experts(module)
        if not layers:
            raise ParallelError(
                f"ExpertParallel cuts parallel.Experts, got {type(module).__name__}; give it the "
                "experts of a block, or a GPT whose shape has experts"
            )
        self.group = group_of(group)
        self.rank, self.size = self.group.rank(), self.group.size()
        for layer in layers:
            _check(layer, self.size)
        check_same(module, self.group)
        self.exchanges = [self._cut(layer) for layer in layers]
        self.module = module
        self._inside = _ids(p for layer in layers for p in layer.each.parameters())

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    @property
    def received(self) -> Tensor:
        """Tokens that this rank's experts had in the last forward, from each rank: (K, E/K) of
        `Experts` alone, (layers, K, E/K) of a module around them.
        """
        told = torch.stack([exchange.received for exchange in self.exchanges])
        return told[0] if isinstance(self.module, Experts) else told

    def dispatch(self, rows: Tensor, load: Tensor) -> Tensor:
        """Of the first layer: rows (n, h) that lie expert after expert, `load` for each of all
        experts, to the experts' ranks; there they lie rank after rank.
        """
        return self.exchanges[0].dispatch(rows, load)

    def combine(self, answers: Tensor, load: Tensor) -> Tensor:
        """The way back of `dispatch`, to the rows' places there."""
        return self.exchanges[0].combine(answers, load)

    def finish(self) -> None:
        """Before the optimizer: gradients of the mean over all ranks' tokens, with one all-reduce
        for all but the experts. An expert has had everyone's tokens: its gradient is whole, and is
        only divided. Where the ranks' parts differ in size, `weigh` each one's loss.
        """
        trained = [p for p in self.parameters() if p.requires_grad]
        everywhere = [p for p in trained if id(p) not in self._inside]
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in everywhere]
        if grads:
            whole = torch.cat([g.flatten() for g in grads]) / self.size
            dist.all_reduce(whole, group=self.group)
            pieces = torch.split(whole, [g.numel() for g in grads])
            for p, grad in zip(everywhere, pieces, strict=True):
                p.grad = grad.view_as(p)
        for p in trained:
            if id(p) in self._inside and p.grad is not None:
                p.grad /= self.size

    def full_state(self) -> dict[str, Tensor]:
        """All weights, by the names of the uncut module. Every rank of the group calls it."""
        state = {}
        for name, p in self.module.named_parameters(remove_duplicate=False):
            if id(p) not in self._inside:
                state[name] = p.detach().clone()
                continue
            before, _, after = name.rpartition("each.")
            number, _, rest = after.partition(".")
            parts = [torch.empty_like(p) for _ in range(self.size)]
            dist.all_gather(parts, p.detach().contiguous(), group=self.group)
            own = self.exchanges[0].received.shape[1]
            for rank, part in enumerate(parts):
                state[f"{before}each.{rank * own + int(number)}.{rest}"] = part.detach()
        return state

    def _cut(self, layer: Experts) -> Exchange:
        own = len(layer.each) // self.size
        layer.each = layer.each[self.rank * own : (self.rank + 1) * own]
        exchange = Exchange(self.group, own, layer.answer)
        layer.ask = exchange.ask
        layer.router.counted_over.append(self.group)
        return exchange


def layers_of_experts(module: nn.Module) -> list[Experts]:
    """The `Experts` in a module, in order."""
    return [each for each in module.modules() if isinstance(each, Experts)]


def _check(layer: Experts, size: int) -> None:
    count = len(layer.each)
    if count != len(layer.router.skew) or layer.ask is not None:
        raise ParallelError("these experts are cut already; wrap them once")
    if count % size:
        raise ParallelError(
            f"the ranks must divide the {count} experts, got {size}; take "
            f"{-(-count // size) * size} experts"
        )


def _ids(parameters: Iterable[nn.Parameter]) -> set[int]:
    return {id(p) for p in parameters}


def _order(routed: Routed) -> Tensor:
    """The choices that are kept, expert after expert."""
    order = routed.chosen.flatten().argsort(stable=True)
    return order[routed.kept.flatten()[order]]
