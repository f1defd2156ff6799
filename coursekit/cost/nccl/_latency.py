"""NCCL's latencies in microseconds: tuning.cc, ncclTopoTuneModel."""

from __future__ import annotations

from ._job import Job
from ._names import PROTOCOLS

__all__ = ["latency"]

# Us to post to the network, by the maker of the CPU; Simple posts three times (getNetOverhead).
_POST = {"intel": 1.0, "amd": 2.0, "arm": 1.0}
_PAT_RANK = 2.8


def latency(job: Job, algorithm: str, protocol: str) -> float:
    """Microseconds before the bytes count.

    Ring: base + (steps - hops) intra + hops inter, hops those between nodes; intra at least what
    posting costs. Tree: base + 2 ((g-1) intra + log2(N) inter), g ranks a node, N nodes: a chain
    inside a node, a tree between. NVLS: the switch's alone. NVLSTree: base + intra + 2 log2(N)
    inter. PAT: base + log2(N) inter/3.5 + 2.8 n.
    """
    base = _of(job, "base", algorithm, protocol)
    intra = _of(job, _link(job), algorithm, protocol)
    inter = _inter(job, algorithm, protocol)
    rounds = job.nodes.bit_length() - 1
    match algorithm:
        case "Ring":
            return base + _ring(job, protocol, intra, inter)
        case "Tree":
            return base + 2 * ((job.ranks_per_node - 1) * intra + rounds * inter)
        case "NVLS":
            return intra
        case "NVLSTree":
            return base + intra + 2 * rounds * inter
        case _:
            return base + rounds * inter / 3.5 + _PAT_RANK * job.ranks


def _of(job: Job, table: str, algorithm: str, protocol: str) -> float:
    return float(job.constants.value[table][algorithm][PROTOCOLS.index(protocol)])


def _link(job: Job) -> str:
    return "nvlink" if job.machine.link == "nvlink" else "pcie"


def _inter(job: Job, algorithm: str, protocol: str) -> float:
    """With one rank a node nothing hides the network: Tree's latency. Simple also flushes."""
    alone = job.constants.value["tree_network_alone"] and job.ranks_per_node == 1
    times = 2 if protocol == "Simple" else 1
    own = _of(job, "network", "Tree" if alone else algorithm, protocol)
    return own + times * job.machine.net_latency


def _ring(job: Job, protocol: str, intra: float, inter: float) -> float:
    if job.collective in ("broadcast", "reduce"):
        return _rooted(job, protocol)
    if job.nodes == 1:
        return job.steps * intra
    post = _POST[job.machine.cpu] * (3 if protocol == "Simple" else 1)
    hops = _hops(job)
    return (job.steps - hops) * max(intra, post) + hops * inter


def _hops(job: Job) -> int:
    if job.collective == "all_reduce":
        return 2 * (job.nodes - int(job.constants.value["ring_all_reduce_hops"]))
    return job.nodes - 1


def _rooted(job: Job, protocol: str) -> float:
    """Chunks follow each other down the ring; where the channels differ, step after step."""
    where = _link(job) if job.nodes == 1 else "network"
    if job.machine.same_channels:
        return _of(job, where, "Ring", protocol)
    algorithm = "Tree" if protocol == "Simple" else "Ring"
    return job.steps * _of(job, where, algorithm, protocol)
