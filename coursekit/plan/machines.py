"""Machine cards: what a GPU holds and multiplies, and how fast GPUs reach each other.

The cards stand in `data/machines.yaml` with their sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, log2
from typing import Any

from coursekit import _data
from coursekit.plan._rules import PlanError, above_zero, positive
from coursekit.plan.flops import Gpu, gpu


@dataclass(frozen=True)
class Machine:
    """Equal nodes of equal GPUs, each GPU with its own share of the network.

    Parameters
    ----------
    gpu : Gpu
        Memory and peak of one card.
    node : int
        GPUs that reach each other without the network.
    hbm : float
        Bytes/s of a GPU's own memory.
    link, network : float
        Bytes/s of bus bandwidth (as nccl-tests defines it) that a GPU gets in large collectives
        inside a node, and between nodes.
    latency, network_latency : float
        Seconds a message, inside a node and between nodes.
    reserve : float
        Bytes of a GPU that tensors cannot have.

    Raises
    ------
    PlanError
        A number is not above 0.
    """

    title: str
    gpu: Gpu
    node: int
    hbm: float
    link: float
    network: float
    latency: float
    network_latency: float
    reserve: float = 0.0
    source: str = ""

    def __post_init__(self) -> None:
        positive("node", self.node)
        for name, example in (("hbm", 2e12), ("link", 2e11), ("network", 2e10),
                              ("latency", 4e-6), ("network_latency", 1e-5)):  # fmt: skip
            above_zero(name, getattr(self, name), example)

    @property
    def room(self) -> float:
        """Bytes of a GPU that tensors can have."""
        return self.gpu.memory - self.reserve

    def inside(self, size: int, stride: int = 1) -> int:
        """How many ranks of a group share a node, when neighbours are `stride` ranks apart."""
        return max(1, min(size, self.node // stride))

    def carrier(self, size: int, stride: int = 1) -> str:
        """Which wire a group's slowest part uses: ``link``, ``network``, or none for one rank."""
        if size == 1:
            return ""
        return "link" if self.inside(size, stride) == size else "network"

    def bandwidth(self, size: int, stride: int = 1) -> float:
        """Bus bandwidth of a group's ring, in bytes/s a rank.

        Where `k` of its ranks share a node, their `k` network cards carry what leaves it.
        """
        inside = self.inside(size, stride)
        return self.link if inside == size else min(self.link, inside * self.network)

    def ring(self, size: int, stride: int = 1) -> float:
        """Seconds that the steps of one all-gather or reduce-scatter wait, besides their bytes.

        NCCL has the ring alone for these two on most machines (its `tuning.cc`), so that waiting
        grows with the number of nodes; an all-reduce can take a tree instead.
        """
        inside = self.inside(size, stride)
        nodes = ceil(size / inside)
        return (inside - 1) * self.latency + (nodes - 1) * self.network_latency

    def tree(self, size: int, stride: int = 1) -> float:
        """Seconds that the steps of one all-reduce wait, besides its bytes: ring or tree."""
        inside = self.inside(size, stride)
        nodes = ceil(size / inside)
        up = (inside - 1) * self.latency + ceil(log2(nodes)) * self.network_latency
        return 2 * min(up, self.ring(size, stride))


def machines() -> dict[str, Machine]:
    """All cards by name, in the order of the file."""
    cards: Mapping[str, Mapping[str, Any]] = _data.load("machines.yaml")
    return {name: Machine(**{**card, "gpu": gpu(card["gpu"])}) for name, card in cards.items()}


def machine(name: str) -> Machine:
    """The card `name`, such as `h100`.

    Raises:
        PlanError: there is no such card; the message lists those there are.
    """
    cards = machines()
    if name not in cards:
        raise PlanError(
            f"a machine must be one of {', '.join(cards)}, got {name!r}; or make a Machine"
        )
    return cards[name]
