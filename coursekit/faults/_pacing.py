"""On a rank: sends that take the time of their link."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from ._put import Other
from ._table import BITS, BYTES, MESSAGES, Ints, open_table

_LOOK = 0.02


def install(path: str, size: int, rank: int) -> None:
    """Hold back what this process sends through torch's process groups from now on."""
    import torch.distributed as dist

    group: Any = dist.ProcessGroup
    group.send = _Pacer(open_table(path, size, "r+"), rank, group.send).send_method()


class _Pacer:
    def __init__(self, table: Ints, rank: int, call: Any) -> None:
        self._table, self._rank, self._call = table, rank, call
        self._lanes: dict[int, queue.SimpleQueue[_Message]] = {}

    def send_method(self) -> Callable[..., Any]:
        def send(group: Any, tensors: Any, peer: int, tag: int) -> Any:
            import torch.distributed as dist

            target = dist.get_global_rank(group, peer)
            message = _Message(lambda: self._call(group, tensors, peer, tag), tensors[0].nbytes)
            self._lane(target).put(message)
            stuck = partial(self._stuck, target)
            return Other(message, "send", group, tensors[0], target, stuck)

        return send

    def _stuck(self, target: int) -> bool:
        return not self._table[BITS, self._rank, target]

    def _lane(self, target: int) -> queue.SimpleQueue[_Message]:
        if target not in self._lanes:
            lane = self._lanes[target] = queue.SimpleQueue()
            threading.Thread(target=self._serve, args=(target, lane), daemon=True).start()
        return self._lanes[target]

    def _serve(self, target: int, lane: queue.SimpleQueue[_Message]) -> None:
        """One message after the other, as on a link; each arrives when its last byte would."""
        free = 0.0
        while True:
            message = lane.get()
            free = max(free, time.monotonic())
            while self._stuck(target) and not message.given_up:
                time.sleep(_LOOK)
            if message.given_up:
                continue
            bits = max(1, int(self._table[BITS, self._rank, target]))
            free += 8 * message.length / bits
            time.sleep(max(0.0, free - time.monotonic()))
            self._table[BYTES, self._rank, target] += message.length
            self._table[MESSAGES, self._rank, target] += 1
            message.go()


class _Message:
    """A send that is held back: the part of torch's `Work` that callers use."""

    def __init__(self, send: Callable[[], Any], length: int) -> None:
        self.length, self.given_up = length, False
        self._send, self._sent = send, threading.Event()
        self._work: Any = None
        self._error: Exception | None = None

    def go(self) -> None:
        try:
            self._work = self._send()
        except Exception as error:
            self._error = error
        self._sent.set()

    def wait(self, *timeout: Any) -> Any:
        try:
            self._sent.wait()
        except BaseException:
            self.given_up = True
            raise
        if self._error is not None:
            raise self._error
        return self._work.wait(*timeout)

    def is_completed(self) -> bool:
        return self._sent.is_set() and (self._work is None or bool(self._work.is_completed()))
