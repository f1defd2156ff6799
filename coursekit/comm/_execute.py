"""Running a schedule: what it says, on real ranks, with any backend."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

import numpy as np

from coursekit.schedule import REDUCE, Schedule, chunk_bounds

from ._comm import Comm, CommError

OPS = ("sum", "avg", "min", "max", "prod")


def execute(
    schedule: Schedule,
    comm: Comm,
    buffer: Any,
    op: str = "sum",
    *,
    output: Any = None,
) -> Any:
    """Run a schedule on this rank; every rank of the communicator calls it.

    Parameters
    ----------
    schedule : Schedule
        For as many ranks as the communicator has.
    comm : Comm
        From `connect`.
    buffer : torch.Tensor
        One-dimensional and contiguous, of the same length and dtype on every rank, cut by
        `chunk_bounds`. It holds the result afterwards, except for all_to_all.
    op : {"sum", "avg", "min", "max", "prod"}
        How reductions combine; ``avg`` divides by the size at the end and needs a float dtype.
    output : torch.Tensor, optional
        Where all_to_all puts its result; made when it is not given.

    Returns
    -------
    torch.Tensor
        The tensor that holds the result.

    Raises
    ------
    CommError
        A rule about size, buffer or op is broken. Nothing was sent.

    Notes
    -----
    Beside the buffer it takes one message of memory for each message that is added or does not
    lie in one piece, for the length of a step.
    """
    _check(schedule, comm, buffer, op)
    place = _Place(schedule, buffer, output)
    combine = _combiner(op)
    for step in _program(schedule, comm.rank):
        _run(comm, place, combine, step)
    if op == "avg":
        _divide(schedule, place, comm)
    return place.result


def _check(schedule: Schedule, comm: Comm, buffer: Any, op: str) -> None:
    if schedule.size != comm.size:
        raise CommError(
            f"a schedule must have as many ranks as the communicator, got {schedule.size} for "
            f"{comm.size}; build it with size={comm.size}"
        )
    if op not in OPS:
        raise CommError(f"op must be one of {', '.join(OPS)}, got {op!r}; try 'sum'")
    if buffer.dim() != 1 or not buffer.is_contiguous():
        raise CommError(
            "a buffer must be one-dimensional and contiguous, got shape "
            f"{tuple(buffer.shape)} with strides {buffer.stride()}; "
            "pass buffer.contiguous().view(-1)"
        )
    if op == "avg" and not (buffer.is_floating_point() or buffer.is_complex()):
        raise CommError(f"avg needs a float dtype, got {buffer.dtype}; use sum, or .float() before")
    if schedule.needs_equal_chunks and buffer.numel() % schedule.chunks:
        raise CommError(
            f"{schedule.collective} by {schedule.algorithm} needs a buffer whose length its "
            f"{schedule.chunks} chunks divide, got {buffer.numel()}; pad it"
        )


class _Place:
    """Where each chunk of a rank lies: in the buffer, the output, or beside them."""

    def __init__(self, schedule: Schedule, buffer: Any, output: Any) -> None:
        bounds = chunk_bounds(buffer.numel(), schedule.chunks).tolist()
        spans = [slice(a, b) for a, b in pairwise(bounds)]
        self.chunks = [(buffer, span) for span in spans]
        self.result = buffer
        if schedule.output:
            self.result = buffer.new_empty(buffer.numel()) if output is None else output
            self.chunks += [(self.result, span) for span in spans]
        longest = max((s.stop - s.start for s in spans), default=0)
        for _ in range(schedule.scratch):
            self.chunks.append((buffer.new_empty(longest), slice(0, longest)))

    def view(self, chunk: int) -> Any:
        """The chunk's own memory."""
        base, span = self.chunks[chunk]
        return base[span]

    def piece(self, chunks: Sequence[int]) -> Any | None:
        """The memory of several chunks if it is one piece, else None."""
        base, first = self.chunks[chunks[0]]
        end = first.start
        for chunk in chunks:
            other, span = self.chunks[chunk]
            if other is not base or span.start != end:
                return None
            end = span.stop
        return base[first.start : end]


