"""NCCL's choice: the least of latency + bytes / bandwidth over algorithms and protocols."""

from __future__ import annotations

from dataclasses import dataclass

from coursekit.cost._bandwidth import algbw, busbw

from ._bandwidth import bandwidth
from ._env import parse_algo, parse_proto
from ._job import Job, job, whole
from ._latency import latency
from ._machines import Machine
from ._names import COLLECTIVES, PROTOCOLS, NcclError
from ._rules import Situation, reasons

__all__ = ["Candidate", "Choice", "choose", "times"]

_THREADS = {"LL": 512, "LL128": 640, "Simple": 512}
_THRESHOLDS = {"LL": 8, "LL128": 8, "Simple": 64}  # bytes a thread, before one is worth it
_PCIE = 12.0  # GB/s; rings no faster than PCIe get half the threads


@dataclass(frozen=True)
class Candidate:
    """One cell of NCCL's table.

    Attributes:
        algorithm, protocol: in NCCL's names.
        latency_us: microseconds; 0 where it is off, like the numbers after it.
        bandwidth: GB/s of the algorithm at this size.
        time_us: latency_us + bytes / (1000 bandwidth).
        channels: how many it would run on.
        off: why NCCL does not consider it; "" where it does.
    """

    algorithm: str
    protocol: str
    latency_us: float = 0.0
    bandwidth: float = 0.0
    time_us: float = 0.0
    channels: int = 0
    off: str = ""


@dataclass(frozen=True)
class Choice:
    """What NCCL would run.

    Attributes:
        collective, size_bytes, ranks, version: what was asked; size_bytes of the whole buffer.
        algorithm, protocol, channels: the choice, in NCCL's names.
        time_us: predicted microseconds; latency_us of it is there without any bytes.
        algbw, busbw: GB/s as nccl-tests prints them.
    """

    collective: str
    size_bytes: int
    ranks: int
    version: str
    algorithm: str
    protocol: str
    channels: int
    time_us: float
    latency_us: float
    algbw: float
    busbw: float

    def __str__(self) -> str:
        return (
            f"{COLLECTIVES[self.collective]}: {self.size_bytes} Bytes on {self.ranks} ranks, "
            f"NCCL {self.version} -> {self.algorithm} {self.protocol}, {self.channels} channels, "
            f"{self.time_us:.1f} us, busbw {self.busbw:.1f} GB/s"
        )


def choose(
    collective: str,
    size_bytes: int,
    machine: str | Machine,
    nodes: int = 1,
    ranks_per_node: int = 8,
    version: str = "2.27",
    algo: str | None = None,
    proto: str | None = None,
) -> Choice:
    """NCCL's own choice, worked out from its published constants.

    Good for the choice and for large sizes: from 1 GiB on within 5 % of measured times on A100 and
    Hopper nodes; below 16 MiB those are up to three times as long. A tuner plugin (aws-ofi-nccl on
    EFA) overrides all of it.

    Args:
        collective: all_reduce, all_gather, reduce_scatter, broadcast or reduce.
        size_bytes: of the whole buffer, all ranks' blocks together.
        machine: a name of `machines()`, or a `Machine`.
        nodes, ranks_per_node: the job.
        version: NCCL's, 2.19 to 2.30.
        algo, proto: values of NCCL_ALGO and NCCL_PROTO, read as that version reads them.

    Raises:
        NcclError: no choice is left, or version, machine, job or a setting are not known.
    """
    every = times(
        collective, size_bytes, machine, nodes, ranks_per_node, version, algo=algo, proto=proto
    )
    what = job(collective, machine, nodes, ranks_per_node, version)
    on = [candidate for candidate in every if not candidate.off]
    if not on:
        raise _nothing_left(what, algo, proto)
    best = min(on, key=lambda candidate: candidate.time_us)
    seconds = best.time_us / 1e6
    return Choice(
        what.collective,
        size_bytes,
        what.ranks,
        what.constants.version,
        best.algorithm,
        best.protocol,
        best.channels,
        best.time_us,
        best.latency_us,
        algbw(size_bytes, seconds),
        busbw(what.collective, what.ranks, size_bytes, seconds),
    )


