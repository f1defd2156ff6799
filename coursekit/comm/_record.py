"""Recording: what a rank sends, receives and adds, while it really does."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from ._errors import CommError
from ._log import Event, Log
from ._memory import Memories, contiguous, is_array
from ._values import Values

_active = threading.local()


@contextlib.contextmanager
def record(
    buffer: Any, chunks: int | None = None, *, comm: Any = None, output: Any = None
) -> Iterator[Log]:
    """Note every message of the block, and what becomes of the data on this rank.

    Recorded are torch's `send recv isend irecv batch_isend_irecv` on any group, `execute`, and
    sends and receives of buffers (`Send Ssend Bsend Rsend`, their forms with `I`, `Recv Irecv
    Sendrecv Sendrecv_replace`) of the mpi4py communicator that stands at `log.comm`, and of what
    its `Split` and `Dup` make.
    What is added or copied is seen for torch tensors, which MPI takes as well. Of a numpy buffer
    it is concluded from the values before and after. Collectives are not taken apart.

    Parameters
    ----------
    buffer : torch.Tensor or numpy.ndarray
        In which the result will be; contiguous.
    chunks : int, optional
        Into how many chunks it is cut, by default as many as there are ranks. Messages that fit no
        such chunk make the recording cut finer.
    comm : mpi4py.MPI.Comm, optional
        Record this communicator.
    output : torch.Tensor, optional
        A second buffer of the same length, for all_to_all.

    Yields
    ------
    Log
        Return it to the notebook and give all ranks' logs to `merge`.

    Raises
    ------
    CommError
        A recording inside a recording, a buffer in several pieces or of another kind, or no
        process group.

    Examples
    --------
    >>> def work():
    ...     x = torch.full((size,), rank)
    ...     with record(x) as log:
    ...         my_all_reduce(x)
    ...     return log
    >>> merge(ranks.run(work)).schedule
    """
    if getattr(_active, "log", None) is not None:
        raise CommError("a recording cannot begin inside another one; end the first with block")
    for part in (buffer,) if output is None else (buffer, output):
        if not is_array(part):
            raise CommError(
                "a recorded buffer must be a torch tensor or a numpy array, got "
                f"{type(part).__name__}; pass numpy.frombuffer(buffer, dtype)"
            )
        if not contiguous(part):
            raise CommError("a recorded buffer must be contiguous; pass buffer.contiguous()")
    rank, size = _place(comm)
    log = Log(
        rank,
        size,
        int(buffer.reshape(-1).shape[0]),
        int(buffer.nbytes // max(1, buffer.reshape(-1).shape[0])),
        chunks or size,
        has_output=output is not None,
    )
    memories = Memories(*((buffer,) if output is None else (buffer, output)))
    tape = Tape(log, memories, None if hasattr(buffer, "data_ptr") else Values(buffer, log))
    if comm is not None:
        from ._record_mpi import recorded

        log.comm = recorded(comm, tape)
    _active.log = log
    try:
        with _watching(log, memories), _torch_calls(tape):
            yield log
        tape.finish_all()
    finally:
        _active.log = None


def _place(comm: Any) -> tuple[int, int]:
    if comm is not None:
        return comm.Get_rank(), comm.Get_size()
    import torch.distributed as dist

    if not dist.is_initialized():
        raise CommError(
            "record() needs an initialised process group, or comm=; run it on ranks with ranks.run"
        )
    return dist.get_rank(), dist.get_world_size()


def _watching(log: Log, memories: Memories) -> Any:
    from ._watch import Watch

    return Watch(log, memories)


class Tape:
    """Writes messages into the log; knows which request belongs to which event."""

    def __init__(self, log: Log, memories: Memories, values: Values | None) -> None:
        self.log, self._memories, self._values = log, memories, values
        self._thread = threading.get_ident()
        self._open: dict[int, tuple[Event, Any]] = {}
        self._buffers: dict[int, Any] = {}
        log.call_before(self.settle)

    def here(self) -> bool:
        """Whether this is the thread that records."""
        return threading.get_ident() == self._thread

    def posted(self, kind: str, buffer: Any, peer: int, tag: int, context: str = "") -> Event:
        """A message begins."""
        if not contiguous(buffer):
            self.log.note("a message's buffer does not lie in one piece; its bytes are not known")
        place = self._memories.get(buffer)
        blank = self._memories.blank
        if kind == "recv":
            blank.written(place)
        elif blank.inside(place):
            self.log.note("a message carries zeros that are no rank's data; that is not followed")
        if self._values is not None:
            self._values.look()
            if kind == "send" and place.memory:
                self._values.origin(place, buffer)
        event = self.log.add(Event(kind, place, peer=peer, tag=tag, context=context))
        self._buffers[id(event)] = buffer
        return event

    def waits(self, *events: Event | None) -> None:
        """The rank begins to wait for messages."""
        for event in events:
            if event is not None:
                self.log.wait(event)

    def finished(self, event: Event | None) -> None:
        """The message is over."""
        if event is None:
            return
        self.log.finish(event)
        if event.kind == "recv" and self._values is not None:
            self._values.came(event.place, self._buffers[id(event)])
            self._values.look()

    def pending(self, request: Any, event: Event) -> None:
        """The message is over when `request` has been waited for; keeps the request alive."""
        self._open[id(request)] = event, request

    def waiting(self, request: Any) -> None:
        """Somebody begins to wait for a request."""
        if id(request) in self._open:
            self.log.wait(self._open[id(request)][0])

    def waited(self, request: Any) -> None:
        """Somebody has waited for a request."""
        if id(request) not in self._open:
            return
        event = self._open[id(request)][0]
        if event.peer < 0 and hasattr(request, "_source_rank"):
            event.peer = request._source_rank()
        if event.done < 0:
            self.finished(event)

    def settle(self) -> None:
        """MPI's Waitall ends requests without telling: look which have become null."""
        for key, (event, request) in list(self._open.items()):
            if event.done < 0 and hasattr(request, "original") and not request:
                self.waited(self._open[key][1])

    def finish_all(self) -> None:
        """The block ended well: what nobody waited for by name is over too."""
        if self._memories.blank.inside(self._memories.own):
            self.log.note("the buffer was filled with zeros and not written afterwards")
        for event, _ in self._open.values():
            if event.done < 0:
                self.finished(event)
        if self._values is not None:
            self._values.look()
        self.log.end()


