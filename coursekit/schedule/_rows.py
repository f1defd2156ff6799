"""What builders are made of: arrays of transfers, put together without a loop over ranks."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from coursekit.schedule._transfer import COPY, DTYPE, FIELDS, REDUCE

__all__ = [
    "COPY", "REDUCE", "Fold", "Ints", "Plan", "Rows", "backwards", "fold", "levels", "log2_floor",
    "log2_steps", "onto", "rows", "spans", "then",
]  # fmt: skip

Rows = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
Numbers = Ints | int


class Plan(NamedTuple):
    """What a builder gives: the transfers, and how many chunks they need."""

    rows: Rows
    chunks: int
    scratch: int = 0


def rows(
    step: Numbers,
    src: Numbers,
    dst: Numbers,
    chunk: Numbers,
    op: int = COPY,
    into: Numbers | None = None,
) -> Rows:
    """The transfers that the arguments give when broadcast against each other, in C order."""
    columns = (step, src, dst, op, chunk, chunk if into is None else into)
    shape = np.broadcast_shapes(*(np.shape(column) for column in columns))
    table = np.empty(shape, dtype=DTYPE)
    for field, column in zip(FIELDS, columns, strict=True):
        table[field] = column
    return table.ravel()


def spans(
    step: Numbers,
    src: Numbers,
    dst: Numbers,
    low: Numbers,
    high: Numbers,
    op: int = COPY,
    modulo: int | None = None,
) -> Rows:
    """One message for each entry, with chunks `low` up to but without `high`, round at `modulo`."""
    columns = [np.ravel(column) for column in np.broadcast_arrays(step, src, dst, low, high)]
    length = columns[4] - columns[3]
    step, src, dst, low, _ = (np.repeat(column, length) for column in columns)
    begins = np.repeat(np.cumsum(length) - length, length)
    chunk = low + np.arange(len(begins)) - begins
    return rows(step, src, dst, chunk if modulo is None else chunk % modulo, op)


def then(*parts: Rows) -> Rows:
    """The parts one after another: the steps of each begin where those before it end."""
    moved, start = [], 0
    for part in parts:
        if not len(part):
            continue
        part = part.copy()
        part["step"] += start
        start = int(part["step"].max()) + 1
        moved.append(part)
    return np.concatenate(moved) if moved else np.empty(0, dtype=DTYPE)


def backwards(part: Rows, op: int) -> Rows:
    """The dual: the last step first, and every transfer from its destination to its source."""
    turned = part[::-1].copy()
    if len(part):
        turned["step"] = int(part["step"].max()) - turned["step"]
    turned["src"], turned["dst"] = part["dst"][::-1], part["src"][::-1]
    turned["chunk"], turned["into"] = part["into"][::-1], part["chunk"][::-1]
    turned["op"] = op
    return turned


def onto(part: Rows, ranks: Ints) -> Rows:
    """The same transfers, by rank `ranks[i]` in the place of rank i."""
    moved = part.copy()
    moved["src"], moved["dst"] = ranks[part["src"]], ranks[part["dst"]]
    return moved


class Fold(NamedTuple):
    """A size folded to a power of two: `extra[i]` hands its part in this to `core[i]`.

    `core` are the 2**power ranks that go on, in rank order; the first of them have a partner.
    """

    power: int
    core: Ints
    extra: Ints

    @property
    def partner(self) -> Ints:
        """The core ranks that have an extra rank, in the order of `extra`."""
        return self.core[: len(self.extra)]


def fold(size: int) -> Fold:
    """Ranks 0 to 2*rest - 1 pair up, the odd ones of them step aside; Thakur et al. 2005."""
    power = log2_floor(size)
    rest = size - (1 << power)
    core = np.concatenate([np.arange(0, 2 * rest, 2), np.arange(2 * rest, size)])
    return Fold(power, core, np.arange(1, 2 * rest, 2))


def log2_floor(size: int) -> int:
    """The largest power of two in `size`, as an exponent."""
    return size.bit_length() - 1


def log2_steps(size: int) -> int:
    """How often one must double to reach `size`: log2, rounded up."""
    return (size - 1).bit_length()


def levels(size: int) -> Ints:
    """The distances 1, 2, 4, ... below `size`."""
    return 1 << np.arange(log2_steps(size), dtype=np.int64)
