"""NCCL's bandwidths in GB/s: tuning.cc, ncclTopoTuneModel."""

from __future__ import annotations

from ._job import Job
from ._machines import Graph

__all__ = ["bandwidth"]

_NVLS_RATIO = 5 / 6


def bandwidth(job: Job, algorithm: str, protocol: str) -> float:
    """GB/s of the algorithm: bytes of the buffer through the time that they take.

    Channels times a channel's bandwidth (intra up to two nodes, else inter), less what the
    protocol and the algorithm lose, times n/steps for the ring, 1/2 for the tree.
    """
    if algorithm in ("NVLS", "NVLSTree"):
        return _nvls(job, algorithm)
    graph = job.graph(algorithm)
    bus = graph.channels * (graph.intra if job.nodes <= 2 else graph.inter)
    match algorithm:
        case "Ring":
            return _ring(job, protocol, bus) * job.ranks / job.steps
        case "Tree":
            return _tree(job, protocol, bus) / 2
        case _:
            return bus * float(job.constants.value["pat"])


def _ring(job: Job, protocol: str, bus: float) -> float:
    value = job.constants.value
    if protocol == "LL":
        reducing = job.nodes > 1 or job.collective in ("all_reduce", "reduce")
        return min(job.ll_most(), bus * float(value["ring_ll"][0 if reducing else 1]))
    if protocol == "LL128":
        share = float(value["ring_ll128_alone"]) if job.ranks_per_node == 1 else 0.92
        return min(bus * share, job.paths.ring.channels * job.most("ring_ll128"))
    return bus


def _tree(job: Job, protocol: str, bus: float) -> float:
    channels = job.paths.tree.channels
    bus = min(0.92 * bus, channels * job.most("tree_channel"))
    if protocol == "LL":
        return min(bus / 3.8, job.ll_most())
    if protocol == "LL128":
        share = 7 / 9 if job.nodes == 1 else 120 / 128
        return min(bus * share, channels * job.most("tree_ll128"))
    return bus


def _nvls(job: Job, algorithm: str) -> float:
    """The switch adds, so a GPU sends its bytes once: 5/6 of the links, later by efficiency."""
    graph, value = job.graph(algorithm), job.constants.value
    if value["nvls"] == "efficiency":
        bus = graph.channels * _efficient(job, algorithm, graph)
        return bus if job.shards else bus * job.ranks / job.steps
    bus = graph.channels * _least(job, algorithm, graph)
    return bus if job.shards and not value["nvls_ratio"] else bus * _NVLS_RATIO


def _least(job: Job, algorithm: str, graph: Graph) -> float:
    """Up to 2.27: the narrower of the links and the network."""
    if algorithm == "NVLSTree":
        return min(graph.intra, graph.inter if job.nodes <= 2 else graph.inter / 2)
    if job.shards and job.constants.value["nvls"] == "shared":
        return min(graph.intra * _others(job), graph.inter * 0.9)
    return min(graph.intra, graph.inter)


def _efficient(job: Job, algorithm: str, graph: Graph) -> float:
    """From 2.28: what the switch was measured to reach; an all-reduce pipelines two operations."""
    share = float(job.constants.value["nvls_efficiency"][job.machine.architecture])
    intra = graph.intra * share * (graph.channels - 1) / graph.channels
    intra *= _others(job) if job.shards else 2
    if algorithm == "NVLS":
        return min(intra, graph.inter)
    inter = graph.inter * (2 if job.nodes <= 2 else 1)
    return min(intra, inter, job.most("nvls_tree_channel"))


def _others(job: Job) -> float:
    return (job.ranks_per_node - 1) / job.ranks_per_node
