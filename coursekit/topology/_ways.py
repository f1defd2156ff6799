"""Ways through a graph: the widest, and of equally wide ones the shortest."""

from __future__ import annotations

import heapq
from collections import deque
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import networkx as nx

# What may stand inside a way; a GPU does not pass on what is not its own.
THROUGH = frozenset({"nvswitch", "pcie", "cpu", "leaf", "spine", "nic"})
Hop = tuple[str, str]


class Ways:
    """Trees of ways from each device that was asked for, kept as arrays of predecessors."""

    def __init__(self, graph: nx.Graph[str]) -> None:
        self.names = list(graph)
        self.place = {name: k for k, name in enumerate(self.names)}
        self.passes = [graph.nodes[name]["kind"] in THROUGH for name in self.names]
        self.near = [
            [
                (self.place[other], float(edge["bandwidth"]))
                for other, edge in graph.adj[name].items()
            ]
            for name in self.names
        ]
        self._widths: dict[int, npt.NDArray[np.float64]] = {}
        self._trees: dict[tuple[int, float], npt.NDArray[np.int32]] = {}

    def way(self, a: str, b: str) -> tuple[Hop, ...] | None:
        """The links from a to b; None where nothing joins them."""
        source, here = self.place[a], self.place[b]
        width = float(self.widths(source)[here])
        if width == 0:
            return None
        came = self._tree(source, width)
        hops: list[Hop] = []
        while here != source:
            before = int(came[here])
            hops.append((self.names[before], self.names[here]))
            here = before
        return tuple(reversed(hops))

    def widths(self, source: int) -> npt.NDArray[np.float64]:
        """The widest way's bandwidth to every device; 0 where there is none."""
        if source not in self._widths:
            best = np.zeros(len(self.names))
            best[source] = np.inf
            queue = [(-np.inf, source)]
            while queue:
                width, here = heapq.heappop(queue)
                if -width < best[here] or not (here == source or self.passes[here]):
                    continue
                for there, bandwidth in self.near[here]:
                    wide = min(-width, bandwidth)
                    if wide > best[there]:
                        best[there] = wide
                        heapq.heappush(queue, (-wide, there))
            self._widths[source] = best
        return self._widths[source]

    def _tree(self, source: int, width: float) -> npt.NDArray[np.int32]:
        """Shortest ways over links that are wide enough; first found, in the order of the graph."""
        if (source, width) not in self._trees:
            came = np.full(len(self.names), -1, np.int32)
            came[source] = source
            queue = deque([source])
            while queue:
                here = queue.popleft()
                if not (here == source or self.passes[here]):
                    continue
                for there, bandwidth in self.near[here]:
                    if bandwidth >= width and came[there] < 0:
                        came[there] = here
                        queue.append(there)
            self._trees[source, width] = came
        return self._trees[source, width]
