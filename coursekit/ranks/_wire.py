"""Frames between the notebook, its agents and its ranks.

A frame is one kind byte, a length and a payload.  Messages (kind ``M``) are
pickles whose arrays and tensors travel out of band, so that a large result is
received straight into the memory it will live in.

Pickles cross only between a notebook and the ranks it started itself; a remote
agent is let in after a mutual HMAC handshake (see `_attach`).
"""

from __future__ import annotations

import io
import pickle
import socket
import struct
import sys
import threading
import types
from collections import deque
from collections.abc import Callable
from typing import Any

import cloudpickle
import numpy as np

MESSAGE, STDOUT, STDERR, EXIT, ORDER = b"M", b"O", b"E", b"X", b"K"
_HEADER = struct.Struct("<cQ")
_ALIGN = 64
_SOCKET_BUFFER = 4 << 20

Buffers = list[Any]


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """cloudpickle that hands over tensors' memory, and keeps the file names of code."""

    def reducer_override(self, obj: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is not None and type(obj) is torch.Tensor:
            reduced = _reduce_tensor(obj, torch)
            if reduced is not None:
                return reduced
        if type(obj) is types.CodeType:
            # cloudpickle drops the file name, and with it the learner's line in a traceback.
            _, parts = self.dispatch_table[types.CodeType](obj)
            return _build_code, (obj.co_filename, *parts)
        return super().reducer_override(obj)


def _reduce_tensor(tensor: Any, torch: Any) -> Any:
    plain = tensor.layout is torch.strided and not tensor.is_quantized
    if not plain or tensor.device.type == "meta":
        return None
    dense = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    raw = dense.reshape(-1).view(torch.uint8).numpy()
    dtype = str(tensor.dtype).removeprefix("torch.")
    return _build_tensor, (pickle.PickleBuffer(raw), dtype, tuple(tensor.shape))


def _build_tensor(raw: Any, dtype: str, shape: tuple[int, ...]) -> Any:
    import torch

    kind = getattr(torch, dtype)
    view = np.frombuffer(raw, dtype=np.uint8)
    if view.size == 0:
        return torch.empty(shape, dtype=kind)
    if not view.flags.writeable:
        view = view.copy()
    return torch.from_numpy(view).view(kind).reshape(shape)


def _build_code(file: str, *parts: Any) -> types.CodeType:
    return types.CodeType(*parts).replace(co_filename=file)


def pack(value: Any) -> Buffers:
    """Pickle a value into its parts: the pickle first, then the memory of each array."""
    buffers: list[pickle.PickleBuffer] = []
    stream = io.BytesIO()
    _Pickler(stream, protocol=5, buffer_callback=buffers.append).dump(value)
    return [stream.getvalue(), *(b.raw() for b in buffers)]


def seal(value: Any) -> Buffers:
    """Pack a value so that a message can carry it unopened."""
    return [np.frombuffer(part, dtype=np.uint8) for part in pack(value)]


def unseal(parts: Buffers) -> Any:
    """Rebuild a sealed value."""
    return pickle.loads(parts[0], buffers=parts[1:])


def dumps(message: Any) -> Buffers:
    """Return the parts of one message: the head and then every buffer, padded."""
    parts = pack(message)
    sizes = [len(p) for p in parts]
    head = struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes)
    padded: Buffers = []
    for part in (head, *parts):
        padded.append(part)
        padded.append(b"\0" * (-len(part) % _ALIGN))
    return padded


def loads(payload: Any) -> Any:
    """Rebuild a message; arrays share the payload's memory (writable)."""
    view = memoryview(payload)
    (count,) = struct.unpack_from("<I", view)
    sizes = struct.unpack_from(f"<{count}Q", view, 4)
    at = _padded(4 + 8 * count)
    parts = []
    for size in sizes:
        parts.append(view[at : at + size])
        at += _padded(size)
    return pickle.loads(parts[0], buffers=parts[1:])


def _padded(size: int) -> int:
    return size + (-size % _ALIGN)


def frame(kind: bytes, parts: Buffers) -> Buffers:
    """Put the header of a frame before its parts."""
    return [_HEADER.pack(kind, sum(len(p) for p in parts)), *(p for p in parts if len(p))]


def widen(sock: socket.socket) -> None:
    """Ask for socket buffers large enough that a tensor takes few system calls."""
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, _SOCKET_BUFFER)


def send(sock: socket.socket, kind: bytes, parts: Buffers, lock: threading.Lock) -> None:
    """Send one frame on a blocking socket."""
    with lock:
        for part in frame(kind, parts):
            sock.sendall(part)


class Reader:
    """Take frames off a socket, blocking or not."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._head = bytearray(_HEADER.size)
        self._body: np.ndarray[Any, Any] | None = None
        self._kind = b""
        self._got = 0

    def read(self) -> tuple[bytes, Any] | None:
        """Return one frame, or None when a non-blocking socket has no more for now.

        Raises EOFError when the other side is gone.
        """
        while True:
            if self._body is None:
                if not self._fill(memoryview(self._head)):
                    return None
                self._kind, size = _HEADER.unpack(self._head)
                self._body, self._got = np.empty(size, dtype=np.uint8), 0
            body = self._body
            if not self._fill(body.data):
                return None
            self._body, self._got = None, 0
            return self._kind, body

    def _fill(self, target: memoryview) -> bool:
        while self._got < len(target):
            try:
                count = self._sock.recv_into(target[self._got :])
            except BlockingIOError:
                return False
            except OSError as error:
                raise EOFError(str(error)) from None
            if count == 0:
                raise EOFError("the other side closed the connection")
            self._got += count
        self._got = 0
        return True


class Writer:
    """Send frames on a non-blocking socket without ever waiting for the other side."""

    def __init__(self, sock: socket.socket, wake: Callable[[], None]) -> None:
        self._sock = sock
        self._wake = wake
        self._queue: deque[memoryview] = deque()
        self._lock = threading.Lock()

    def put(self, kind: bytes, parts: Buffers) -> None:
        """Queue a frame and send what the socket takes now."""
        with self._lock:
            self._queue.extend(memoryview(p).cast("B") for p in frame(kind, parts))
            self._flush()
            waiting = bool(self._queue)
        if waiting:
            self._wake()

    @property
    def waiting(self) -> bool:
        """Whether bytes wait for the socket to take them."""
        return bool(self._queue)

    def flush(self) -> None:
        """Send on; called when the socket is writable again."""
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        while self._queue:
            try:
                sent = self._sock.send(self._queue[0])
            except BlockingIOError:
                return
            except OSError:
                self._queue.clear()
                return
            if sent == len(self._queue[0]):
                self._queue.popleft()
            else:
                self._queue[0] = self._queue[0][sent:]
