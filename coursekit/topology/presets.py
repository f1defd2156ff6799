"""Known machines, and clusters of any size made of them.

The machines' tables stand in `data/topologies.yaml`, in the form in which their tools print them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from coursekit import _data
from coursekit.topology._errors import TopologyError
from coursekit.topology.build import Speeds, build
from coursekit.topology.machine import Topology, graph_of
from coursekit.topology.parse import parse
from coursekit.topology.table import Table

GB = 1e9
FABRICS = ("rail", "fat-tree")
# Trays of an NVL72 rack.
TRAYS = 18


def names() -> list[str]:
    """The machines that there are, in the order of the file."""
    return list(_data.load("topologies.yaml"))


def card(name: str) -> dict[str, Any]:
    """What the file says of a machine: title, gpu, speeds in GB/s, source, table.

    Raises
    ------
    TopologyError
        There is no such machine; the message lists those there are.
    """
    cards: dict[str, dict[str, Any]] = _data.load("topologies.yaml")
    if name not in cards:
        raise TopologyError(f"a machine must be one of {', '.join(cards)}, got {name!r}")
    return cards[name]


def table(name: str) -> Table:
    """The table of a machine, parsed from the text that its tool prints."""
    return parse(card(name)["table"])


def speeds(name: str) -> Speeds:
    """Bytes/s of a machine's links."""
    return Speeds(**{key: value * GB for key, value in card(name)["speeds"].items()})


def star(size: int, bandwidth: float = 1e9) -> Topology:
    """Equal ranks on one switch that never blocks: the network of the closed forms.

    Parameters
    ----------
    size : int
        How many GPUs.
    bandwidth : float
        Bytes/s of each link, each way.

    Raises
    ------
    TopologyError
        A number is not positive.
    """
    if size < 1 or bandwidth <= 0:
        raise TopologyError(
            f"size and bandwidth must be above 0, got {size} and {bandwidth}; try star(8, 1e9)"
        )
    ranks = tuple(f"GPU{k}" for k in range(size))
    nodes = [("switch", "leaf", ""), *((gpu, "gpu", "") for gpu in ranks)]
    edges = [(gpu, "switch", "network", 1, bandwidth) for gpu in ranks]
    return Topology(f"{size} ranks on one switch", graph_of(nodes, edges), ranks)


@cache
def machine(name: str) -> Topology:
    """One machine as a graph, such as `dgx-a100`; `nvl72` is a whole rack of `gb200` trays.

    Raises
    ------
    TopologyError
        There is no such machine; the message lists those there are.
    """
    if name == "nvl72":
        return _rack()
    return build(table(name), speeds(name), card(name)["title"])


def cluster(
    name: str, nodes: int, fabric: str = "rail", *, oversubscription: float = 1.0, leaf: int = 32
) -> Topology:
    """Many equal machines on a network.

    Parameters
    ----------
    name : str
        A machine with network cards.
    nodes : int
        How many.
    fabric : {"rail", "fat-tree"}
        ``rail``: card k of every node hangs on leaf switches of rail k, so that equal places reach
        each other over one leaf; ``fat-tree``: all cards of a node hang on one leaf. Spines join
        the leaves.
    oversubscription : float
        Bandwidth below a leaf over that above it; 1 is a network that never blocks.
    leaf : int
        Ports of a leaf switch that go to nodes.

    Raises
    ------
    TopologyError
        A number is not positive, the fabric is unknown, or the machine has no network card.
    """
    if fabric not in FABRICS:
        raise TopologyError(f"fabric must be one of {', '.join(FABRICS)}, got {fabric!r}")
    if nodes < 1 or leaf < 1 or oversubscription <= 0:
        raise TopologyError(
            f"nodes, leaf and oversubscription must be above 0, got {nodes}, {leaf} and "
            f"{oversubscription}; 2 nodes is a start"
        )
    one = machine(name)
    cards = [n for n, d in one.graph.nodes(data=True) if d["kind"] == "nic"]
    if not cards:
        raise TopologyError(f"{one.name} has no network card; take hgx-h100 or dgx-a100")
    port = speeds(name if name != "nvl72" else "gb200").network
    graph_nodes: list[tuple[str, str, str]] = []
    edges: list[tuple[str, str, str, int, float]] = []
    leaves: dict[str, int] = {}
    for k in range(nodes):
        host = f"n{k}"
        graph_nodes += [(f"{host}.{d}", a["kind"], host) for d, a in one.graph.nodes(data=True)]
        edges += [
            (f"{host}.{a}", f"{host}.{b}", e["kind"], e["width"], e["bandwidth"])
            for a, b, e in one.graph.edges(data=True)
        ]
        for place, nic in enumerate(cards):
            rail = fabric == "rail"
            switch = f"leaf{place}.{k // leaf}" if rail else f"leaf{k * len(cards) // leaf}"
            leaves[switch] = leaves.get(switch, 0) + 1
            edges.append((f"{host}.{nic}", switch, "network", 1, port))
    graph_nodes += [(name, "leaf", "") for name in leaves]
    if len(leaves) > 1:
        # All spines together, as one switch: nothing is lost where they spread flows evenly.
        graph_nodes.append(("spine", "spine", ""))
        edges += [
            (name, "spine", "network", 1, ports * port / oversubscription)
            for name, ports in leaves.items()
        ]
    ranks = tuple(f"n{k}.{gpu}" for k in range(nodes) for gpu in one.ranks)
    title = f"{nodes} x {one.name}, {fabric}"
    return Topology(title, graph_of(graph_nodes, edges), ranks, one.notes, one)


def _rack() -> Topology:
    """18 trays whose GPUs all hang on the rack's NVSwitches."""
    tray, width = table("gb200"), 18
    told = speeds("gb200")
    nodes: list[tuple[str, str, str]] = [("nvswitch", "nvswitch", "")]
    edges: list[tuple[str, str, str, int, float]] = []
    for k in range(TRAYS):
        one = build(tray, told)
        host = f"t{k}"
        for device, attributes in one.graph.nodes(data=True):
            if attributes["kind"] != "nvswitch":
                nodes.append((f"{host}.{device}", attributes["kind"], host))
        for a, b, e in one.graph.edges(data=True):
            if e["kind"] != "NVLink":
                edges.append((f"{host}.{a}", f"{host}.{b}", e["kind"], e["width"], e["bandwidth"]))
        edges += [(f"{host}.{g}", "nvswitch", "NVLink", width, width * told.nvlink)
                  for g in tray.gpus]  # fmt: skip
    ranks = tuple(f"t{k}.{gpu}" for k in range(TRAYS) for gpu in tray.gpus)
    return Topology("GB200 NVL72, 72 GPUs", graph_of(nodes, edges), ranks)