@contextlib.contextmanager
def _torch_calls(tape: Tape) -> Iterator[None]:
    """Within it, messages of torch's process groups are written down.

    All of torch's ways to send reach these three methods; `dist.isend` itself cannot be replaced,
    because `P2POp` compares it by identity.
    """
    import torch.distributed as dist

    if not dist.is_available():
        yield
        return
    group: Any = dist.ProcessGroup
    work: Any = dist.distributed_c10d.Work
    # The raw attributes: what getattr gives of them no longer binds to an instance when set back.
    kept = [(c, n, vars(c)[n]) for c, n in ((group, "send"), (group, "recv"))]
    kept += [(c, n, vars(c)[n]) for c, n in ((group, "recv_anysource"), (work, "wait"))]
    group.send = _message(group.send, "send", tape)
    group.recv = _message(group.recv, "recv", tape)
    group.recv_anysource = _from_anybody(group.recv_anysource, tape)
    work.wait = _wait(work.wait, tape)
    try:
        yield
    finally:
        for owner, name, original in kept:
            setattr(owner, name, original)


def _message(call: Any, kind: str, tape: Tape) -> Any:
    def recorded(self: Any, tensors: Any, peer: int, tag: int) -> Any:
        if not tape.here():
            return call(self, tensors, peer, tag)
        event = tape.posted(kind, tensors[0], _global(self, peer), tag)
        request = call(self, tensors, peer, tag)
        tape.pending(request, event)
        return request

    return recorded


def _from_anybody(call: Any, tape: Tape) -> Any:
    def recorded(self: Any, tensors: Any, tag: int) -> Any:
        request = call(self, tensors, tag)
        if tape.here():
            tape.pending(request, tape.posted("recv", tensors[0], -1, tag))
        return request

    return recorded


def _wait(call: Any, tape: Tape) -> Any:
    def waited(self: Any, *args: Any) -> Any:
        if tape.here():
            tape.waiting(self)
        done = call(self, *args)
        if tape.here():
            tape.waited(self)
        return done

    return waited


def _global(group: Any, peer: int) -> int:
    import torch.distributed as dist

    rank: int = dist.get_global_rank(group, peer)
    return rank
