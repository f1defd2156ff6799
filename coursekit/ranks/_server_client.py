"""The notebook's side of the fork server: one for each process that starts ranks."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ._errors import RanksStartError
from ._forkserver import receive, send
from ._process import remove_tree

Event = dict[str, Any]
_ROOT = str(Path(__file__).parents[2])


class ForkServer:
    """Starts ranks by asking a process that has imported torch already to fork."""

    def __init__(self) -> None:
        self._sock, theirs = socket.socketpair()
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        paths = [_ROOT, *filter(None, [os.environ.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
        program = "from coursekit.ranks._forkserver import main; main()"
        command = [sys.executable, "-c", program, str(theirs.fileno())]
        with theirs:
            self._child = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                env=environment,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self.owner = os.getpid()
        self._lock = threading.Lock()
        self._serial = itertools.count()
        self._handlers: dict[str, Callable[[Event], None]] = {}
        self._gone = threading.Event()
        threading.Thread(target=self._listen, name="coursekit-forkserver", daemon=True).start()

    @property
    def alive(self) -> bool:
        """Whether this process's server still runs."""
        return self.owner == os.getpid() and not self._gone.is_set()

    @property
    def pid(self) -> int:
        """Process id of the server."""
        return self._child.pid

    def new_folder(self) -> str:
        """Make a private folder for one session; the server removes it in any case.

        It is in memory where the system has such a place.
        """
        shm = Path("/dev/shm")
        base = shm if os.access(shm, os.W_OK) else None
        folder = tempfile.mkdtemp(prefix="coursekit-", dir=base)
        self._send({"do": "adopt", "folder": folder})
        return folder

    def fork(
        self,
        key: str,
        config: dict[str, Any],
        fds: tuple[int, ...],
        on_event: Callable[[Event], None],
    ) -> None:
        """Fork a rank that takes over `fds`; `on_event` hears "forked" and "ended"."""
        self._handlers[key] = on_event
        self._send({"do": "fork", "key": key, "config": config}, fds)

    def execute(
        self,
        key: str,
        argv: list[str],
        env: dict[str, str],
        folder: str,
        on_event: Callable[[Event], None],
    ) -> None:
        """Run a launcher such as mpirun under the server, so that it ends with it."""
        self._handlers[key] = on_event
        job = {"argv": argv, "env": env, "folder": folder}
        self._send({"do": "exec", "key": key, **job})

    def kill_pid(self, pid: int) -> None:
        """Kill one of the server's children; its end is reported as an event."""
        self._send({"do": "kill", "pid": pid})

    def forget(self, session: str, folder: str) -> None:
        """End a session and wait until nothing is left of it."""
        job = {"do": "forget", "session": session, "folder": folder}
        with contextlib.suppress(RanksStartError):
            self._ask(job, timeout=5.0)
        # The server may have died, and the folder with nobody to remove it.
        remove_tree(folder)

    def gpus(self) -> Event:
        """GPU names, and why there are none; CUDA is not touched in this process."""
        return self._ask({"do": "probe"}, timeout=120.0)

    def stop(self) -> None:
        """End the server and all that it started."""
        self._gone.set()
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        try:
            self._child.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(self._child.pid, signal.SIGKILL)
            self._child.wait(5)

    def abandon(self) -> None:
        """Close this process's copy of the connection without ending the server."""
        self._gone.set()
        self._sock.close()

    def _ask(self, message: Event, timeout: float) -> Event:
        key = f"ask{next(self._serial)}"
        answer: list[Event] = []
        arrived = threading.Event()

        def keep(event: Event) -> None:
            answer.append(event)
            arrived.set()

        self._handlers[key] = keep
        self._send({**message, "key": key})
        arrived.wait(timeout)
        self._handlers.pop(key, None)
        if not answer or answer[0]["event"] == "lost":
            raise RanksStartError(
                f"the fork server (pid {self.pid}) did not answer; make the ranks again, "
                "and look at the kernel's terminal for why it ended"
            )
        return answer[0]

    def _send(self, message: Event, fds: tuple[int, ...] = ()) -> None:
        try:
            with self._lock:
                send(self._sock, message, fds)
        except OSError as error:
            raise RanksStartError(
                f"the fork server (pid {self.pid}) has ended: {error}; make the ranks again"
            ) from None

    def _listen(self) -> None:
        while True:
            try:
                event, _ = receive(self._sock)
            except (EOFError, OSError):
                break
            handler = self._handlers.get(event["key"])
            if event["event"] == "ended":
                self._handlers.pop(event["key"], None)
            if handler is not None:
                handler(event)
        self._gone.set()
        for key, handler in list(self._handlers.items()):
            handler({"event": "lost", "key": key})


_server: ForkServer | None = None
_starting = threading.Lock()


def fork_server() -> ForkServer:
    """Return this process's fork server, started if need be."""
    global _server
    with _starting:
        if _server is None or not _server.alive:
            if _server is None or _server.owner != os.getpid():
                atexit.register(_stop_server)
            _server = ForkServer()
        return _server


def _forget_server() -> None:
    """In a forked child: let go of the server, or it would outlive the notebook with us."""
    if _server is not None:
        _server.abandon()


os.register_at_fork(after_in_child=_forget_server)


def _stop_server() -> None:
    if _server is not None and _server.alive:
        _server.stop()
