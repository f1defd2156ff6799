"""Where a machine's devices stand in a picture, and how a link goes from one to another."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from coursekit.topology import Topology

Hop = tuple[str, str]
Point = tuple[float, float]

# Parts of the PCIe tree from the GPUs down, by the name that `topology.build` gives them.
LEVELS = ("pix", "pxb", "phb", "node", "cpu", "leaf", "spine")
ROOM = 0.35
BENDS = 12
ARC, ARC_MORE = 0.45, 0.34
SWITCH = 1.25


@dataclass
class Places:
    """Devices and links of a picture.

    Attributes
    ----------
    at : dict from str to (float, float)
        GPUs stand in a row at height 0, a unit apart; what joins them over PCIe stands below, an
        NVSwitch above.
    links : list of (str, str)
        What is drawn: in a cluster only the network.
    bars : dict from str to (float, float)
        An NVSwitch's left and right end.
    boxes : dict from str to (float, float)
        A node's, in a cluster.
    """

    at: dict[str, Point]
    links: list[Hop]
    bars: dict[str, Point] = field(default_factory=dict)
    boxes: dict[str, Point] = field(default_factory=dict)

    @property
    def lowest(self) -> float:
        """With arcs between processors."""
        return min(y for a, b in self.links for _, y in [*self.way(a, b), *self.at.values()])

    @property
    def highest(self) -> float:
        """With what goes above the GPUs: bars, or arcs over the farthest pair."""
        arcs = max(y for a, b in self.links for _, y in self.way(a, b))
        return max(arcs, 0.0, *(0.45 for _ in self.boxes))

    def way(self, a: str, b: str, aside: float = 0.0) -> list[Point]:
        """The points of a link from a to b, moved aside so that both directions can be told."""
        if self._arched(a, b):
            return self._arc(a, b, aside)
        (ax, ay), (bx, by) = self._end(a, b), self._end(b, a)
        steep = abs(by - ay) > abs(bx - ax) * 0.35
        dx, dy = (aside, 0.0) if steep else (0.0, aside)
        return [(ax + dx, ay + dy), (bx + dx, by + dy)]

    def _end(self, device: str, other: str) -> Point:
        x, y = self.at[device]
        return (self.at[other][0], y) if device in self.bars else (x, y)

    def _arched(self, a: str, b: str) -> bool:
        """GPU to GPU over the others' heads; processors with others between them, below."""
        (ax, ay), (bx, by) = self.at[a], self.at[b]
        between = any(y == ay and min(ax, bx) < x < max(ax, bx) for x, y in self.at.values())
        return ay == by and (ay == 0.0 or between)

    def _arc(self, a: str, b: str, aside: float) -> list[Point]:
        (ax, ay), (bx, _) = self.at[a], self.at[b]
        peak = (ARC + ARC_MORE * abs(ax - bx)) * (1 if ay == 0.0 else -1) + 2 * aside
        steps = [n / BENDS for n in range(BENDS + 1)]
        return [(ax + (bx - ax) * t, ay + peak * 2 * t * (1 - t)) for t in steps]


def places(machine: Topology, *, cards: bool = True) -> Places:
    """The picture of one machine, or of a small cluster's network."""
    if len(machine.hosts) > 1:
        return _cluster(machine)
    return _one(machine, cards)


def _one(machine: Topology, cards: bool) -> Places:
    graph = machine.graph
    at: dict[str, Point] = {gpu: (float(n), 0.0) for n, gpu in enumerate(machine.ranks)}
    levels: dict[str, list[str]] = {}
    for name in graph:
        kind = machine.kind(name)
        if kind in ("pcie", "cpu", "leaf", "spine"):
            level = name.rstrip("0123456789") if kind == "pcie" else kind
            levels.setdefault(level, []).append(name)
    nics = [name for name in graph if machine.kind(name) == "nic"] if cards else []
    told = [levels[level] for level in LEVELS if level in levels]
    for depth, names in enumerate(told, 1):
        for name in names:
            if not cards and not _leads(machine, name, at):
                continue
            under = [at[n][0] for n in graph.adj[name] if n in at and at[n][1] > -depth - ROOM]
            middle = sum(under) / len(under) if under else max(x for x, _ in at.values()) + 1
            at[name] = (middle, -depth - ROOM)
    for nic in nics:
        at[nic] = _card(machine, nic, at)
    bars = {}
    for name in graph:
        if machine.kind(name) == "nvswitch":
            own = [at[g][0] for g in graph.adj[name] if g in at]
            at[name] = (sum(own) / len(own), SWITCH)
            bars[name] = (min(own) - ROOM, max(own) + ROOM)
    return Places(at, [(a, b) for a, b in graph.edges if a in at and b in at], bars)


def _leads(machine: Topology, name: str, at: dict[str, Point]) -> bool:
    """Whether a GPU hangs below."""
    return any(n in at and machine.kind(n) != "cpu" for n in machine.graph.adj[name])


def _card(machine: Topology, nic: str, at: dict[str, Point]) -> Point:
    """Below the switch on which it hangs, on the side where the switch's own way down is not."""
    (parent,) = list(machine.graph.adj[nic])[:1]
    mates = [n for n in machine.graph.adj[parent] if machine.kind(n) == "nic"]
    x, y = at[parent]
    down = [at[n][0] - x for n in machine.graph.adj[parent] if n in at and at[n][1] < y]
    number = mates.index(nic)
    if down and abs(down[0]) > 0.1:
        return x + (number + 1) * (0.35 if down[0] < 0 else -0.35), y - 0.45
    side = (number - (len(mates) - 1) / 2) * 0.7
    return x + (side if len(mates) > 1 else 0.35), y - 0.45


def _cluster(machine: Topology) -> Places:
    """Nodes in a row of boxes, GPUs over cards; below them leaves, then the spines."""
    at: dict[str, Point] = {}
    boxes, left = {}, 0.0
    for host in machine.hosts:
        own = [gpu for gpu in machine.ranks if gpu.startswith(f"{host}.")]
        at.update({gpu: (left + n, 0.0) for n, gpu in enumerate(own)})
        nics = [n for n, d in machine.graph.nodes(data=True)
                if d["kind"] == "nic" and d["host"] == host]  # fmt: skip
        step = (len(own) - 1) / max(1, len(nics) - 1)
        at.update({nic: (left + n * step, -0.6) for n, nic in enumerate(nics)})
        boxes[host] = (left - 0.6, left + len(own) - 0.4)
        left += len(own) + 0.7
    width = left - 0.7
    leaves = [n for n in machine.graph if machine.kind(n) == "leaf"]
    at.update({n: ((k + 0.5) * width / len(leaves) - 0.5, -2.4) for k, n in enumerate(leaves)})
    at.update({n: (width / 2 - 0.5, -3.7) for n in machine.graph if machine.kind(n) == "spine"})
    fabric = ("leaf", "spine")
    links = [(a, b) for a, b in machine.graph.edges if _either(machine, a, b, fabric)]
    return Places(at, links, {}, boxes)


def _either(machine: Topology, a: str, b: str, kinds: Iterable[str]) -> bool:
    return machine.kind(a) in kinds or machine.kind(b) in kinds
