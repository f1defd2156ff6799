"""From a table to a graph: which switch, host bridge and processor must stand between devices."""

from __future__ import annotations

from dataclasses import dataclass

from coursekit.topology._errors import TopologyError
from coursekit.topology.machine import Topology, graph_of
from coursekit.topology.table import Pair, Table, connected, fast, weight, width

# From near to far; each level joins what the levels before it have joined.
LEVELS = (("PIX",), ("PXB",), ("PHB",), ("NODE",))
# The most NVLinks that a GPU has (H100, B200: 18).
MOST_NVLINKS = 18


@dataclass(frozen=True)
class Speeds:
    """Bytes/s each way that a link gives in large copies.

    Parameters
    ----------
    nvlink : float
        Of one NVLink. NCCL counts 20 GB/s (V100, A100), 20.6 (H100), 40.1 (B200).
    pcie : float
        Of a GPU's or network card's own slot: 12 GB/s (gen 3 x16), 24 (gen 4), 48 (gen 5).
    host : float
        Between PCIe's host bridge and the processor, for all that hangs there together.
    smp : float
        Between two processors.
    xgmi : float
        Of one direct XGMI link between two GPUs.
    network : float
        Of a network card's port.
    """

    nvlink: float = 20e9
    pcie: float = 24e9
    host: float = 24e9
    smp: float = 10e9
    xgmi: float = 48e9
    network: float = 25e9


def build(table: Table, speeds: Speeds | None = None, name: str = "this machine") -> Topology:
    """The graph that a table describes.

    NVLinks go through an NVSwitch where a row has more of them than a GPU can have; else from GPU
    to GPU. Devices that are PIX apart hang on one PCIe switch, PXB on several, PHB on one host
    bridge, NODE on one processor, SYS on several.

    Raises
    ------
    TopologyError
        The table has no GPU.
    """
    if not table.gpus:
        raise TopologyError("a machine must have a GPU, got a table without; give another table")
    speeds = speeds or Speeds()
    notes: list[str] = [f"{a}-{b}: nothing says how they are joined" for a, b in table.unknown]
    nodes = [(gpu, "gpu", "") for gpu in table.gpus] + [(nic, "nic", "") for nic in table.nics]
    edges: list[tuple[str, str, str, int, float]] = []
    _fast(table, speeds, nodes, edges, notes)
    _slow(table, speeds, nodes, edges, notes)
    return Topology(name, graph_of(nodes, edges), table.gpus, tuple(notes))


def switched(table: Table) -> bool:
    """Whether NVLinks go through a switch: a row has more than a GPU can have."""
    return any(table.nvlinks(gpu) > MOST_NVLINKS for gpu in table.gpus)


def _fast(
    table: Table, speeds: Speeds, nodes: list[tuple[str, str, str]],
    edges: list[tuple[str, str, str, int, float]], notes: list[str],
) -> None:  # fmt: skip
    links = {pair: kind for pair, kind in table.pairs.items() if fast(kind)}
    if not switched(table):
        for (a, b), kind in links.items():
            if kind.startswith("NV"):
                edges.append((a, b, "NVLink", width(kind), width(kind) * speeds.nvlink))
            elif weight(kind) <= 15:
                edges.append((a, b, "XGMI", 1, speeds.xgmi))
        if indirect := table.indirect:
            notes.append(f"{len(indirect)} pairs go over other GPUs' XGMI links: left to PCIe")
        return
    for count, island in enumerate(table.islands):
        switch = f"nvswitch{count}"
        nodes.append((switch, "nvswitch", ""))
        for gpu in island:
            most = max(width(table.link(gpu, other)) for other in island if other != gpu)
            edges.append((gpu, switch, "NVLink", most, most * speeds.nvlink))


def _slow(
    table: Table, speeds: Speeds, nodes: list[tuple[str, str, str]],
    edges: list[tuple[str, str, str, int, float]], notes: list[str],
) -> None:  # fmt: skip
    """The PCIe tree, level by level; each device or switch hangs on the next that joins it."""
    devices = [*table.gpus, *table.nics]
    told = {p: table.link(*p) for p in _pairs(devices)}
    top = {device: device for device in devices}
    for level, kinds in enumerate(LEVELS):
        near = {k for done in LEVELS[: level + 1] for k in done}
        groups = connected(devices, (p for p, kind in told.items() if kind in near))
        for group in groups:
            children = list(dict.fromkeys(top[d] for d in group))
            if len(children) == 1:
                continue
            parent = f"{kinds[0].lower()}{sum(n[1] == 'pcie' for n in nodes)}"
            nodes.append((parent, "pcie", ""))
            for child in children:
                slot = child in devices
                edges.append((child, parent, "PCIe", 1, speeds.pcie if slot else speeds.host))
            top.update(dict.fromkeys(group, parent))
    _sockets(table, speeds, top, nodes, edges, notes)


def _sockets(
    table: Table, speeds: Speeds, top: dict[str, str], nodes: list[tuple[str, str, str]],
    edges: list[tuple[str, str, str, int, float]], notes: list[str],
) -> None:  # fmt: skip
    """One processor for each NUMA value, else one for each part that PCIe joins; all of them
    joined.
    """
    roots = list(dict.fromkeys(top.values()))
    where = {root: _numa(table, top, root) for root in roots}
    unsure = [root for root, value in where.items() if not value]
    cards = [root for root in unsure if root in table.nics]
    # Cards that nothing places hang on the first processor, so that none is made up for them.
    first = next((value for value in where.values() if value), "")
    where.update({root: first if root in cards and first else f"of {root}" for root in unsure})
    if len(unsure) > 1:
        notes.append(f"no column says which processor {', '.join(unsure)} hang on")
    sockets = {value: f"cpu{k}" for k, value in enumerate(dict.fromkeys(where.values()))}
    nodes += [(cpu, "cpu", "") for cpu in sockets.values()]
    for root, value in where.items():
        slot = root in table.gpus or root in table.nics
        edges.append((root, sockets[value], "PCIe", 1, speeds.pcie if slot else speeds.host))
    names = list(sockets.values())
    edges += [(a, b, "SMP", 1, speeds.smp) for a, b in _pairs(names)]


def _numa(table: Table, top: dict[str, str], root: str) -> str:
    """The NUMA value of the GPUs below a root; cards without GPUs beside them have none."""
    values = {table.numa.get(g) or table.cpus.get(g, "") for g in table.gpus if top[g] == root}
    return values.pop() if len(values) == 1 else ""


def _pairs(names: list[str]) -> list[Pair]:
    return [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
