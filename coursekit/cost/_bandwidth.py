"""Bandwidths as nccl-tests defines them (doc/PERFORMANCE.md, nccl-tests 2.19)."""

from __future__ import annotations

from coursekit.cost._model import CostError
from coursekit.schedule import collective_name

__all__ = ["algbw", "busbw", "busbw_factor"]

GIGA = 1e9


def busbw_factor(collective: str, size: int) -> float:
    """Busbw / algbw: 2(n-1)/n for all_reduce; 1 for broadcast and reduce; else (n-1)/n.

    Source: nccl-tests doc/PERFORMANCE.md; for gather and scatter its src/gather.cu and scatter.cu.

    Raises:
        CostError: a barrier moves no bytes; or `size` is less than one.
        ScheduleError: there is no such collective.
    """
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise CostError(f"size must be a whole number from 1 up, got {size!r}; try size=2")
    match collective_name(collective):
        case "all_reduce":
            return 2 * (size - 1) / size
        case "broadcast" | "reduce":
            return 1.0
        case "all_gather" | "reduce_scatter" | "all_to_all" | "gather" | "scatter":
            return (size - 1) / size
        case name:
            raise CostError(f"a bandwidth needs a collective that moves bytes, got {name}")


def algbw(nbytes: int, time: float) -> float:
    """GB/s: the bytes of the whole buffer through the time in seconds.

    Raises:
        CostError: `nbytes` is negative, or `time` is not above 0.
    """
    if nbytes < 0 or not time > 0:
        raise CostError(f"a bandwidth needs bytes and a time above 0, got {nbytes} B in {time} s")
    return nbytes / time / GIGA


def busbw(collective: str, size: int, nbytes: int, time: float) -> float:
    """GB/s: `algbw` times `busbw_factor`, to be held against the bandwidth of the hardware."""
    return algbw(nbytes, time) * busbw_factor(collective, size)
