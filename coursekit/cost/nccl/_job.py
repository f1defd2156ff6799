"""A collective's job: who takes part, on which machine, under which NCCL."""

from __future__ import annotations

from dataclasses import dataclass

from ._machines import Graph, Machine, Paths, machine
from ._names import NcclError, priced
from ._versions import Constants, constants, numbers

__all__ = ["Job", "job", "whole"]


@dataclass(frozen=True)
class Job:
    """What the formulas need; `paths` are the machine's graphs for so many nodes and ranks."""

    collective: str
    machine: Machine
    paths: Paths
    nodes: int
    ranks_per_node: int
    constants: Constants

    @property
    def ranks(self) -> int:
        return self.nodes * self.ranks_per_node

    @property
    def steps(self) -> int:
        """Steps of the ring: 2(n-1) for all_reduce, n-1 for shards, n for a root's collective."""
        if self.collective == "all_reduce":
            return 2 * (self.ranks - 1)
        return self.ranks - 1 if self.shards else self.ranks

    @property
    def shards(self) -> bool:
        return self.collective in ("all_gather", "reduce_scatter")

    @property
    def nvls(self) -> Graph | None:
        """The switch's graph, where it can add: from Hopper on, two channels at least."""
        graph = self.paths.nvls.get(self.ranks_per_node)
        return graph if graph and graph.channels > 1 and self.machine.capability >= 90 else None

    @property
    def version(self) -> tuple[int, int, int]:
        return numbers(self.constants.version)

    def graph(self, algorithm: str) -> Graph:
        """PAT uses the tree's graph, NVLSTree that of NVLS (init.cc)."""
        if algorithm in ("NVLS", "NVLSTree"):
            assert self.nvls is not None
            return self.nvls
        return self.paths.ring if algorithm == "Ring" else self.paths.tree

    def most(self, table: str) -> float:
        """The row of the GPU's architecture, at the column of so many nodes."""
        return float(self._row(table, self.machine.architecture)[min(self.nodes, 3) - 1])

    def ll_most(self) -> float:
        """LL's limit: of one node the GPU decides, of several the CPU's maker."""
        if self.nodes == 1:
            return self.most("ll_most")
        row = "ampere" if self.machine.cpu == "amd" else "volta"
        return float(self._row("ll_most", row)[min(self.nodes, 3) - 1])

    def _row(self, table: str, architecture: str) -> list[float]:
        rows: dict[str, list[float]] = self.constants.value[table]
        # Before 2.25 a Blackwell counts as a Hopper: the last row holds for all newer ones.
        return rows[architecture] if architecture in rows else rows["hopper"]


def job(
    collective: str, where: str | Machine, nodes: int, ranks_per_node: int, version: str
) -> Job:
    name = priced(collective)
    for what, number in (("nodes", nodes), ("ranks_per_node", ranks_per_node)):
        whole(what, number)
    found = machine(where)
    return Job(
        name,
        found,
        found.paths(nodes, ranks_per_node),
        nodes,
        ranks_per_node,
        constants(version),
    )


def whole(what: str, number: int) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise NcclError(f"{what} must be a whole number from 1 up, got {number!r}; try {what}=8")
