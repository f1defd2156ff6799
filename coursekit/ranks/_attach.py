"""Ranks that another launcher starts, on any machines, and that dial back here."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from . import _wire
from ._errors import RanksStartError, RanksUsageError
from ._io import Channel
from ._member import Member
from ._secret import admit, new_secret
from ._session import Session
from ._stand import Stand

SECRET_NAME = "COURSEKIT_SECRET"
_JOIN_TIMEOUT = 600.0
_REJOIN_TIMEOUT = 30.0


class AttachLauncher:
    """Listens for agents (``python -m coursekit ranks serve``) and gives each its rank."""

    name = "attach"
    replaces_one = True

    def __init__(self, *, host: str | None, port: int, size: int) -> None:
        self.host, self._size = host or "127.0.0.1", size
        self.secret = os.environ.get(SECRET_NAME) or new_secret()
        self._door = self._listen(port)
        self.port: int = self._door.getsockname()[1]
        self._joined: dict[int, tuple[socket.socket, dict[str, Any]]] = {}
        self._hellos: dict[int, dict[str, Any]] = {}
        self._news = threading.Condition()
        self._refused = 0
        self._open = True
        self._session: Session | None = None
        threading.Thread(target=self._accept, name="coursekit-attach", daemon=True).start()

    def _listen(self, port: int) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        door = socket.socket(family)
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            door.bind((self.host, port))
        except (OSError, OverflowError) as error:
            door.close()
            raise RanksUsageError(
                f"host and port must be this machine's own and free, got {self.host}:{port} "
                f"({error}); try host= the address that `hostname -I` shows, and port=0"
            ) from None
        door.listen(1024)
        return door

    def command(self, launcher: str = "torchrun") -> str:
        """The line that starts the ranks; the secret travels in the environment."""
        serve = f"-m coursekit ranks serve --connect {self.host}:{self.port}"
        lines = {
            "torchrun": f"torchrun --nproc-per-node {self._size} {serve}",
            "srun": f"srun --ntasks {self._size} python {serve}",
            "mpirun": _mpirun_line(self._size, f"-x {SECRET_NAME} python {serve}"),
        }
        if launcher not in lines:
            raise RanksUsageError(
                f"launcher must be one of {', '.join(lines)}, got {launcher!r}; try 'torchrun'"
            )
        return f"{SECRET_NAME}={self.secret} {lines[launcher]}"

    def progress(self) -> str:
        """How many ranks have joined, and which are missing."""
        missing = [r for r in range(self._size) if r not in self._hellos]
        told = f"{self._size - len(missing)} of {self._size} ranks have joined"
        if missing:
            told += f"; missing: {', '.join(map(str, missing[:16]))}"
        return told + (f"; {self._refused} refused (wrong secret)" if self._refused else "")

    # -- agents arrive ------------------------------------------------------

    def _accept(self) -> None:
        while self._open:
            try:
                sock, _ = self._door.accept()
            except OSError:
                return
            threading.Thread(target=self._greet, args=(sock,), daemon=True).start()

    def _greet(self, sock: socket.socket) -> None:
        hello = self._hello(sock) if admit(sock, self.secret) else None
        if hello is None or not 0 <= hello["rank"] < self._size:
            with self._news:
                self._refused += hello is None
            if hello is not None:
                told = f"rank {hello['rank']} is not among the {self._size} ranks of this notebook"
                _order(sock, {"do": "leave", "why": told})
            sock.close()
            return
        with self._news:
            old = self._joined.pop(hello["rank"], None)
            if old is not None:
                old[0].close()
            self._joined[hello["rank"]] = (sock, hello)
            self._hellos[hello["rank"]] = hello
            self._news.notify_all()

    def _hello(self, sock: socket.socket) -> dict[str, Any] | None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.settimeout(10)
        try:
            got = _wire.Reader(sock).read()
        except EOFError:
            return None
        sock.settimeout(None)
        return dict(_wire.loads(got[1])) if got is not None else None

    def gather(
        self,
        ranks: list[int],
        timeout: float | None = None,
        report: Callable[[str], None] | None = None,
    ) -> None:
        """Wait until these ranks have joined; `report` hears of each that comes."""
        until = time.monotonic() + (timeout or _JOIN_TIMEOUT)
        told = ""
        with self._news:
            while not all(r in self._joined for r in ranks):
                if report is not None and told != self.progress():
                    told = self.progress()
                    report(told)
                left = until - time.monotonic()
                self.check()
                if left <= 0:
                    raise RanksStartError(
                        f"all {self._size} ranks must join, but {self.progress()}. Start them "
                        f"with:\n\n  {self.command()}\n\nand check that the port is reachable"
                    )
                self._news.wait(min(left, 0.5))

    def check(self) -> None:
        """Raise when the ranks can no longer come; nobody here can know that."""

    # -- the launcher's part ------------------------------------------------

    def launch(self, session: Session, ranks: list[int], store: dict[str, Any]) -> None:
        """Give each agent its part; agents that served before dial in again."""
        self._session = session
        self.gather(ranks, None if len(ranks) == self._size else _REJOIN_TIMEOUT)
        for r in ranks:
            with self._news:
                sock, hello = self._joined.pop(r)
            session.members[r].channel = Channel(session.hub, r, sock, session)
            config = {
                "rank": r,
                "size": self._size,
                "backend": session.backend,
                "store": store,
                "local_rank": hello["local_rank"],
                "mpi": hello["mpi"],
            }
            session.introduce(r, config)

    def gpus(self) -> tuple[int, str]:
        """How many ranks have a GPU of their own on their machine."""
        served = sum(h["local_rank"] < h["gpus"] for h in self._hellos.values())
        return served, "" if served == self._size else "not every rank has a GPU on its machine"

    def kill(self, session: Session, rank: int) -> None:
        """Have the agent kill its rank."""
        channel = session.members[rank].channel
        if channel is not None:
            channel.order({"do": "kill"})

    def peek(self, member: Member) -> Stand | None:
        """Only the rank's own machine could say more."""
        del member
        return None

    def resume(self, member: Member) -> None:
        """Have the agent send SIGCONT."""
        if member.channel is not None:
            member.channel.order({"do": "resume"})

    def store(self, session: Session, serial: int) -> dict[str, Any]:
        """Rank 0 serves the store, at the address from which it reached the notebook."""
        del session, serial
        return {"serve": self._hellos[0]["address"]}

    def joined(self) -> None:
        """Nothing is to be done: the links are what they are."""

    def before_restart_all(self, session: Session) -> None:
        """The agents dial in again by themselves."""
        del session

    def close(self, session: Session) -> None:
        """Send the agents home."""
        self._open = False
        for m in session.members:
            if m.channel is not None:
                m.channel.order({"do": "leave", "why": "the notebook closed the ranks"})
        with self._news:
            for sock, _ in self._joined.values():
                _order(sock, {"do": "leave", "why": "the notebook closed the ranks"})
                sock.close()
        with contextlib.suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()
        time.sleep(0.02)  # the io thread sends the orders before its channels close


def _mpirun_line(size: int, program: str) -> str:
    """Open MPI's flags are shown unless another MPI is installed here."""
    from ._mpi import find_mpirun, mpirun_command

    try:
        words = mpirun_command(find_mpirun(), size, [program])
    except RanksStartError:
        return f"mpirun -n {size} --oversubscribe {program}"
    return " ".join(["mpirun", *words[1:]])


def _order(sock: socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        _wire.send(sock, _wire.ORDER, _wire.dumps(message), threading.Lock())
