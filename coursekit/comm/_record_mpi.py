"""Recording of mpi4py: a communicator whose point-to-point calls are written down."""

# ruff: noqa: N802 - MPI's names

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from mpi4py import MPI

from ._errors import CommError
from ._mpi_buffer import cut, like, part

if TYPE_CHECKING:
    from ._record import Tape

Call = Callable[[Any, int, int], Any]
_UNFOLLOWED = re.compile(
    "[Ii]?([Aa]ll|[Bb]cast|[Ee]xscan|[Gg]ather|[Rr]educe|[Ss]can|[Ss]catter)\\w*"
    "|i?[bs]?send|i?recv|sendrecv|Isendrecv\\w*|I?[Mm]probe|improbe"
    "|(?!Barrier)\\w+_init|Create_(cart|graph|dist_graph|group|intercomm)\\w*|Spawn\\w*|Shrink"
)


class _Request(MPI.Request):
    """A request that tells when it has been waited for."""

    comm: _Comm
    event: Any
    original: Any

    def Wait(self, status: Any = None) -> Literal[True]:
        """Wait, and write it down."""
        status = MPI.Status() if status is None else status
        self.comm.tape.waits(self.event)
        super().Wait(status)
        self._over(status)
        return True

    def wait(self, status: Any = None) -> Any:
        """Wait, and write it down."""
        self.Wait(status)

    def Test(self, status: Any = None) -> bool:
        """Test, and write it down when it is over."""
        status = MPI.Status() if status is None else status
        done = super().Test(status)
        if done:
            self._over(status)
        return done

    def _over(self, status: Any) -> None:
        if self.event.done < 0:
            self.comm.came(self.event, status)
            self.comm.tape.waited(self)