@dataclass(frozen=True)
class _Leg:
    """This rank's end of a message, or a move in its own memory (`peer` is the rank itself)."""

    peer: int
    sends: bool
    reduce: bool
    chunks: tuple[int, ...]


@functools.lru_cache(maxsize=64)
def _program(schedule: Schedule, rank: int) -> tuple[tuple[_Leg, ...], ...]:
    """What one rank does, step by step; kept, because the same schedule runs again and again."""
    steps = []
    for _, rows in groupby(schedule.of(rank).tolist(), key=lambda row: row[0]):
        steps.append(tuple(_legs(rows, rank)))
    return tuple(steps)


def _legs(rows: Iterable[tuple[int, ...]], rank: int) -> Iterator[_Leg]:
    for (_, src, dst, op), part in groupby(rows, key=lambda row: row[:4]):
        transfers = list(part)
        sent, landed = (tuple(t[i] for t in transfers) for i in (4, 5))
        if src == dst:
            for one, other in zip(sent, landed, strict=True):
                yield _Leg(rank, True, op == REDUCE, (one, other))
        elif src == rank:
            yield _Leg(dst, True, op == REDUCE, sent)
        else:
            yield _Leg(src, False, op == REDUCE, landed)


@dataclass
class _Incoming:
    """A message that does not land in place: unpacked or added after the step's waits."""

    chunks: tuple[int, ...]
    landed: Any
    reduce: bool


def _run(
    comm: Comm, place: _Place, combine: Callable[[Any, Any], None], step: tuple[_Leg, ...]
) -> None:
    requests, later = [], []
    for leg in step:
        if leg.peer == comm.rank:
            # A move reads what the chunk held before the step, and messages may overwrite that.
            value = place.view(leg.chunks[0]).clone()
            later.append(_Incoming(leg.chunks[1:], value, leg.reduce))
        elif leg.sends:
            requests.append(comm.isend(_packed(place, leg.chunks), leg.peer))
        else:
            incoming = _target(place, leg.chunks, leg.reduce)
            later.append(incoming)
            requests.append(comm.irecv(incoming.landed, leg.peer))
    for request in requests:
        request.wait()
    for incoming in later:
        _unpack(place, combine, incoming)


def _packed(place: _Place, chunks: tuple[int, ...]) -> Any:
    import torch

    whole = place.piece(chunks)
    return torch.cat([place.view(c) for c in chunks]) if whole is None else whole


def _target(place: _Place, into: tuple[int, ...], reduce: bool) -> _Incoming:
    piece = None if reduce else place.piece(into)
    if piece is not None:
        return _Incoming((), piece, False)
    views = [place.view(c) for c in into]
    length = sum(v.numel() for v in views)
    return _Incoming(into, views[0].new_empty(length), reduce)


def _unpack(place: _Place, combine: Callable[[Any, Any], None], incoming: _Incoming) -> None:
    at = 0
    for chunk in incoming.chunks:
        length = place.view(chunk).numel()
        _arrive(place, combine, chunk, incoming.landed[at : at + length], incoming.reduce)
        at += length


def _arrive(
    place: _Place, combine: Callable[[Any, Any], None], chunk: int, value: Any, reduce: bool
) -> None:
    target = place.view(chunk)
    if reduce:
        combine(target, value)
    else:
        target.copy_(value)


def _combiner(op: str) -> Callable[[Any, Any], None]:
    import torch

    functions: dict[str, Callable[..., Any]] = {
        "sum": torch.add,
        "avg": torch.add,
        "min": torch.minimum,
        "max": torch.maximum,
        "prod": torch.mul,
    }
    function = functions[op]

    def combine(target: Any, value: Any) -> None:
        function(target, value, out=target)

    return combine


def _divide(schedule: Schedule, place: _Place, comm: Comm) -> None:
    """Divide where the result is reduced: everywhere, at the root, or in the rank's own block."""
    at_root = schedule.collective == "reduce" and comm.rank == schedule.root
    if schedule.collective == "all_reduce" or at_root:
        place.result.div_(comm.size)
    elif schedule.collective == "reduce_scatter":
        block = schedule.chunks // schedule.size
        for chunk in np.arange(comm.rank * block, (comm.rank + 1) * block).tolist():
            place.view(chunk).div_(comm.size)
