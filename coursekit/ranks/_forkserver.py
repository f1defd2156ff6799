"""The fork server: a process that has imported torch and forks ranks from itself.

It runs as ``python -m coursekit.ranks._forkserver FD`` in a session of its own,
never touches CUDA, and keeps one thread.  When the notebook's end of the
connection closes, however that came about, it ends every rank and removes every
folder before it exits.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time
from typing import Any

from . import _process

_LENGTH = struct.Struct("<Q")
Message = dict[str, Any]


def send(sock: socket.socket, message: Message, fds: tuple[int, ...] = ()) -> None:
    """Send one message, with file descriptors beside it."""
    payload = pickle.dumps(message)
    socket.send_fds(sock, [_LENGTH.pack(len(payload))], list(fds))
    sock.sendall(payload)


def receive(sock: socket.socket) -> tuple[Message, list[int]]:
    """Receive one message and its file descriptors; EOFError when the other side is gone."""
    head, fds, _, _ = socket.recv_fds(sock, _LENGTH.size, 8)
    if not head:
        raise EOFError
    (size,) = _LENGTH.unpack(head)
    parts = bytearray()
    while len(parts) < size:
        part = sock.recv(size - len(parts))
        if not part:
            raise EOFError
        parts += part
    return pickle.loads(parts), fds


class _Server:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.keys: dict[int, str] = {}
        self.crash_files: dict[int, str] = {}
        self.folders: set[str] = set()

    def serve(self) -> None:
        wake_read, wake_write = os.pipe()
        for descriptor in (wake_read, wake_write):
            os.set_blocking(descriptor, False)
        self.own = [self.sock.fileno(), wake_read, wake_write]
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        with selectors.DefaultSelector() as waiter:
            self.own.append(waiter.fileno())
            waiter.register(self.sock, selectors.EVENT_READ)
            waiter.register(wake_read, selectors.EVENT_READ)
            while True:
                for key, _ in waiter.select():
                    if key.fileobj is self.sock:
                        self._obey()
                    else:
                        with contextlib.suppress(BlockingIOError):
                            os.read(wake_read, 4096)
                self._report_ended()

    def _obey(self) -> None:
        message, fds = receive(self.sock)
        getattr(self, "_do_" + message["do"])(message, fds)

    def _do_adopt(self, message: Message, _: list[int]) -> None:
        self.folders.add(message["folder"])

    def _do_fork(self, message: Message, fds: list[int]) -> None:
        ends = _process.Ends(*fds)
        config = message["config"]
        pid = _process.fork_rank(ends, config, self.own)
        ends.close()
        self.keys[pid] = message["key"]
        self.crash_files[pid] = config["crash_file"]
        send(self.sock, {"event": "forked", "key": message["key"], "pid": pid})

    def _do_exec(self, message: Message, _: list[int]) -> None:
        log = os.path.join(message["folder"], "launcher.log")
        with open(log, "wb") as output:
            child = subprocess.Popen(
                message["argv"],
                env=message["env"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        child.returncode = 0  # reaped here, with every other child
        self.keys[child.pid] = message["key"]
        self.crash_files[child.pid] = log

    def _do_kill(self, message: Message, _: list[int]) -> None:
        if message["pid"] in self.keys:
            _process.end(message["pid"])

    def _do_probe(self, message: Message, _: list[int]) -> None:
        """Ask a throw-away child about the GPUs: CUDA must not be touched here."""
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(write, pickle.dumps(_gpus()))
            os._exit(0)
        os.close(write)
        with open(read, "rb") as pipe:
            payload = pipe.read()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
        facts = pickle.loads(payload) if payload else {"gpus": [], "error": "the probe crashed"}
        send(self.sock, {"event": "probed", "key": message["key"], **facts})

    def _do_forget(self, message: Message, _: list[int]) -> None:
        """End a session: its ranks, what they left running, and its folder."""
        prefix = message["session"]
        pids = [p for p, key in self.keys.items() if key.startswith(prefix)]
        self._end(pids)
        _process.sweep(keep=set(self.keys))
        self.folders.discard(message["folder"])
        _process.remove_tree(message["folder"])
        send(self.sock, {"event": "forgotten", "key": message["key"]})

    def _end(self, pids: list[int]) -> None:
        launchers = [p for p in pids if self.keys[p].endswith("launcher")]
        for pid in launchers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        for pid in set(pids) - set(launchers):
            _process.end(pid)
        self._wait_gone(launchers, 1.0)
        for pid in launchers:
            _process.end(pid)
        self._wait_gone(pids, 2.0)

    def _wait_gone(self, pids: list[int], seconds: float) -> None:
        until = time.monotonic() + seconds
        while any(p in self.keys for p in pids) and time.monotonic() < until:
            self._report_ended()
            time.sleep(0.002)

    def _report_ended(self) -> None:
        for pid, status in _process.reap():
            key = self.keys.pop(pid, None)
            crash = _process.read_crash(self.crash_files.pop(pid, ""))
            if key is not None:
                _process.end_group(pid)
                event = {"event": "ended", "key": key, "pid": pid}
                with contextlib.suppress(OSError):
                    send(self.sock, {**event, "status": status, "crash": crash})

    def close(self) -> None:
        """End everything that this server started."""
        self._end(list(self.keys))
        _process.sweep(keep=set())
        for folder in self.folders:
            _process.remove_tree(folder)


def _gpus() -> Message:
    import torch

    if not torch.cuda.is_available():
        built = torch.version.cuda
        why = "this torch was built without CUDA" if built is None else "no GPU is visible"
        return {"gpus": [], "why": why, "torch": torch.__version__}
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {"gpus": names, "why": "", "torch": torch.__version__}


def main() -> None:
    """Run the fork server on the inherited socket whose number is the first argument."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    _process.become_reaper()
    _process.preload()
    server = _Server(sock)
    try:
        server.serve()
    except (EOFError, OSError, SystemExit):
        pass
    finally:
        server.close()


if __name__ == "__main__":
    main()
