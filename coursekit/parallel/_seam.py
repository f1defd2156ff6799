"""What surrounds a pair of matrices that ranks share."""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor

from ._functions import Copy, Gather, Reduce, Scatter
from ._group import Library, Own
from ._group import collectives as collectives_of


class Seam:
    """What surrounds a pair of matrices: f and g, or along the sequence gather and scatter."""

    def __init__(self, group: dist.ProcessGroup, sequence: bool, collectives: str) -> None:
        self.group, self.sequence = group, sequence
        self.wires: Own | Library = collectives_of(collectives, group)
        self.rank, self.size = group.rank(), group.size()

    def enter(self, x: Tensor) -> Tensor:
        """Before the columns: f, or an all-gather along the sequence."""
        way = (Gather, self.wires, self.group) if self.sequence else (Copy, self.group)
        entered: Tensor = way[0].apply(x, *way[1:])  # type: ignore[no-untyped-call]
        return entered

    def leave(self, x: Tensor) -> Tensor:
        """After the rows: g, or a reduce-scatter along the sequence."""
        way = (Scatter, self.wires, self.group) if self.sequence else (Reduce, self.group)
        left: Tensor = way[0].apply(x, *way[1:])  # type: ignore[no-untyped-call]
        return left
