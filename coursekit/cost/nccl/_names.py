"""NCCL's names, which algorithm serves which collective, and what is said about others."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType

from coursekit.cost._model import CostError
from coursekit.schedule import collective_name

__all__ = ["ALGORITHMS", "COLLECTIVES", "PROTOCOLS", "NcclError", "known", "priced", "served"]

# The order of NCCL's own tables: at equal times the first one wins.
ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
PROTOCOLS = ("LL", "LL128", "Simple")

# The course's name of each collective that the cost model prices, and NCCL's in its variables.
COLLECTIVES: Mapping[str, str] = MappingProxyType(
    {
        "broadcast": "Broadcast",
        "reduce": "Reduce",
        "all_gather": "AllGather",
        "reduce_scatter": "ReduceScatter",
        "all_reduce": "AllReduce",
    }
)

_SHARDS = ("Ring", "CollNetDirect", "NVLS", "PAT")

# Which algorithm has a kernel for which collective: tuning.cc of NCCL 2.30.7, ncclTopoTuneModel.
served: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "broadcast": ("Ring",),
        "reduce": ("Ring",),
        "all_gather": _SHARDS,
        "reduce_scatter": _SHARDS,
        "all_reduce": ALGORITHMS[:-1],
    }
)


class NcclError(CostError):
    """A version, machine or setting of which NCCL's model cannot speak; the message says why."""


def priced(collective: str) -> str:
    """The course's name, if NCCL's cost model prices it."""
    name = collective_name(collective)
    if name not in COLLECTIVES:
        raise NcclError(
            f"NCCL's cost model prices {', '.join(COLLECTIVES)}, got {collective!r}: "
            "NCCL makes that one of sends and receives, which have no algorithms to choose from; "
            "try 'all_reduce'"
        )
    return name


def known(what: str, got: str, names: tuple[str, ...]) -> str:
    """The name in NCCL's spelling; case does not matter to NCCL."""
    for name in names:
        if name.lower() == got.lower():
            return name
    near = get_close_matches(got.strip().lower(), [name.lower() for name in names], 1, 0.5)
    likely = next((name for name in names if near and name.lower() == near[0]), names[0])
    raise NcclError(f"{what} must be one of {', '.join(names)}, got {got!r}; try {likely!r}")
