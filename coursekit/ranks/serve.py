"""The agent: what torchrun, srun or mpirun start on each machine for a remote rank.

It imports torch, dials back to the notebook, forks the rank and passes frames
between the two.  When the notebook closes the connection, the rank ends and the
agent dials in again; when nobody answers any more, the agent ends.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import selectors
import signal
import socket
import sys
import tempfile
import time
from typing import Any

from . import _process, _wire
from ._place import Place, ServeError, address, interface, place
from ._secret import enter

_REDIAL = 20.0
_CHUNK = 1 << 16


def main(connect: str, secret: str | None) -> int:
    """Serve one rank until the notebook sends the agent home; returns the exit code."""
    where = address(connect)
    here = place(dict(os.environ))
    if not secret:
        raise ServeError(
            "the notebook's secret must be in COURSEKIT_SECRET, got none; "
            "copy the whole command that the notebook shows (mpirun needs -x COURSEKIT_SECRET)"
        )
    _process.become_reaper()
    _process.preload()
    gpus = _count_gpus()
    with tempfile.TemporaryDirectory(prefix="coursekit-") as folder:
        first = True
        while True:
            sock = _dial(where, secret, first)
            if sock is None:
                return 0
            first = False
            with sock:
                if not _Agent(sock, here, gpus, folder).serve():
                    return 0


def _count_gpus() -> int:
    """Count in a child: a rank forked later must find CUDA untouched."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        import torch

        os.write(write, pickle.dumps(torch.cuda.device_count()))
        os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        payload = pipe.read()
    os.waitpid(pid, 0)
    return int(pickle.loads(payload)) if payload else 0


def _dial(where: tuple[str, int], secret: str, first: bool) -> socket.socket | None:
    until = time.monotonic() + (_REDIAL if first else 3.0)
    error: OSError | None = None
    while time.monotonic() < until:
        try:
            sock = socket.create_connection(where, timeout=5)
        except OSError as refused:
            error = refused
            time.sleep(0.2)
            continue
        if enter(sock, secret):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
        sock.close()
        if first:
            raise ServeError(
                "the notebook refused the secret: COURSEKIT_SECRET must be the one that this "
                "notebook shows; copy its command again"
            )
        return None
    if not first:
        return None
    raise ServeError(
        f"{where[0]}:{where[1]} must be reachable from {socket.gethostname()}, got: {error}; "
        "check the address, that the notebook's Ranks are still open, and the firewall"
    )


