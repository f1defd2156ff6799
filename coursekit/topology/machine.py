"""A machine, or many, as a graph: GPUs, switches, processors, network cards, and links between.

Bandwidths are bytes/s each way: a link carries as much there as back at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from coursekit.topology._errors import TopologyError
from coursekit.topology._ways import Hop, Ways

if TYPE_CHECKING:
    import networkx as nx


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
    node : Topology, optional
        Where all nodes of a cluster are alike, one of them: ways are then found once for all. Their
        devices are called ``n0.GPU0`` where the node's is called ``GPU0``.
    """

    name: str
    graph: nx.Graph[str]
    ranks: tuple[str, ...]
    notes: tuple[str, ...] = ()
    node: Topology | None = field(default=None, repr=False)
    _routes: dict[tuple[str, str], tuple[Hop, ...]] = field(
        default_factory=dict, repr=False, compare=False
    )

    @property
    def size(self) -> int:
        """How many GPUs."""
        return len(self.ranks)

    @cached_property
    def _ways(self) -> Ways:
        return Ways(self.graph)

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
        if a == b:
            return ()
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
        if self.node is not None:
            return self._across(self.node, a, b)
        if way := self._ways.way(a, b):
            return way
        raise TopologyError(f"nothing joins {a} and {b} in {self.name}")

    def _across(self, node: Topology, a: str, b: str) -> tuple[Hop, ...]:
        """Inside a node its own way; else out by the nearest card, over leaves, and in by one."""
        (host, _, here), (other, _, there) = a.partition("."), b.partition(".")
        if host == other:
            return _named(host, node.route(here, there))
        out, into = node.exit(here), node.exit(there)
        card = f"{host}.{out[-1][1] if out else here}"
        far = f"{other}.{into[-1][1] if into else there}"
        (leaf,), (far_leaf,) = (self._leaves(c) for c in (card, far))
        middle = [(card, leaf)]
        if leaf != far_leaf:
            middle += [(leaf, "spine"), ("spine", far_leaf)]
        middle.append((far_leaf, far))
        back = tuple((v, u) for u, v in reversed(_named(other, into)))
        return (*_named(host, out), *middle, *back)

    def exit(self, gpu: str) -> tuple[Hop, ...]:
        """The widest and shortest way from a GPU to a network card.

        Raises
        ------
        TopologyError
            There is no card.
        """
        if (gpu, "") not in self._routes:
            cards = (name for name in self.graph if self.kind(name) == "nic")
            ways = [way for card in cards if (way := self._ways.way(gpu, card))]
            if not ways:
                raise TopologyError(f"{gpu} reaches no network card in {self.name}")
            widest = max(min(map(self.capacity, way)) for way in ways)
            wide = (way for way in ways if min(map(self.capacity, way)) == widest)
            self._routes[gpu, ""] = min(wide, key=len)
        return self._routes[gpu, ""]

    def _leaves(self, card: str) -> list[str]:
        return [name for name in self.graph.adj[card] if self.kind(name) == "leaf"]


def _named(host: str, hops: tuple[Hop, ...]) -> tuple[Hop, ...]:
    return tuple((f"{host}.{u}", f"{host}.{v}") for u, v in hops)


def graph_of(nodes: Iterable[tuple[str, str, str]], edges: Iterable[tuple[Any, ...]]) -> Any:
    """A graph from (name, kind, host) and (a, b, kind, width, bandwidth)."""
    import networkx as nx

    graph: nx.Graph[str] = nx.Graph()
    for name, kind, host in nodes:
        graph.add_node(name, kind=kind, host=host)
    for a, b, kind, width, bandwidth in edges:
        graph.add_edge(a, b, kind=kind, width=width, bandwidth=bandwidth)
    return graph
