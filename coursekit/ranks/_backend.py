"""Which backend a set of ranks uses, and why."""

from __future__ import annotations

from typing import Any

from ._errors import RanksUsageError

_BACKENDS = ("auto", "gloo", "nccl")


def check_backend(asked: str) -> str:
    """Return the name if it is one; RanksUsageError otherwise."""
    if asked not in _BACKENDS:
        raise RanksUsageError(
            f"backend must be one of {', '.join(_BACKENDS)}, got {asked!r}; try backend='auto'"
        )
    return asked


def choose_backend(asked: str, size: int, launcher: Any) -> tuple[str, str]:
    """Return the backend and the reason for it, in words.

    Raises RanksUsageError for NCCL without a GPU for every rank.
    """
    if asked == "gloo":
        return "gloo", "you asked for it"
    gpus, why = launcher.gpus()
    if gpus >= size:
        return "nccl", f"{gpus} GPUs for {size} ranks"
    have = f"{gpus} GPU{'' if gpus == 1 else 's'} for {size} ranks" + (f": {why}" if why else "")
    if asked == "auto":
        return "gloo", have
    raise RanksUsageError(
        f"backend 'nccl' needs a GPU for every rank, got {have}. Use backend='auto' (Gloo on the "
        f"CPU), or Ranks({max(gpus, 1)}). Several ranks on one GPU need NCCL 2.30.3 or newer with "
        "its experimental NCCL_MULTI_RANK_GPU_ENABLE=1, which this course does not use"
    )
