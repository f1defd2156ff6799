"""A unit of ZeRO: parameters that are gathered, reduced and freed together, as one flat tensor."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ._group import Library, Own, part


class Unit:
    """Parameters in one flat tensor, padded to a length that the number of ranks divides.

    Attributes:
        place: of its module in the order of forward: 0 for the rest of the model, then the blocks.
        full: the flat weights; in stage 3 its memory exists only while they are in use.
        shard: this rank's part: memory of its own in stage 3, else a view of `full`.
        pieces: of each parameter the part that lies in the shard, perhaps empty: what the
            optimizer updates.
        grads: this rank's part of the mean gradients, once there are any.
    """

    def __init__(self, params: list[nn.Parameter], rank: int, size: int, stage: int) -> None:
        self.params, self.rank, self.size = params, rank, size
        self.place = 0
        self.trained = params[0].requires_grad
        self.waits_for: set[int] = set()
        self.grads: Tensor | None = None
        self.is_open = True
        self._shapes = [p.shape for p in params]
        self.full = self._flat([p.detach() for p in params])
        self._nbytes = self.full.nbytes
        mine = part(self.full, rank, size)
        self.shard = mine.clone() if stage == 3 else mine
        self.pieces = [nn.Parameter(piece, self.trained) for piece in self._mine(self.shard)]
        self._point()
        if stage == 3:
            self.close()

    def _flat(self, tensors: list[Tensor]) -> Tensor:
        """The tensors in a row, with zeros after them."""
        padding = -sum(t.numel() for t in tensors) % self.size
        return torch.cat([*(t.flatten() for t in tensors), tensors[0].new_zeros(padding)])

    def _mine(self, shard: Tensor) -> list[Tensor]:
        """Of each parameter the part that lies in this rank's shard."""
        begin, parts, at = self.rank * shard.numel(), [], 0
        for shape in self._shapes:
            ends = (at, at + shape.numel())
            low, high = (min(max(end - begin, 0), shard.numel()) for end in ends)
            parts.append(shard[low:high])
            at = ends[1]
        return parts

    def _point(self) -> None:
        """Let the parameters show their places in the flat tensor."""
        at = 0
        for p, shape in zip(self.params, self._shapes, strict=True):
            p.data = self.full[at : at + shape.numel()].view(shape)
            at += shape.numel()

    def open(self, wires: Own | Library) -> None:
        """Gather the weights from all ranks, if they are not here."""
        if self.is_open:
            return
        self.full.untyped_storage().resize_(self._nbytes)
        part(self.full, self.rank, self.size).copy_(self.shard)
        wires.all_gather(self.full)
        self._point()
        self.is_open = True

    def close(self) -> None:
        """Free the weights; what autograd saved keeps its place, and is there again when open."""
        for p in self.params:
            p.data = p.data.new_empty(0)
        self.full.untyped_storage().resize_(0)
        self.is_open = False

    def reduce(self, wires: Own | Library) -> None:
        """Turn the parameters' gradients into this rank's part of their mean, and free them."""
        have = [
            p.new_zeros(shape) if p.grad is None else p.grad
            for p, shape in zip(self.params, self._shapes, strict=True)
        ]
        mine = wires.reduce_scatter(self._flat(have)) / self.size
        self.grads = mine if self.grads is None else self.grads + mine
        for p in self.params:
            p.grad = None

    def give_gradients(self, used: set[int]) -> None:
        """Give the optimizer's pieces their gradients; none to parameters that no rank used."""
        assert self.grads is not None
        for p, piece, grad in zip(self.params, self.pieces, self._mine(self.grads), strict=True):
            piece.grad = grad if id(p) in used else None

    def forget_gradients(self) -> None:
        """After the optimizer's step."""
        self.grads = None
        for piece in self.pieces:
            piece.grad = None

    def nbytes(self) -> tuple[int, int]:
        """Bytes of weights and of gradients that this rank holds now."""
        own = 0 if _shares(self.shard, self.full) else self.shard.nbytes
        grads = sum(p.grad.nbytes for p in self.params if p.grad is not None)
        held = 0 if self.grads is None else self.grads.nbytes
        return self.full.untyped_storage().nbytes() + own, grads + held


class Turns:
    """Opens units in one order on all ranks, also where a rank leaves one out that others use.

    Gathering takes all ranks: a rank that went past a unit gathers it for the others' sake.
    `first` is called before each.
    """

    def __init__(
        self, units: list[Unit], wires: Own | Library, first: Callable[[Unit], None] | None = None
    ) -> None:
        self._units, self._wires, self._next = units, wires, 0
        self._first = first or (lambda _: None)

    def open(self, unit: Unit) -> None:
        """Open a unit, and let those before it whose turn was missed open for a moment."""
        self._pass(self._units.index(unit))
        self._next = max(self._next, self._units.index(unit) + 1)
        self._first(unit)
        unit.open(self._wires)

    def finish(self) -> None:
        """The way is at its end: the rest have their turn, and the next way begins."""
        self._pass(len(self._units))
        self._next = 0

    def _pass(self, until: int) -> None:
        for missed in self._units[self._next : until]:
            self._first(missed)
            if not missed.is_open:
                missed.open(self._wires)
                missed.close()
        self._next = max(self._next, until)


def _shares(a: Tensor, b: Tensor) -> bool:
    return bool(a.untyped_storage()._cdata == b.untyped_storage()._cdata)
