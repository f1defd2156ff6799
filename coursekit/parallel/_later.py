"""Backward in two halves: the gradient of the input now, those of the weights later.

As the weight-gradient store of Qi et al. 2023, arXiv:2401.10241: no product is done twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .tensor import ColumnLinear, RowLinear
from .vocab import VocabHead


class Store:
    """Work that is put off until its turn comes."""

    def __init__(self) -> None:
        self._later: dict[Hashable, list[Callable[[], None]]] = defaultdict(list)
        self._turn: Hashable | None = None

    @contextmanager
    def collecting(self, turn: Hashable) -> Iterator[None]:
        """Put off what `do` is given in this block; at other times `do` does it at once."""
        self._turn = turn
        yield
        self._turn = None

    def do(self, work: Callable[[], None]) -> None:
        """Do it, now or when its turn comes."""
        if self._turn is None:
            work()
        else:
            self._later[self._turn].append(work)

    def run(self, turn: Hashable) -> None:
        """Do what was put off for this turn."""
        for work in self._later.pop(turn, []):
            work()


def defer(module: nn.Module, store: Store) -> None:
    """Let the matrices of a module leave the gradients of their weights to the store.

    Those of norms, biases of rows and embeddings are cheap and stay where they are.
    """
    product = partial(_product, store)
    for part in module.modules():
        if isinstance(part, nn.Linear):
            part.forward = partial(_linear, part, product)  # type: ignore[method-assign]
        elif isinstance(part, ColumnLinear | RowLinear | VocabHead):
            part.product = product


def _product(store: Store, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    made: Tensor = _Product.apply(x, weight, bias, store)  # type: ignore[no-untyped-call]
    return made


def _linear(part: nn.Linear, product: Callable[..., Tensor], x: Tensor) -> Tensor:
    return product(x, part.weight, part.bias)


class _Product(torch.autograd.Function):
    """forward: x A^T + b; backward: the gradient of x, and the rest to the store."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, store: Store) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.weight, ctx.bias, ctx.store = weight, bias, store
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        ctx.store.do(partial(_accumulate, x, grads[0], ctx.weight, ctx.bias))
        return grads[0] @ weight if ctx.needs_input_grad[0] else None, None, None, None


@torch.no_grad()
def _accumulate(x: Tensor, grad: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    rows = grad.flatten(0, -2)
    if weight.requires_grad:
        _add(weight, rows.T @ x.flatten(0, -2))
    if bias is not None and bias.requires_grad:
        _add(bias, rows.sum(0))


def _add(parameter: Tensor, grad: Tensor) -> None:
    if parameter.grad is None:
        parameter.grad = grad
    else:
        parameter.grad += grad
