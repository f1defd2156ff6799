"""Who computes which rows of a batch."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ._errors import ParallelError
from ._group import group_of


def share(rows: Tensor, group: Any = None, *, uneven: bool = False) -> Tensor:
    """This rank's rows of a batch, a view: as many for every rank.

    Args:
        rows: the whole batch, the same on every rank; the first axis is cut.
        group: the data-parallel ranks; all ranks by default.
        uneven: let the first ranks have a row more where the size does not divide. The mean of
            means is then not the mean: give each rank's loss its weight with `weigh`.

    Raises:
        ParallelError: the size does not divide the rows (without `uneven`), or there are fewer
            rows than ranks.
    """
    g = group_of(group)
    rank, size, total = g.rank(), g.size(), len(rows)
    if total < size:
        raise ParallelError(
            f"every rank needs a row, got {total} rows for {size} ranks; give at least {size}"
        )
    if total % size and not uneven:
        raise ParallelError(
            f"{size} ranks must divide the batch, got {total} rows; give {total // size * size}, "
            "or share(..., uneven=True) and weigh the loss"
        )
    least, more = divmod(total, size)
    begin = rank * least + min(rank, more)
    return rows[begin : begin + least + (rank < more)]


def weigh(loss: Tensor, rows: int, total: int, group: Any = None) -> Tensor:
    """The loss such that the ranks' mean gradient is the gradient of the mean over all rows.

    Args:
        loss: the mean over this rank's rows.
        rows, total: this rank's rows and the whole batch's.

    Returns:
        ``loss * rows * size / total``; the loss itself where all ranks have as many rows.
    """
    return loss * (rows * group_of(group).size() / total)