class _Agent:
    """One connection: a rank forked from here, and frames passed both ways."""

    def __init__(self, sock: socket.socket, here: Place, gpus: int, folder: str) -> None:
        self.sock, self.here, self.folder = sock, here, folder
        self.ip = sock.getsockname()[0]
        hello = {
            "rank": here.rank,
            "local_rank": here.local_rank,
            "mpi": here.mpi,
            "gpus": gpus,
            "host": socket.gethostname(),
            "address": self.ip,
        }
        sock.sendall(b"".join(_wire.frame(_wire.MESSAGE, _wire.dumps(hello))))
        sock.setblocking(False)
        self.waiter = selectors.DefaultSelector()
        self.reader = _wire.Reader(sock)
        self.writer = _wire.Writer(sock, lambda: None)
        self.pid = 0
        self.control: socket.socket | None = None
        self.to_rank: _wire.Writer | None = None
        self.from_rank: _wire.Reader | None = None
        self.pipes: dict[int, bytes] = {}
        self.again = True

    def serve(self) -> bool:
        """Pass frames until the notebook hangs up; whether to dial in again."""
        self.waiter.register(self.sock, selectors.EVENT_READ)
        try:
            while self._turn():
                pass
        finally:
            self._end_rank()
            self.waiter.close()
        return self.again

    def _turn(self) -> bool:
        self._aim()
        for key, _ in self.waiter.select(0.05):
            if key.fileobj is self.sock:
                self.writer.flush()
                if not self._from_notebook():
                    return False
            elif key.fileobj is self.control:
                self._from_control()
            elif isinstance(key.fileobj, int):
                self._from_pipe(key.fileobj)
        self._see_end()
        return True

    def _aim(self) -> None:
        """Wait to write only where something waits; do not read ahead of the notebook."""
        full = self.writer.waiting
        self.waiter.modify(self.sock, selectors.EVENT_READ | (selectors.EVENT_WRITE * full))
        if self.control is not None and self.to_rank is not None:
            more = selectors.EVENT_WRITE * self.to_rank.waiting
            self.waiter.modify(self.control, selectors.EVENT_READ | more)

    def _from_notebook(self) -> bool:
        while True:
            try:
                got = self.reader.read()
            except EOFError:
                return False
            if got is None:
                return True
            kind, body = got
            if kind == _wire.ORDER:
                if not self._obey(_wire.loads(body)):
                    return False
            elif self.to_rank is None:
                self._start(_wire.loads(body)["config"])
            else:
                self.to_rank.put(kind, [body])

    def _obey(self, order: dict[str, Any]) -> bool:
        if order["do"] == "leave":
            print(f"rank {self.here.rank} ends: {order['why']}", file=sys.stderr)
            self.again = False
            self._let_finish()
            return False
        if self.pid:
            if order["do"] == "kill":
                _process.end(self.pid)
            else:
                os.kill(self.pid, signal.SIGCONT)
        return True

    def _let_finish(self) -> None:
        if not self.here.mpi or not self.pid or self.to_rank is None:
            return
        self.to_rank.put(_wire.MESSAGE, _wire.dumps({"kind": "finish"}))
        until = time.monotonic() + 1.5
        while self.pid and time.monotonic() < until:
            self._see_end()
            time.sleep(0.01)

    def _start(self, config: dict[str, Any]) -> None:
        ours, theirs = socket.socketpair()
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        ends = _process.Ends(theirs.detach(), out_write, err_write)
        self.crash = os.path.join(self.folder, f"crash-{time.monotonic_ns()}")
        own = [self.sock.fileno(), ours.fileno(), out_read, err_read]
        own.append(self.waiter.fileno())
        self.pid = _process.fork_rank(ends, {**config, **self._local_part()}, own)
        ends.close()
        ours.setblocking(False)
        self.control = ours
        self.to_rank = _wire.Writer(ours, lambda: None)
        self.from_rank = _wire.Reader(ours)
        self.pipes = {out_read: _wire.STDOUT, err_read: _wire.STDERR}
        for pipe in self.pipes:
            os.set_blocking(pipe, False)
            self.waiter.register(pipe, selectors.EVENT_READ)
        self.waiter.register(ours, selectors.EVENT_READ)

    def _local_part(self) -> dict[str, Any]:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        own = interface(self.ip)
        gloo = {"GLOO_SOCKET_IFNAME": own} if own else {}
        return {
            "env": {**gloo, **os.environ},
            "path": [p or os.getcwd() for p in sys.path],
            "cwd": os.getcwd(),
            "folder": self.folder,
            "crash_file": self.crash,
            "threads": max(1, cores // self.here.local_size),
            "crowded": self.here.local_size > cores,
        }

    def _from_control(self) -> None:
        if self.to_rank is not None:
            self.to_rank.flush()
        while self.from_rank is not None and self.control is not None:
            try:
                got = self.from_rank.read()
            except EOFError:
                self.waiter.unregister(self.control)
                self.control.close()
                self.control = None
                return
            if got is None:
                return
            # What the rank printed before it answered goes first.
            for pipe in list(self.pipes):
                self._from_pipe(pipe)
            self.writer.put(got[0], [got[1]])

    def _from_pipe(self, pipe: int) -> None:
        while pipe in self.pipes:
            try:
                data = os.read(pipe, _CHUNK)
            except BlockingIOError:
                return
            if data:
                self.writer.put(self.pipes[pipe], [data])
            else:
                self.waiter.unregister(pipe)
                os.close(pipe)
                del self.pipes[pipe]

    def _see_end(self) -> None:
        for pid, status in _process.reap():
            if pid != self.pid:
                continue
            _process.end_group(pid)
            if self.control is not None:
                self._from_control()
            for pipe in list(self.pipes):
                self._from_pipe(pipe)
            end = {"status": status, "crash": _process.read_crash(self.crash)}
            self.writer.put(_wire.EXIT, _wire.dumps(end))
            self.pid = 0

    def _end_rank(self) -> None:
        if self.pid:
            _process.end(self.pid)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
        _process.sweep(keep=set())
        if self.control is not None:
            self.control.close()
        for pipe in self.pipes:
            os.close(pipe)
