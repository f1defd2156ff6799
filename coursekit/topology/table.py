"""What a topology table says, and what it does not: links between GPUs, and to network cards."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

# From the nearest to the farthest: nvidia-smi's legend. SOC is what drivers printed before 2018
# where they print SYS now.
PATHS = ("PIX", "PXB", "PHB", "NODE", "SYS", "SOC")
# Near enough for GPUDirect RDMA: no host bridge between a GPU and a network card.
LOCAL = ("PIX", "PXB")

Pair = tuple[str, str]


@dataclass(frozen=True)
class Note:
    """Something that could not be read, or was put in by pattern.

    Parameters
    ----------
    kind : str
        ``ansi``, ``glued``, ``cut``, ``row``, ``header``, ``contradiction``, ``assumed`` or
        ``order``.
    text : str
        In words, with the row or column that it is about.
    """

    kind: str
    text: str


@dataclass(frozen=True)
class Table:
    """One machine's table as read.

    Parameters
    ----------
    vendor : {"nvidia", "amd"}
        Who printed it.
    gpus, nics : tuple of str
        Names as in the table, in its order.
    rows : tuple of str
        GPUs whose own row was there.
    links : dict from (str, str) to str
        The class of each pair that was read, both ways round: ``NV12``, ``PIX`` .. ``SYS``, or for
        AMD ``XGMI`` and ``PCIE`` with their weight, as in ``XGMI/w15``.
    assumed : dict from (str, str) to str
        Pairs that no row gives, put in because all others are alike; a note says so.
    cpus, numa, gpu_numa : dict from str to str
        Affinity columns, by GPU, as printed.
    names : dict from str to str
        What the NIC legend says: ``NIC0`` is ``mlx5_0``.
    p2p : dict from (str, str) to str
        Status of ``nvidia-smi topo -p2p``: ``OK``, ``NS``, ...
    hops : dict from (str, str) to int
        AMD's hops, as printed: 1 for every XGMI pair, direct or not.
    notes : tuple of Note
        What could not be read.
    """

    vendor: str
    gpus: tuple[str, ...]
    nics: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    links: dict[Pair, str] = field(default_factory=dict)
    assumed: dict[Pair, str] = field(default_factory=dict)
    cpus: dict[str, str] = field(default_factory=dict)
    numa: dict[str, str] = field(default_factory=dict)
    gpu_numa: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    p2p: dict[Pair, str] = field(default_factory=dict)
    hops: dict[Pair, int] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()

    def link(self, a: str, b: str) -> str:
        """The class between two devices, read or assumed; empty when nothing says it."""
        return self.links.get((a, b)) or self.assumed.get((a, b), "")

    @cached_property
    def pairs(self) -> dict[Pair, str]:
        """Each pair of GPUs once, with its class; pairs that nothing says are left out."""
        every = {(a, b): self.link(a, b) for a, b in combinations(self.gpus, 2)}
        return {pair: kind for pair, kind in every.items() if kind}

    @property
    def classes(self) -> Counter[str]:
        """How many pairs of GPUs have which class."""
        return Counter(self.pairs.values())

    @property
    def unknown(self) -> list[Pair]:
        """Pairs of GPUs that nothing says."""
        return [p for p in combinations(self.gpus, 2) if p not in self.pairs]

    @property
    def without_nvlink(self) -> list[Pair]:
        """Pairs of GPUs that are read and have neither NVLink nor XGMI."""
        return [pair for pair, kind in self.pairs.items() if not fast(kind)]

    @property
    def islands(self) -> list[list[str]]:
        """Groups of at least two GPUs that reach each other over NVLink or XGMI alone."""
        groups = connected(self.gpus, (p for p, kind in self.pairs.items() if fast(kind)))
        return [group for group in groups if len(group) > 1]

    def nvlinks(self, gpu: str) -> int:
        """NVLinks of a GPU's row together: more than it has where a switch bonds them anew for
        every peer.
        """
        return sum(width(self.link(gpu, other)) for other in self.gpus if other != gpu)

    def nearest_nics(self, gpu: str) -> tuple[str, list[str]]:
        """The nearest class to any network card, and the cards of that class; empty for none."""
        told = {nic: self.link(gpu, nic) for nic in self.nics if self.link(gpu, nic) in PATHS}
        if not told:
            return "", []
        best = min(told.values(), key=PATHS.index)
        return best, [nic for nic, kind in told.items() if kind == best]

    @property
    def indirect(self) -> list[Pair]:
        """Pairs that AMD weighs as several links: direct XGMI has weight 15."""
        return [
            p for p, kind in self.pairs.items() if kind.startswith("XGMI") and weight(kind) > 15
        ]


def fast(kind: str) -> bool:
    """Whether a class is NVLink or XGMI."""
    return kind.startswith(("NV", "XGMI"))


def width(kind: str) -> int:
    """NVLinks in a class: 12 of ``NV12``; 0 of others."""
    found = re.fullmatch(r"NV(\d+)", kind)
    return int(found[1]) if found else 0


def weight(kind: str) -> int:
    """AMD's weight in a class such as ``XGMI/w30``; 0 of others."""
    return int(kind.partition("/w")[2] or 0)


def connected(names: Iterable[str], pairs: Iterable[Pair]) -> list[list[str]]:
    """Groups of names that pairs join, each in the order of `names`."""
    import networkx as nx

    names = list(names)
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(names)
    graph.add_edges_from(pairs)
    groups = [sorted(group, key=names.index) for group in nx.connected_components(graph)]
    return sorted(groups, key=lambda group: names.index(group[0]))
