"""What a rank's own TCP connections say: to whom it sends and gets no acknowledgement."""

from __future__ import annotations

import dataclasses
import os
import socket
import struct
import sys
from collections.abc import Iterator

from ._stand import Stand

# linux/tcp.h, struct tcp_info: eight bytes, then 32-bit counters.
_RETRANSMITS = 2
_UNACKNOWLEDGED, _LAST_ACK = 8 + 4 * 4, 8 + 4 * 12
_PATIENCE_MS = 400


def beside(stand: Stand, addresses: dict[str, int]) -> Stand:
    """Add to a stand the peers that do not answer; `addresses` tells which rank is where."""
    silent = dict(_silent())
    if not silent:
        return stand
    ranks = {addresses[p] for p in silent if p in addresses}
    note = "; ".join(
        f"{told} to {f'rank {addresses[p]}' if p in addresses else p}"
        for p, told in sorted(silent.items())
    )
    note = f"{stand.note}; {note}" if stand.note else note
    return dataclasses.replace(stand, cut=tuple(sorted(ranks)), note=note)


def _silent() -> Iterator[tuple[str, str]]:
    """Peers that have let at least two retransmissions pass, and words for that."""
    if sys.platform != "linux":
        return
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{descriptor}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(descriptor))) as sock:
                if sock.family not in (socket.AF_INET, socket.AF_INET6):
                    continue
                info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
                peer = sock.getpeername()[0]
        except OSError:
            continue
        (waits,) = struct.unpack_from("=I", info, _UNACKNOWLEDGED)
        (since,) = struct.unpack_from("=I", info, _LAST_ACK)
        if info[_RETRANSMITS] >= 2 and waits and since >= _PATIENCE_MS:
            told = f"{info[_RETRANSMITS]} retransmissions, no answer for {since / 1e3:.1f} s"
            yield peer, told
