"""What is off, and why: by the hardware, by NCCL's defaults, by NCCL_ALGO and NCCL_PROTO."""

from __future__ import annotations

from dataclasses import dataclass

from ._env import Setting, parse_algo, parse_proto
from ._job import whole
from ._names import ALGORITHMS, COLLECTIVES, PROTOCOLS, served
from ._versions import numbers

__all__ = ["Situation", "left_without", "reasons"]

_Pair = tuple[str, str]
_OF_2_23 = frozenset({"Ring", "Tree", "NVLS", "NVLSTree"})


@dataclass(frozen=True)
class Situation:
    """Where a job runs, as far as it decides what is on; `ll128`: NCCL would use it unasked."""

    version: tuple[int, int, int]
    nodes: int
    ranks_per_node: int
    nvls: bool
    ll128: bool


def reasons(
    collective: str, where: Situation, algo: Setting | None, proto: Setting | None
) -> dict[_Pair, str]:
    """Of every algorithm and protocol why it is off; "" where it is on."""
    allowed = _algorithms(collective, where, algo, proto)
    off = {
        (a, p): _by_nature(collective, a, p, where)
        or _by_algo(a, allowed, algo, collective, where)
        or _by_proto(collective, p, proto, where)
        for a in ALGORITHMS
        for p in PROTOCOLS
    }
    if where.version < (2, 24) and all(off.values()):
        off |= {("Ring", p): "" for p in PROTOCOLS if not _lost(collective, p, proto, where)}
    return off


def _by_nature(collective: str, algorithm: str, protocol: str, where: Situation) -> str:
    if algorithm not in served[collective]:
        names = ", ".join(served[collective])
        return f"{algorithm} has no kernel for {COLLECTIVES[collective]}; it has {names}"
    if algorithm not in ("Tree", "Ring") and protocol != "Simple":
        return f"{algorithm} has Simple only"
    match algorithm:
        case "CollNetDirect" | "CollNetChain":
            return "CollNet is off unless NCCL_COLLNET_ENABLE=1 and the network adds (SHARP)"
        case "NVLS" | "NVLSTree":
            return _nvls(algorithm, where)
        case "PAT":
            return _pat(where)
        case _:
            return ""


def _nvls(algorithm: str, where: Situation) -> str:
    if not where.nvls:
        return f"{algorithm} needs Hopper or newer behind an NVSwitch"
    if algorithm == "NVLSTree" and where.nodes == 1:
        return "NVLSTree is for several nodes"
    if algorithm == "NVLS" and where.nodes > 1:
        return "NVLS on several nodes needs CollNet; NVLSTree does without"
    return ""


def _pat(where: Situation) -> str:
    if where.version < (2, 23):
        return "PAT came with NCCL 2.23"
    if where.ranks_per_node > 1 and not (where.version >= (2, 31) and where.nodes > 1):
        return "PAT is for one rank a node, unless NCCL_PAT_ENABLE=1"
    return ""


def _algorithms(
    collective: str, where: Situation, algo: Setting | None, proto: Setting | None
) -> tuple[str, ...]:
    """What NCCL_ALGO leaves of the algorithms."""
    if algo is None:
        return ALGORITHMS
    if where.version >= (2, 31):
        if algo.text and collective not in algo.touched:
            # From 2.31 all start switched off as soon as NCCL_ALGO holds anything.
            return () if proto and collective in proto.forced else ALGORITHMS
        return algo[collective]
    return algo[collective] if where.version >= (2, 24) else _or_ring_and_tree(algo, where)


def _or_ring_and_tree(algo: Setting, where: Situation) -> tuple[str, ...]:
    """Up to 2.23, without CollNet: a list of nothing but CollNet means ring and tree."""
    listed = algo["all_reduce"]
    gone = "NVLSTree" if where.nodes == 1 else "NVLS"
    if _OF_2_23 & (set(listed) - {gone}):
        return listed
    return tuple(name for name in ALGORITHMS if name in listed or name in ("Ring", "Tree"))


def _by_algo(
    algorithm: str,
    allowed: tuple[str, ...],
    algo: Setting | None,
    collective: str,
    where: Situation,
) -> str:
    if algo is None or algorithm in allowed:
        return ""
    if where.version >= (2, 31) and collective not in algo.touched:
        return f"NCCL_ALGO={algo.text} does not name {COLLECTIVES[collective]}, NCCL_PROTO does"
    return f"NCCL_ALGO={algo.text} leaves it out"


def _by_proto(collective: str, protocol: str, proto: Setting | None, where: Situation) -> str:
    if proto and collective in proto.touched:
        if protocol not in proto[collective]:
            return f"NCCL_PROTO={proto.text} leaves it out"
        if where.version < (2, 31):
            return ""  # named or not excluded, LL128 is on without a look at the hardware
    if protocol == "LL128" and not where.ll128:
        return "LL128 is not safe on these paths or GPUs, NCCL does not use it unasked"
    return ""


def _lost(collective: str, protocol: str, proto: Setting | None, where: Situation) -> bool:
    """Whether the ring comes back without a protocol; before 2.22 it came back with all."""
    return where.version >= (2, 22) and bool(_by_proto(collective, protocol, proto, where))


def left_without(
    algo: str | None = None,
    proto: str | None = None,
    version: str = "2.27",
    nodes: int = 1,
    ranks_per_node: int = 8,
    nvls: bool = True,
) -> tuple[str, ...]:
    """The collectives for which NCCL_ALGO and NCCL_PROTO leave nothing: calling one is an error.

    "No algorithm/protocol available for function Broadcast ..." is what NCCL then prints; with
    PyTorch's DDP that is its first call. `NCCL_ALGO=Tree` does it from 2.24 on; up to 2.23 NCCL
    went back to the ring.

    Args:
        algo, proto: the variables' values, None where they are not set.
        version: of NCCL, any from 2.5 on.
        nodes, ranks_per_node: NVLS is for one node, NVLSTree for several, PAT for one rank a node.
        nvls: whether the GPUs are Hopper or newer behind an NVSwitch.

    Raises:
        NcclError: a version from 2.24 on would refuse the text.
    """
    whole("nodes", nodes)
    whole("ranks_per_node", ranks_per_node)
    where = Situation(numbers(version), nodes, ranks_per_node, nvls, ll128=True)
    first = None if algo is None else parse_algo(algo, version)
    second = None if proto is None else parse_proto(proto, version)
    return tuple(name for name in COLLECTIVES if all(reasons(name, where, first, second).values()))
