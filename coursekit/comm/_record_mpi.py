"""Recording of mpi4py: a communicator whose point-to-point calls are written down."""

from __future__ import annotations

from typing import Any, Literal

from mpi4py import MPI


class _Request(MPI.Request):
    """A request that tells when it has been waited for."""

    tape: Any
    event: Any
    original: Any

    def Wait(self, status: Any = None) -> Literal[True]:  # noqa: N802 - MPI's name
        """Wait, and write it down."""
        status = MPI.Status() if status is None else status
        super().Wait(status)
        _came(self.event, status)
        self.tape.waited(self)
        return True

    def wait(self, status: Any = None) -> Any:
        """Wait, and write it down."""
        self.Wait(status)

    def Test(self, status: Any = None) -> bool:  # noqa: N802
        """Test, and write it down when it is over."""
        done = super().Test(status)
        if done:
            self.tape.waited(self)
        return done


class _Comm(MPI.Intracomm):
    """The same communicator, recorded."""

    tape: Any

    def Isend(  # noqa: N802
        self, buf: Any, dest: int, tag: int = 0
    ) -> Any:
        """Start to send."""
        return self._started("send", buf, dest, tag, super().Isend)

    def Irecv(  # noqa: N802
        self, buf: Any, source: int = MPI.ANY_SOURCE, tag: int = MPI.ANY_TAG
    ) -> Any:
        """Start to receive."""
        return self._started("recv", buf, source, tag, super().Irecv)

    def Send(  # noqa: N802
        self, buf: Any, dest: int, tag: int = 0
    ) -> None:
        """Send."""
        event = self.tape.posted("send", _array(buf), dest, tag)
        super().Send(buf, dest, tag)
        self.tape.finished(event)

    def Recv(  # noqa: N802
        self, buf: Any, source: int = MPI.ANY_SOURCE, tag: int = MPI.ANY_TAG, status: Any = None
    ) -> None:
        """Receive."""
        event = self.tape.posted("recv", _array(buf), source, tag)
        status = MPI.Status() if status is None else status
        super().Recv(buf, source, tag, status)
        _came(event, status)
        self.tape.finished(event)

    def Sendrecv(  # noqa: N802
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
        sent = self.tape.posted("send", _array(sendbuf), dest, sendtag)
        came = self.tape.posted("recv", _array(recvbuf), source, recvtag)
        status = MPI.Status() if status is None else status
        super().Sendrecv(sendbuf, dest, sendtag, recvbuf, source, recvtag, status)
        _came(came, status)
        self.tape.finished(sent)
        self.tape.finished(came)

    def _started(self, kind: str, buf: Any, peer: int, tag: int, call: Any) -> Any:
        event = self.tape.posted(kind, _array(buf), peer, tag)
        original = call(buf, peer, tag)
        request = _Request(original)
        request.tape, request.event, request.original = self.tape, event, original
        self.tape.pending(request, event)
        return request


def _came(event: Any, status: Any) -> None:
    """Now it is known from whom a receive from anybody came, and with which tag."""
    if event.kind == "recv":
        event.peer, event.tag = status.Get_source(), status.Get_tag()


def recorded(comm: Any, tape: Any) -> Any:
    """The communicator with its calls written down on the tape."""
    own = _Comm(comm)
    own.tape = tape
    return own


def _array(buf: Any) -> Any:
    """The tensor or array of a buffer as mpi4py takes it: itself, or the first of a list."""
    return buf[0] if isinstance(buf, list | tuple) else buf
