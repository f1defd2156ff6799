"""What the kernel counted on the sockets between ranks, by `ss` of iproute2."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Ends = tuple[str, str]


@dataclass(frozen=True)
class Counters:
    """One end of a TCP connection: payload bytes, each byte once however often it was sent."""

    sent: int
    received: int


@dataclass(frozen=True)
class Reading:
    """The TCP sockets of one rank, by (own address, peer's address).

    `problem` says why there are none to be had; `mpi` whether the rank is part of an MPI job.
    """

    pid: int
    sockets: dict[Ends, Counters] = field(default_factory=dict)
    problem: str = ""
    mpi: bool = False


def read_here() -> Reading:
    """On a rank: read the counters of its own sockets."""
    pid, mpi = os.getpid(), _in_mpi()
    program = shutil.which("ss", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if program is None or not os.path.isdir("/proc/self/fd"):
        return Reading(pid, problem="the command ss was not found", mpi=mpi)
    told = subprocess.run([program, "-tinHe"], capture_output=True, text=True, check=False)
    if told.returncode:
        return Reading(pid, problem=f"ss said: {told.stderr.strip()[:300]}", mpi=mpi)
    return Reading(pid, dict(parse(told.stdout, _inodes(), _network(), _store_port())), mpi=mpi)


def parse(
    text: str, inodes: set[str], network: str = "", store_port: int | None = None
) -> Iterator[tuple[Ends, Counters]]:
    """The sockets with one of `inodes` in what ``ss -tinHe`` printed; the store's are left out.

    `network` sets loopback addresses of different machines apart.
    """
    for line in re.sub(r"\n\s+", " ", text).splitlines():
        words = line.split()
        inode = _number(line, r"\bino:(\d+)")
        if len(words) < 5 or str(inode) not in inodes:
            continue
        own, peer = (_address(word, network) for word in words[3:5])
        if str(store_port) in (own.rpartition(":")[2], peer.rpartition(":")[2]):
            continue
        yield (own, peer), _counters(line)


def _counters(line: str) -> Counters:
    sent = _number(line, r"\bbytes_sent:(\d+)") - _number(line, r"\bbytes_retrans:(\d+)")
    # Linux before 4.19 has only bytes_acked, which trails until the last acknowledgement is there.
    sent = sent or _number(line, r"\bbytes_acked:(\d+)")
    return Counters(sent, _number(line, r"\bbytes_received:(\d+)"))


def _number(line: str, pattern: str) -> int:
    found = re.search(pattern, line)
    return int(found[1]) if found else 0


def _address(word: str, network: str) -> str:
    host, _, port = word.rpartition(":")
    host = host.strip("[]").split("%")[0].removeprefix("::ffff:")
    local = host.startswith("127.") or host == "::1"
    return f"{network if local else ''} {host}:{port}"


def _inodes() -> set[str]:
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            name = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            continue
        if name.startswith("socket:["):
            found.add(name[8:-1])
    return found


def _network() -> str:
    return f"{socket.gethostname()} {os.readlink('/proc/self/ns/net')}"


def _store_port() -> int | None:
    """The port of the store through which ranks meet: its messages are nobody's collective."""
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import _get_default_store

    if not dist.is_initialized():
        return None
    store = _get_default_store()
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return getattr(store, "port", None)


def _in_mpi() -> bool:
    import sys

    mpi = sys.modules.get("mpi4py.MPI")
    return mpi is not None and bool(mpi.Is_initialized())


def between(before: Sequence[Reading], after: Sequence[Reading]) -> tuple[Ints, Ints]:
    """Bytes of rank i for rank j, as i's kernel sent them and as j's received them: K x K each.

    A connection that was not there before started at 0. Those with an end elsewhere do not count.
    """
    size = len(after)
    owner = {ends: rank for rank, reading in enumerate(after) for ends in reading.sockets}
    sent = np.zeros((size, size), dtype=np.int64)
    received = np.zeros((size, size), dtype=np.int64)
    for (own, peer), rank in owner.items():
        other = owner.get((peer, own))
        if other is None or other == rank:
            continue
        now = after[rank].sockets[own, peer]
        then = before[rank].sockets.get((own, peer), Counters(0, 0))
        sent[rank, other] += now.sent - then.sent
        received[other, rank] += now.received - then.received
    return sent, received


def closed_between(before: Sequence[Reading], after: Sequence[Reading]) -> int:
    """How many connections between ranks were there before and are not any more."""
    mine = {ends for reading in before for ends in reading.sockets}
    still = {ends for reading in after for ends in reading.sockets}
    return sum(1 for own, peer in mine - still if (peer, own) in mine and own < peer)
