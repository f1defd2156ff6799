"""Communication inside autograd: pairs of collectives, each the other's backward.

Shoeybi et al. 2019, arXiv:1909.08053, call the first two f and g; Korthikanti et al. 2022,
arXiv:2205.05198, add the pair along the sequence.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ._group import Library, Own, part


class Copy(torch.autograd.Function):
    """f: forward does nothing, backward adds the gradients of all ranks up."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return _summed(grads[0], ctx.group), None


class Reduce(torch.autograd.Function):
    """g: forward adds the partial results of all ranks up, backward does nothing."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        return _summed(x, group)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return grads[0], None


class Gather(torch.autograd.Function):
    """forward gathers the pieces of the sequence, backward sums and scatters the gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, wires: Own | Library, group: dist.ProcessGroup) -> Tensor:
        ctx.wires, ctx.group = wires, group
        return gather_sequence(x, wires, group)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return scatter_sequence(grads[0], ctx.wires, ctx.group), None, None


class Scatter(torch.autograd.Function):
    """forward sums partial results and scatters them along the sequence, backward gathers."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, wires: Own | Library, group: dist.ProcessGroup) -> Tensor:
        ctx.wires, ctx.group = wires, group
        return scatter_sequence(x, wires, group)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return gather_sequence(grads[0], ctx.wires, ctx.group), None, None


def gather_sequence(x: Tensor, wires: Own | Library, group: dist.ProcessGroup) -> Tensor:
    """(b, s/t, h) of every rank to (b, s, h) on every rank: an all-gather."""
    rows = x.transpose(0, 1).contiguous()  # The ranks' parts must lie one after another.
    whole = rows.new_empty(group.size() * rows.numel())
    part(whole, group.rank(), group.size()).copy_(rows.flatten())
    wires.all_gather(whole)
    return whole.view(-1, *rows.shape[1:]).transpose(0, 1).contiguous()


def scatter_sequence(x: Tensor, wires: Own | Library, group: dist.ProcessGroup) -> Tensor:
    """(b, s, h) of every rank, summed, to this rank's (b, s/t, h): a reduce-scatter."""
    rows = x.transpose(0, 1).contiguous().clone()
    mine = wires.reduce_scatter(rows.view(-1))
    return mine.view(-1, *rows.shape[1:]).transpose(0, 1).contiguous()


def _summed(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    # A copy: autograd and other branches still need what came in.
    total = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, group=group)
    return total