class _Comm(MPI.Intracomm):
    """The same communicator, recorded; `ranks` are its own in the one that is recorded."""

    tape: Tape
    ranks: Sequence[int]
    context: str
    children: int

    def __getattribute__(self, name: str) -> Any:
        if _UNFOLLOWED.fullmatch(name):
            self._unfollowed(name)
        return super().__getattribute__(name)

    def Send(self, buf: Any, dest: int, tag: int = 0) -> None:
        """Send."""
        self._send(super().Send, buf, dest, tag)

    def Ssend(self, buf: Any, dest: int, tag: int = 0) -> None:
        """Send; it is over when the receiver has begun."""
        self._send(super().Ssend, buf, dest, tag)

    def Rsend(self, buf: Any, dest: int, tag: int = 0) -> None:
        """Send to a receive that is posted."""
        self._send(super().Rsend, buf, dest, tag)

    def Bsend(self, buf: Any, dest: int, tag: int = 0) -> None:
        """Send from MPI's own memory."""
        self._kept(buf, dest, tag)
        super().Bsend(buf, dest, tag)

    def Isend(self, buf: Any, dest: int, tag: int = 0) -> Any:
        """Start to send."""
        return self._started("send", super().Isend, buf, dest, tag)

    def Issend(self, buf: Any, dest: int, tag: int = 0) -> Any:
        """Start to send; it is over when the receiver has begun."""
        return self._started("send", super().Issend, buf, dest, tag)

    def Irsend(self, buf: Any, dest: int, tag: int = 0) -> Any:
        """Start to send to a receive that is posted."""
        return self._started("send", super().Irsend, buf, dest, tag)

    def Ibsend(self, buf: Any, dest: int, tag: int = 0) -> Any:
        """Start to send from MPI's own memory."""
        self._kept(buf, dest, tag)
        return super().Ibsend(buf, dest, tag)

    def Irecv(self, buf: Any, source: int = MPI.ANY_SOURCE, tag: int = MPI.ANY_TAG) -> Any:
        """Start to receive."""
        return self._started("recv", super().Irecv, buf, source, tag)

    def Recv(
        self, buf: Any, source: int = MPI.ANY_SOURCE, tag: int = MPI.ANY_TAG, status: Any = None
    ) -> None:
        """Receive."""
        status = MPI.Status() if status is None else status
        event = self._posted("recv", buf, source, tag)
        self.tape.waits(event)
        super().Recv(buf, source, tag, status)
        self.came(event, status)
        self.tape.finished(event)

    def Sendrecv(
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = MPI.ANY_SOURCE,
        recvtag: int = MPI.ANY_TAG,
        status: Any = None,
    ) -> None:
        """Send and receive at once."""
        status = MPI.Status() if status is None else status
        sent = self._posted("send", sendbuf, dest, sendtag)
        came = self._posted("recv", recvbuf, source, recvtag)
        self.tape.waits(sent, came)
        super().Sendrecv(sendbuf, dest, sendtag, recvbuf, source, recvtag, status)
        self.came(came, status)
        self.tape.finished(sent)
        self.tape.finished(came)

    def Sendrecv_replace(
        self,
        buf: Any,
        dest: int,
        sendtag: int = 0,
        source: int = MPI.ANY_SOURCE,
        recvtag: int = MPI.ANY_TAG,
        status: Any = None,
    ) -> None:
        """Send and receive at once; what comes lands beside the buffer and is copied into it."""
        own, exact = part(buf)
        if not exact:
            self._unfollowed("Sendrecv_replace of a datatype with gaps")
            super().Sendrecv_replace(buf, dest, sendtag, source, recvtag, status)
            return
        status = MPI.Status() if status is None else status
        landing = like(own)
        into = [landing, int(landing.nbytes), MPI.BYTE]
        self.Sendrecv(buf, dest, sendtag, into, source, recvtag, status)
        count = status.Get_count(MPI.BYTE)
        cut(own, 0, count)[...] = cut(landing, 0, count)

    def Split(self, color: int = 0, key: int = 0) -> Any:
        """Make a recorded communicator of the ranks of one color."""
        return self._child(super().Split(color, key))

    def Split_type(self, split_type: int, key: int = 0, info: MPI.Info = MPI.INFO_NULL) -> Any:
        """Make a recorded communicator of the ranks that share something."""
        return self._child(super().Split_type(split_type, key, info))

    def Create(self, group: MPI.Group) -> Any:
        """Make a recorded communicator of a group's ranks."""
        return self._child(super().Create(group))

    def Dup(self, info: MPI.Info | None = None) -> Any:
        """Make a recorded communicator of the same ranks."""
        return self._child(super().Dup(info))

    def Dup_with_info(self, info: MPI.Info) -> Any:
        """Make a recorded communicator of the same ranks."""
        return self._child(super().Dup_with_info(info))

    def Clone(self) -> Any:
        """Make a recorded communicator of the same ranks."""
        return self._child(super().Clone())

    def Idup(self, info: MPI.Info | None = None) -> Any:
        """Refuse: the ranks of a communicator that is not ready are not known."""
        raise CommError("a recorded communicator has no Idup; use Dup")

    def came(self, event: Any, status: MPI.Status) -> None:
        """Now it is known from whom a receive from anybody came, and with which tag."""
        source = status.Get_source()
        if event is not None and event.kind == "recv" and source in range(len(self.ranks)):
            event.peer, event.tag = self.ranks[source], status.Get_tag()

    def _send(self, call: Call, buf: Any, dest: int, tag: int) -> None:
        event = self._posted("send", buf, dest, tag)
        self.tape.waits(event)
        call(buf, dest, tag)
        self.tape.finished(event)

    def _started(self, kind: str, call: Call, buf: Any, peer: int, tag: int) -> Any:
        event = self._posted(kind, buf, peer, tag)
        original = call(buf, peer, tag)
        if event is None:
            return original
        request = _Request(original)
        request.comm, request.event, request.original = self, event, original
        self.tape.pending(request, event)
        return request

    def _kept(self, buf: Any, dest: int, tag: int) -> None:
        """MPI keeps a copy of what is sent, and no rank ever waits for it."""
        event = self._posted("send", buf, dest, tag)
        if event is not None:
            self.tape.pending(event, event)

    def _posted(self, kind: str, buf: Any, peer: int, tag: int) -> Any:
        """Write down that a message begins; nothing where there is no such rank (`PROC_NULL`)."""
        if peer != MPI.ANY_SOURCE and peer not in range(len(self.ranks)):
            return None
        own, exact = part(buf)
        if not exact:
            self._unfollowed("a datatype with gaps")
        source = -1 if peer == MPI.ANY_SOURCE else self.ranks[peer]
        return self.tape.posted(kind, own, source, -1 if tag == MPI.ANY_TAG else tag, self.context)

    def _unfollowed(self, what: str) -> None:
        self.tape.log.note(f"{what} of mpi4py is not followed; its bytes or messages are not known")

    def _child(self, made: Any) -> Any:
        """Record what was made too; all of its ranks make it as their communicator's same child."""
        self.children += 1
        if made == MPI.COMM_NULL:
            return made
        local = made.Get_group().Translate_ranks(None, self.Get_group())
        own = made if isinstance(made, _Comm) else _Comm(made)
        own._begin(self.tape, [self.ranks[r] for r in local], f"{self.context}/{self.children}")
        return own

    def _begin(self, tape: Tape, ranks: Sequence[int], context: str) -> None:
        self.tape, self.ranks, self.context, self.children = tape, ranks, context, 0


def recorded(comm: MPI.Intracomm, tape: Tape) -> MPI.Intracomm:
    """The communicator with its calls written down on the tape."""
    own = _Comm(comm)
    own._begin(tape, range(comm.Get_size()), "")
    return own
