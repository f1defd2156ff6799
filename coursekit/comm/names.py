"""Names that torch has changed between the versions that the course runs on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def all_gather_whole() -> Callable[..., Any]:
    """Torch's all_gather from one tensor into one: it has a new name since torch 2.13."""
    import torch.distributed as dist

    found: Callable[..., Any] = (
        getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    )
    return found


def reduce_scatter_whole() -> Callable[..., Any]:
    """Torch's reduce_scatter from one tensor into one: it has a new name since torch 2.13."""
    import torch.distributed as dist

    found: Callable[..., Any] = (
        getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    )
    return found
