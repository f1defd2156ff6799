"""Machines as NCCL's search sees them: channels times bandwidth."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from coursekit import _data

from ._names import NcclError

__all__ = ["Graph", "Machine", "Paths", "machine", "machines"]

_LINE = re.compile(r"nChannels (\d+), (?:bw|speed) ([\d.]+)/([\d.]+)")
_ARCHITECTURES = ((100, "blackwell"), (90, "hopper"), (80, "ampere"), (0, "volta"))


@dataclass(frozen=True)
class Graph:
    """What NCCL's search found for one algorithm: a line "Pattern ... nChannels ..., bw a/b".

    Attributes:
        channels: how many; bandwidths are a channel's, in GB/s.
        intra: inside a node.
        inter: between nodes.
    """

    channels: int
    intra: float
    inter: float

    @classmethod
    def read(cls, line: str) -> Graph:
        """The graph of a line that NCCL logs with NCCL_DEBUG_SUBSYS=GRAPH.

        Pattern 4 is the ring's, 1 to 3 are the tree's, 5 is that of NVLS.

        Raises:
            NcclError: it is no such line.
        """
        found = _LINE.search(line)
        if not found:
            raise NcclError(
                f"a line with a graph holds 'nChannels 8, bw 40.0/60.0', got {line!r}; "
                "look for 'Pattern' in a log with NCCL_DEBUG_SUBSYS=GRAPH"
            )
        return cls(int(found[1]), float(found[2]), float(found[3]))


@dataclass(frozen=True)
class Paths:
    """The graphs of a job on one node, or of one on several.

    Attributes:
        ring, tree: their graphs.
        nvls: by ranks a node; empty where the switch cannot add.
        coll_channels, nvls_channels: as NCCL logs them ("24 coll channels, 16 nvls channels").
    """

    ring: Graph
    tree: Graph
    nvls: Mapping[int, Graph] = field(default_factory=dict)
    coll_channels: int = 1
    nvls_channels: int = 0


@dataclass(frozen=True)
class Machine:
    """A machine, from `machine(name)` or written by hand from a log of NCCL_DEBUG_SUBSYS=GRAPH.

    Attributes:
        name, title, source: what it is, and where its numbers come from.
        capability: compute capability times ten: 80 for A100, 90 for H100, 100 for B200.
        link: "nvlink" or "pcie", inside a node.
        one_node: the graphs of a job on one node.
        network: those of a job on several; none where no search result is known.
        ranks: for how many ranks a node the graphs hold on one node; on several, network_ranks.
        cpu: "intel", "amd" or "arm"; counts only on several nodes.
        ll128: whether the paths allow LL128.
        same_channels: as logged; all channels go the same way.
        net_latency: us that the network's plugin tells, 0 for InfiniBand.
    """

    name: str
    title: str
    capability: int
    link: str
    one_node: Paths
    network: Paths | None = None
    ranks: tuple[int, ...] = (8,)
    network_ranks: tuple[int, ...] = (8,)
    cpu: str = "intel"
    ll128: bool = True
    same_channels: bool = True
    net_latency: float = 0.0
    source: str = ""

    @property
    def architecture(self) -> str:
        """Volta, ampere, hopper or blackwell: the row of NCCL's tables."""
        return next(name for least, name in _ARCHITECTURES if self.capability >= least)

    def paths(self, nodes: int, ranks_per_node: int) -> Paths:
        """The graphs of a job.

        Raises:
            NcclError: no search result is known for such a job.
        """
        if nodes == 1:
            return self._checked(self.one_node, self.ranks, ranks_per_node)
        if self.network is None:
            raise NcclError(
                f"on several nodes NCCL's search must be known for the network, got {nodes} nodes "
                f"of {self.name!r}; try {_with_network(self.name)}"
            )
        return self._checked(self.network, self.network_ranks, ranks_per_node)

    def _checked(self, paths: Paths, known: tuple[int, ...], got: int) -> Paths:
        if got not in known:
            raise NcclError(
                f"ranks_per_node of {self.name!r} must be {' or '.join(map(str, known))}, where "
                f"NCCL's search result is known, got {got}; try ranks_per_node={known[-1]}"
            )
        return paths


def _with_network(name: str) -> str:
    near = [m for m in machines() if m.startswith(f"{name}-")]
    near = near or [m for m in machines() if "-" in m]
    return " or ".join(map(repr, near))


def machines() -> tuple[str, ...]:
    """The names that `machine` knows."""
    return tuple(_data.load("nccl_machines.yaml"))


def machine(name: str | Machine) -> Machine:
    """A machine of `data/nccl_machines.yaml`, where each has its source; others pass through.

    Raises:
        NcclError: there is no such machine; GB200 and DGX-1 among them, whose search results are
            not published.
    """
    return name if isinstance(name, Machine) else _read(str(name))


@cache
def _read(name: str) -> Machine:
    table = _data.load("nccl_machines.yaml")
    if name not in table:
        raise NcclError(
            f"machine must be one of {', '.join(table)}, got {name!r}: of others no result of "
            "NCCL's search is published; write a nccl.Machine from a log with "
            "NCCL_DEBUG_SUBSYS=GRAPH"
        )
    entry = dict(table[name])
    while "like" in entry:
        entry = {**table[entry.pop("like")], **entry}
    return Machine(
        name=name,
        title=entry["title"],
        capability=entry["capability"],
        link=entry["link"],
        one_node=_paths(entry["one_node"]),
        network=_paths(entry["network"]) if "network" in entry else None,
        ranks=tuple(entry["ranks"]),
        network_ranks=tuple(entry["network_ranks"] if "network" in entry else ()),
        ll128=entry.get("ll128", True),
        source=entry["source"],
    )


def _paths(entry: dict[str, Any]) -> Paths:
    return Paths(
        ring=Graph(**entry["ring"]),
        tree=Graph(**entry["tree"]),
        nvls={ranks: Graph(**graph) for ranks, graph in entry.get("nvls", {}).items()},
        coll_channels=entry["coll_channels"],
        nvls_channels=entry.get("nvls_channels", 0),
    )
