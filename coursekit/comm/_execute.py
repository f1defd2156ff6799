"""Running a schedule: what it says, on real ranks, with any backend."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from coursekit.schedule import Schedule

from ._comm import Comm, Request
from ._errors import CommError
from ._place import Place
from ._program import Leg, Step, program

OPS = ("sum", "avg", "min", "max", "prod")
SEGMENT = 2 << 20
WINDOW = 2
_END = Step((), (), ())

Combine = Callable[[Any, Any], None]


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
    A message that is added to a chunk travels in segments of 2 MiB, and each is added while the
    next ones travel; a chunk that is also sent in that step has to wait for the whole message.
    Beside the buffer it takes at most two segments, or one message, for each message that is
    added or does not lie in one piece.
    """
    check(schedule, comm, buffer, op)
    place = Place(schedule, buffer, output)
    _run(comm, place, _combiner(op), program(schedule, comm.rank))
    if op == "avg":
        _divide(schedule, place, comm)
    return place.result


def check(schedule: Schedule, comm: Comm, buffer: Any, op: str) -> None:
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


@dataclass
class _Incoming:
    """A message that lands beside the buffer: unpacked or added after the step's waits."""

    chunks: tuple[int, ...]
    landed: Any
    reduce: bool


@dataclass
class _Stream:
    """A reduction that arrives in segments: each is added while the next ones travel."""

    peer: int
    posted: deque[tuple[Request, Any, Any]]
    rest: deque[Any]


@dataclass
class _Arrivals:
    """The receives of one step, posted."""

    requests: list[Request] = field(default_factory=list)
    later: list[_Incoming] = field(default_factory=list)
    streams: list[_Stream] = field(default_factory=list)


def _run(comm: Comm, place: Place, combine: Combine, steps: Sequence[Step]) -> None:
    coming: _Arrivals | None = None
    for step, following in zip(steps, (*steps[1:], _END), strict=False):
        arrivals = _post(comm, place, step) if coming is None else coming
        moved = [place.view(move.chunk).clone() for move in step.moves]
        sent = _send(comm, place, step)
        coming = _post(comm, place, following) if _may_post(place, following, arrivals) else None
        for stream in arrivals.streams:
            _drain(comm, stream, combine)
        for request in (*arrivals.requests, *sent):
            request.wait()
        for move, value in zip(step.moves, moved, strict=True):
            _arrive(place, combine, move.into, value, move.reduce)
        for incoming in arrivals.later:
            _unpack(place, combine, incoming)


def _send(comm: Comm, place: Place, step: Step) -> list[Request]:
    return [
        comm.isend(piece, leg.peer)
        for leg in step.sends
        for piece in _segments(place.packed(leg.chunks), leg.reduce)
    ]


def _may_post(place: Place, step: Step, running: _Arrivals) -> bool:
    """Whether a step's receives may be posted while the step before runs.

    Its memory must be free (`step.ahead`), what lands beside the buffer must be small, and every
    receive of the running step must be posted: messages of a peer arrive in order.
    """
    if not step.ahead or any(stream.rest for stream in running.streams):
        return False
    for leg in step.receives:
        piece = place.piece(leg.chunks)
        if piece is None or (leg.reduce and piece.nbytes > WINDOW * SEGMENT):
            return False
    return True


def _post(comm: Comm, place: Place, step: Step) -> _Arrivals:
    arrivals = _Arrivals()
    for leg in step.receives:
        piece = place.piece(leg.chunks)
        if leg.early and piece is not None:
            arrivals.streams.append(_open(comm, piece, leg.peer))
        elif leg.reduce or piece is None:
            landed = place.beside(leg.chunks)
            arrivals.later.append(_Incoming(leg.chunks, landed, leg.reduce))
            arrivals.requests += _receive(comm, landed, leg)
        else:
            arrivals.requests += _receive(comm, piece, leg)
    return arrivals


def _receive(comm: Comm, buffer: Any, leg: Leg) -> list[Request]:
    return [comm.irecv(piece, leg.peer) for piece in _segments(buffer, leg.reduce)]


def _segments(value: Any, reduce: bool) -> Sequence[Any]:
    """Both ends cut a message that is added in the same way; what is copied goes as one."""
    if not reduce or value.nbytes <= SEGMENT:
        return (value,)
    pieces: Sequence[Any] = value.split(SEGMENT // value.element_size())
    return pieces


def _open(comm: Comm, whole: Any, peer: int) -> _Stream:
    stream = _Stream(peer, deque(), deque(_segments(whole, True)))
    for _ in range(min(WINDOW, len(stream.rest))):
        _post_next(comm, stream, stream.rest[0].new_empty(stream.rest[0].numel()))
    return stream


def _post_next(comm: Comm, stream: _Stream, landing: Any) -> None:
    piece = stream.rest.popleft()
    part = landing[: piece.numel()]
    stream.posted.append((comm.irecv(part, stream.peer), piece, part))


def _drain(comm: Comm, stream: _Stream, combine: Combine) -> None:
    while stream.posted:
        request, piece, landed = stream.posted.popleft()
        request.wait()
        combine(piece, landed)
        if stream.rest:
            _post_next(comm, stream, landed)


def _unpack(place: Place, combine: Combine, incoming: _Incoming) -> None:
    at = 0
    for chunk in incoming.chunks:
        length = place.view(chunk).numel()
        _arrive(place, combine, chunk, incoming.landed[at : at + length], incoming.reduce)
        at += length


def _arrive(place: Place, combine: Combine, chunk: int, value: Any, reduce: bool) -> None:
    target = place.view(chunk)
    if reduce:
        combine(target, value)
    else:
        target.copy_(value)


def _combiner(op: str) -> Combine:
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


def _divide(schedule: Schedule, place: Place, comm: Comm) -> None:
    """Divide where the result is reduced: everywhere, at the root, or in the rank's own block."""
    at_root = schedule.collective == "reduce" and comm.rank == schedule.root
    if schedule.collective == "all_reduce" or at_root:
        place.result.div_(comm.size)
    elif schedule.collective == "reduce_scatter":
        block = schedule.chunks // schedule.size
        for chunk in range(comm.rank * block, (comm.rank + 1) * block):
            place.view(chunk).div_(comm.size)
