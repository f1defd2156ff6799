"""A switch between TUN devices: it holds every packet back for the time that its link takes.

Python's own modules only, for the keeper runs it. Rates, delays and losses are read from the
table that it shares with the notebook, and what passes is counted there.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import mmap
import os
import random
import select
import struct
import time

MTU = 9000
_SET_INTERFACE, _TUN, _NO_INFO = 0x400454CA, 1, 0x1000
_QUEUE = 4 << 20
_AT_ONCE = 32


def open_tun(name: str) -> int:
    """Make a TUN device in the network namespace of this process."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        request = struct.pack("16sH22x", name.encode(), _TUN | _NO_INFO)
        fcntl.ioctl(descriptor, _SET_INTERFACE, request)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


class Switch:
    """The devices of all ranks, the table, and the packets on their way."""

    def __init__(self, devices: list[int], path: str) -> None:
        self.devices, self.size = devices, len(devices)
        with open(path, "r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)
        whole, square = memoryview(self._memory).cast("q"), self.size**2
        tables = [whole[k * square : (k + 1) * square] for k in range(5)]
        self.bytes, self.packets, self.bits, self.late, self.loss = tables
        self.free = [0.0] * square
        self.waiting: list[tuple[float, int, int, bytes]] = []
        self.serial = 0

    def serve(self) -> None:
        """Pass packets on, for ever."""
        rank_of = {device: rank for rank, device in enumerate(self.devices)}
        while True:
            # Unlike poll, select does not round up to whole milliseconds.
            ready, _, _ = select.select(self.devices, [], [], self.patience())
            for device in ready:
                self.take(rank_of[device])
            self.give()

    def patience(self) -> float | None:
        """Seconds until the next packet is due."""
        if not self.waiting:
            return None
        return max(0.0, self.waiting[0][0] - time.monotonic())

    def take(self, source: int) -> None:
        """Read what a rank has sent and work out when it arrives."""
        for _ in range(_AT_ONCE):
            try:
                packet = os.read(self.devices[source], MTU + 64)
            except OSError:
                return
            if len(packet) >= 20 and packet[0] >> 4 == 4 and 1 <= packet[19] <= self.size:
                self._queue(source, packet[19] - 1, packet)

    def _queue(self, source: int, target: int, packet: bytes) -> None:
        link, now = source * self.size + target, time.monotonic()
        bits, begins = self.bits[link], max(now, self.free[link])
        if not bits or (begins - now) * bits / 8 > _QUEUE:
            return
        self.bytes[link] += len(packet)
        self.packets[link] += 1
        self.free[link] = ends = begins + 8 * len(packet) / bits
        if self.loss[link] and random.random() * 1e6 < self.loss[link]:
            return
        self.serial += 1
        due = ends + self.late[link] / 1e6
        heapq.heappush(self.waiting, (due, self.serial, target, packet))

    def give(self) -> None:
        """Hand over what is due."""
        now = time.monotonic()
        while self.waiting and self.waiting[0][0] <= now:
            _, _, target, packet = heapq.heappop(self.waiting)
            with contextlib.suppress(OSError):
                os.write(self.devices[target], packet)
