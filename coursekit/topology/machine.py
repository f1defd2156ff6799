"""A machine, or many, as a graph: GPUs, switches, processors, network cards, and links between.

Bandwidths are bytes/s each way: a link carries as much there as back at the same time.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from coursekit.topology._errors import TopologyError

if TYPE_CHECKING:
    import networkx as nx

# What may stand inside a route; a GPU or a network card does not pass on what is not its own,
# except that data leaves and enters a node through its cards.
THROUGH = frozenset({"nvswitch", "pcie", "cpu", "leaf", "spine", "nic"})
Hop = tuple[str, str]


@dataclass(frozen=True)
class Topology:
    """Devices and links.

    Nodes of `graph` have ``kind`` (``gpu``, ``nic``, ``nvswitch``, ``pcie``, ``cpu``, ``leaf``,
    ``spine``) and ``host``; edges have ``kind`` (``NVLink``, ``XGMI``, ``PCIe``, ``SMP``,
    ``network``), ``width`` (NVLinks, else 1) and ``bandwidth``.

    Parameters
    ----------
    name : str
        For titles.
    graph : networkx.Graph
        As above.
    ranks : tuple of str
        The GPUs in the order of ranks.
    notes : tuple of str
        What was assumed while it was built.
    """

    name: str
    graph: nx.Graph[str]
    ranks: tuple[str, ...]
    notes: tuple[str, ...] = ()
    _routes: dict[tuple[str, str], tuple[Hop, ...]] = field(
        default_factory=dict, repr=False, compare=False
    )

    @property
    def size(self) -> int:
        """How many GPUs."""
        return len(self.ranks)

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        """Nodes of the cluster, in the order of ranks."""
        return tuple(dict.fromkeys(self.graph.nodes[gpu]["host"] for gpu in self.ranks))

    def kind(self, device: str) -> str:
        """What a device is."""
        return str(self.graph.nodes[device]["kind"])

    def capacity(self, hop: Hop) -> float:
        """Bytes/s of one direction of a link."""
        return float(self.graph.edges[hop]["bandwidth"])

    def route(self, a: str, b: str) -> tuple[Hop, ...]:
        """The links from one GPU to another: the widest way, and of equally wide ones the shortest.

        Raises
        ------
        TopologyError
            A name is no GPU of this machine, or nothing joins the two.
        """
        if (a, b) not in self._routes:
            self._routes[a, b] = self._find(a, b)
        return self._routes[a, b]

    def bandwidth(self, a: str, b: str) -> float:
        """Bytes/s from one GPU to another, when nothing else is sent."""
        return min(self.capacity(hop) for hop in self.route(a, b))

    def between(self, a: int, b: int) -> float:
        """The same, by rank."""
        return self.bandwidth(self.ranks[a], self.ranks[b])

    def without(self, *links: Hop) -> Topology:
        """The same machine with some links gone."""
        graph = self.graph.copy()
        for a, b in links:
            if not graph.has_edge(a, b):
                raise TopologyError(f"{a} and {b} have no link to take away in {self.name}")
            graph.remove_edge(a, b)
        return Topology(self.name, graph, self.ranks, self.notes)

    def slowed(self, a: str, b: str, times: float) -> Topology:
        """The same machine with one link, or all links of the way between two GPUs, slower."""
        if times < 1:
            raise TopologyError(f"times must be 1 or more, got {times}; 10 is a tenth of the speed")
        graph = self.graph.copy()
        for u, v in [(a, b)] if graph.has_edge(a, b) else self.route(a, b):
            graph.edges[u, v]["bandwidth"] /= times
        return Topology(self.name, graph, self.ranks, self.notes)

    def _find(self, a: str, b: str) -> tuple[Hop, ...]:
        for name in (a, b):
            if name not in self.graph:
                known = ", ".join(self.ranks[:8])
                raise TopologyError(f"a GPU must be one of {known}, ..., got {name!r}")
        best: dict[str, tuple[float, int]] = {a: (float("-inf"), 0)}
        came: dict[str, str] = {}
        queue: list[tuple[float, int, str]] = [(float("-inf"), 0, a)]
        while queue:
            # Widths stand negated, so that the widest comes first.
            narrow, far, here = heapq.heappop(queue)
            if here == b:
                return _walk(came, a, b)
            if (narrow, far) > best[here]:
                continue
            if here != a and self.kind(here) not in THROUGH:
                continue
            for there, edge in self.graph.adj[here].items():
                step = (max(narrow, -edge["bandwidth"]), far + 1)
                if step < best.get(there, (float("inf"), 0)):
                    best[there], came[there] = step, here
                    heapq.heappush(queue, (*step, there))
        raise TopologyError(f"nothing joins {a} and {b} in {self.name}")


def _walk(came: dict[str, str], a: str, b: str) -> tuple[Hop, ...]:
    hops: list[Hop] = []
    while b != a:
        hops.append((came[b], b))
        b = came[b]
    return tuple(reversed(hops))


def graph_of(nodes: Iterable[tuple[str, str, str]], edges: Iterable[tuple[Any, ...]]) -> Any:
    """A graph from (name, kind, host) and (a, b, kind, width, bandwidth)."""
    import networkx as nx

    graph: nx.Graph[str] = nx.Graph()
    for name, kind, host in nodes:
        graph.add_node(name, kind=kind, host=host)
    for a, b, kind, width, bandwidth in edges:
        graph.add_edge(a, b, kind=kind, width=width, bandwidth=bandwidth)
    return graph
