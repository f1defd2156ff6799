"""One thread that reads everything ranks send: messages and output."""

from __future__ import annotations

import contextlib
import functools
import os
import selectors
import socket
import threading
from collections.abc import Callable
from typing import Any, Protocol

from . import _wire

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class Listener(Protocol):
    """Who hears what a channel brings."""

    def on_message(self, channel: Channel, message: dict[str, Any]) -> None:
        """A message of the rank."""

    def on_output(self, channel: Channel, stream: str, data: bytes) -> None:
        """Bytes that the rank wrote to ``stdout`` or ``stderr``."""

    def on_ended(self, channel: Channel, status: int | None, crash: str) -> None:
        """The rank's process has ended; `status` as waitpid gives it, if known."""


class Hub:
    """A selector in a daemon thread; callbacks run in that thread."""

    def __init__(self) -> None:
        self._waiter = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        self._todo: list[Callable[[], None]] = []
        self._open = True
        self._waiter.register(self._wake_read, READ, self._awake)
        self._thread = threading.Thread(target=self._loop, name="coursekit-io", daemon=True)
        self._thread.start()

    def do(self, job: Callable[[], None]) -> None:
        """Run `job` in the thread soon."""
        self._todo.append(job)
        with contextlib.suppress(BlockingIOError, OSError):
            os.write(self._wake_write, b"x")

    def watch(self, fileobj: Any, events: int, callback: Callable[[int], None]) -> None:
        """Call `callback(events)` when `fileobj` is ready; changes an earlier watch."""

        def change() -> None:
            try:
                self._waiter.modify(fileobj, events, callback)
            except KeyError:
                self._waiter.register(fileobj, events, callback)
            except ValueError:
                return

        self.do(change)

    def forget(self, fileobj: Any) -> None:
        """Stop watching; only from inside the thread."""
        with contextlib.suppress(KeyError, ValueError):
            self._waiter.unregister(fileobj)

    def close(self) -> None:
        """End the thread."""

        def stop() -> None:
            self._open = False

        self.do(stop)
        if threading.current_thread() is not self._thread:
            self._thread.join(2)

    def _awake(self, _: int) -> None:
        os.read(self._wake_read, 4096)
        while self._todo:
            self._todo.pop(0)()

    def _loop(self) -> None:
        while self._open:
            for key, events in self._waiter.select():
                key.data(events)
        self._waiter.close()
        os.close(self._wake_read)
        os.close(self._wake_write)


class Channel:
    """The notebook's connection to one rank.

    `pipes` maps the read ends of a local rank's output to their names; a remote
    rank's output comes as frames on the socket.
    """

    def __init__(
        self,
        hub: Hub,
        rank: int,
        sock: socket.socket,
        listener: Listener,
        pipes: dict[int, str] | None = None,
    ) -> None:
        self.rank, self._hub, self._sock, self._listener = rank, hub, sock, listener
        self._pipes = pipes or {}
        sock.setblocking(False)
        self._reader = _wire.Reader(sock)
        self._writer = _wire.Writer(sock, self._want_write)
        self._closed = False
        for pipe in self._pipes:
            os.set_blocking(pipe, False)
            hub.watch(pipe, READ, functools.partial(self._drain_ready, pipe))
        hub.watch(sock, READ, self._ready)

    def send(self, message: dict[str, Any]) -> None:
        """Queue a message; never waits for the rank."""
        self._writer.put(_wire.MESSAGE, _wire.dumps(message))

    def send_parts(self, parts: _wire.Buffers) -> None:
        """Queue a message that was packed once for several ranks."""
        self._writer.put(_wire.MESSAGE, parts)

    def order(self, message: dict[str, Any]) -> None:
        """Queue an order to a remote agent."""
        self._writer.put(_wire.ORDER, _wire.dumps(message))

    def close(self) -> None:
        """Close the connection; its rank ends itself when it sees that."""
        self._hub.do(self._close)

    def finish(self, status: int | None, crash: str) -> None:
        """Report the rank's end after everything that it still wrote."""

        def report() -> None:
            for pipe in list(self._pipes):
                self._drain(pipe)
            self._listener.on_ended(self, status, crash)

        self._hub.do(report)

    def _want_write(self) -> None:
        self._hub.watch(self._sock, READ | WRITE, self._ready)

    def _ready(self, events: int) -> None:
        if self._closed:
            return
        if events & WRITE:
            self._writer.flush()
            if not self._writer.waiting:
                self._hub.watch(self._sock, READ, self._ready)
        if events & READ:
            self._read()

    def _read(self) -> None:
        while not self._closed:
            try:
                got = self._reader.read()
            except EOFError:
                self._hub.forget(self._sock)
                if not self._pipes:
                    self._listener.on_ended(self, None, "")
                return
            if got is None:
                return
            self._take(*got)

    def _take(self, kind: bytes, body: Any) -> None:
        if kind == _wire.MESSAGE:
            # What the rank printed before it answered is in the pipes by now.
            for pipe in list(self._pipes):
                self._drain(pipe)
            self._listener.on_message(self, _wire.loads(body))
        elif kind in (_wire.STDOUT, _wire.STDERR):
            stream = "stdout" if kind == _wire.STDOUT else "stderr"
            self._listener.on_output(self, stream, bytes(body))
        elif kind == _wire.EXIT:
            end = _wire.loads(body)
            self._listener.on_ended(self, end["status"], end["crash"])

    def _drain_ready(self, pipe: int, _: int) -> None:
        self._drain(pipe)

    def _drain(self, pipe: int) -> None:
        stream = self._pipes.get(pipe)
        while stream is not None:
            try:
                data = os.read(pipe, 1 << 16)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._hub.forget(pipe)
                os.close(pipe)
                del self._pipes[pipe]
                return
            self._listener.on_output(self, stream, data)

    def _close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for fileobj in (self._sock, *self._pipes):
            self._hub.forget(fileobj)
        self._sock.close()
        for pipe in self._pipes:
            os.close(pipe)
        self._pipes.clear()