def times(
    collective: str,
    size_bytes: int,
    machine: str | Machine,
    nodes: int = 1,
    ranks_per_node: int = 8,
    version: str = "2.27",
    algo: str | None = None,
    proto: str | None = None,
) -> tuple[Candidate, ...]:
    """Every algorithm with every protocol, in NCCL's order: its time, or why it is off.

    Args and errors as `choose`; it is no error where all are off.
    """
    whole("size_bytes", size_bytes)
    what = job(collective, machine, nodes, ranks_per_node, version)
    if what.ranks < 2:
        raise NcclError("a collective needs 2 ranks or more, got 1; try ranks_per_node=8")
    first = None if algo is None else parse_algo(algo, version)
    second = None if proto is None else parse_proto(proto, version)
    off = reasons(what.collective, _situation(what), first, second)
    return tuple(_candidate(what, *pair, size_bytes, why) for pair, why in off.items())


def _situation(what: Job) -> Situation:
    listed = what.constants.value["ll128_capabilities"]
    capable = what.machine.capability in listed if listed else what.machine.capability >= 70
    return Situation(
        what.version,
        what.nodes,
        what.ranks_per_node,
        what.nvls is not None,
        what.machine.ll128 and capable,
    )


def _candidate(what: Job, algorithm: str, protocol: str, size: int, off: str) -> Candidate:
    if off:
        return Candidate(algorithm, protocol, off=off)
    early = latency(what, algorithm, protocol) * _plateau(what, algorithm, protocol, size)
    wide = bandwidth(what, algorithm, protocol) * _correction(what, algorithm, protocol, size)
    return Candidate(
        algorithm,
        protocol,
        early,
        wide,
        early + size / (1000 * wide),
        _channels(what, algorithm, protocol, size),
    )


def _plateau(what: Job, algorithm: str, protocol: str, size: int) -> float:
    """A ring over several nodes starts slower once every channel has something for every rank."""
    ring = (algorithm, protocol, what.collective) == ("Ring", "Simple", "all_reduce")
    full = size // (what.paths.coll_channels * what.ranks) >= 64
    if not ring or what.nodes == 1 or not full:
        return 1.0
    return 1.9 if what.machine.capability < 80 else 1.4


def _correction(what: Job, algorithm: str, protocol: str, size: int) -> float:
    """Trees fall short at medium sizes: factors for 64 B, 128 B, ... up to 256 MiB."""
    tree = algorithm == "Tree" or (
        algorithm == "NVLSTree"
        and what.constants.value["nvls_tree_correction"]
        and what.machine.capability >= 100
        and what.machine.cpu != "arm"
    )
    factors: list[float] = what.constants.value["tree_correction"][protocol]
    place = (size >> 6).bit_length() - 1
    return float(factors[place]) if tree and 0 <= place < len(factors) else 1.0


def _channels(what: Job, algorithm: str, protocol: str, size: int) -> int:
    """Fewer while a channel's threads would have too little to do (enqueue.cc)."""
    if algorithm in ("NVLS", "NVLSTree"):
        return what.paths.nvls_channels
    ring = what.paths.ring
    slow = algorithm == "Ring" and protocol == "Simple" and ring.channels * ring.intra <= _PCIE
    threads = 256 if slow else _THREADS[protocol]
    threshold = _THRESHOLDS[protocol]
    if algorithm == "Ring" and protocol == "LL":
        threshold *= what.ranks
    return max(1, min(what.paths.coll_channels, size // (threads * threshold)))


def _nothing_left(what: Job, algo: str | None, proto: str | None) -> NcclError:
    name = COLLECTIVES[what.collective]
    set_to = [f"NCCL_ALGO={algo}"] if algo is not None else []
    set_to += [f"NCCL_PROTO={proto}"] if proto is not None else []
    short = name.lower()
    return NcclError(
        f"an algorithm and a protocol must be left for {name}, got none with "
        f"{' and '.join(set_to)} on NCCL {what.constants.version}; name it in the list, as in "
        f"NCCL_ALGO='{short}:ring', or leave {' and '.join(PROTOCOLS)} alone"
    )
