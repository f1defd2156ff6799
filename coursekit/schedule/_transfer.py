"""Transfers: single ones as tuples, many as one numpy array."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from coursekit.schedule._errors import ScheduleError, near, whole

__all__ = [
    "COPY",
    "DTYPE",
    "FIELDS",
    "OPS",
    "REDUCE",
    "Message",
    "Transfer",
    "as_array",
    "as_transfer",
    "in_order",
]

COPY = 0
REDUCE = 1
OPS = ("copy", "reduce")
FIELDS = ("step", "src", "dst", "op", "chunk", "into")
DTYPE = np.dtype([(field, np.int32) for field in FIELDS])


class Transfer(NamedTuple):
    """One chunk that goes from one rank to another.

    Attributes:
        step: when, from 0 up.
        src, dst: the sending and the receiving rank; equal for a move inside a rank's memory.
        chunk: which chunk of the sender's buffer.
        op: `copy` replaces the receiver's chunk, `reduce` adds to it.
        into: which chunk of the receiver's buffer; None stands for the same number.
    """

    step: int
    src: int
    dst: int
    chunk: int
    op: str = "copy"
    into: int | None = None


class Message(NamedTuple):
    """What one rank sends another in one step with one op: chunks `chunk[i]` into `into[i]`."""

    step: int
    src: int
    dst: int
    op: str
    chunk: npt.NDArray[np.int32]
    into: npt.NDArray[np.int32]


def as_transfer(row: tuple[int, ...]) -> Transfer:
    step, src, dst, op, chunk, into = row
    name = OPS[op] if 0 <= op < len(OPS) else str(op)
    return Transfer(step, src, dst, chunk, name, into)


def _as_row(transfer: Transfer | Sequence[Any]) -> tuple[int, ...]:
    try:
        step, src, dst, chunk, op, into = Transfer(*transfer)
    except TypeError:
        raise ScheduleError(
            f"a transfer must be (step, src, dst, chunk, op, into), got {transfer!r}"
        ) from None
    if op not in OPS:
        raise ScheduleError(f"op must be copy or reduce, got {op!r}; {near(str(op), OPS)}")
    numbers = (step, src, dst, OPS.index(op), chunk, chunk if into is None else into)
    return tuple(
        whole(number, field, -(2**31), 2**31 - 1)
        for field, number in zip(FIELDS, numbers, strict=True)
    )


def as_array(transfers: npt.NDArray[Any] | Iterable[Transfer | Sequence[Any]]) -> npt.NDArray[Any]:
    if isinstance(transfers, np.ndarray):
        if transfers.dtype != DTYPE or transfers.ndim != 1:
            raise ScheduleError(
                f"an array of transfers must be one-dimensional, of schedule.DTYPE, got "
                f"{transfers.dtype} with shape {transfers.shape}; or give Transfer objects"
            )
        return transfers
    return np.array([_as_row(transfer) for transfer in transfers], dtype=DTYPE)


def in_order(rows: npt.NDArray[Any], size: int, slots: int) -> npt.NDArray[Any]:
    """A sorted copy. Builders mostly give sorted rows, which one look at a joint key tells."""
    if not len(rows):
        return rows.copy()
    spans = (int(rows["step"].max()) + 1, size, size, len(OPS), slots, slots)
    if sum(span.bit_length() for span in spans) > 62:
        return rows[np.lexsort([rows[field] for field in reversed(FIELDS)])]
    key = np.zeros(len(rows), dtype=np.int64)
    for field, span in zip(FIELDS, spans, strict=True):
        key *= span
        key += rows[field]
    if (key[1:] >= key[:-1]).all():
        return rows.copy()
    return rows[np.argsort(key, kind="stable")]
