"""NCCL's set-up and calls, as each version prints them."""

from __future__ import annotations

from collections.abc import Iterable

from coursekit.diagnose.forge._log import Log

FUNCTIONS = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast")


def setup(
    log: Log, *, net: str = "IB", ranks: Iterable[int] | None = None, complete: bool = True,
    gdr: bool | set[int] = True, local: str = "", env: bool = True,
) -> None:  # fmt: skip
    """Set-up of these ranks, up to Init COMPLETE.

    `gdr` says whether channels between hosts carry /GDRDMA, or on which hosts' ranks; `local` is
    the transport inside a host.
    """
    chosen = list(range(log.cluster.size) if ranks is None else ranks)
    if 0 in chosen:
        log.plain(f"NCCL version {log.cluster.version}+cuda12.4")
    for rank in chosen:
        begin(log, rank, net, env=env)
    for rank in chosen:
        start(log, rank)
    if not complete:
        return
    for rank in chosen:
        channels(log, rank, net, gdr if isinstance(gdr, bool) else rank in gdr, local)
    for rank in chosen:
        done(log, rank)


def begin(log: Log, rank: int, net: str = "IB", *, env: bool = True, address: str = "") -> None:
    """Environment, interfaces, network."""
    c = log.cluster
    where = address or f"{c.interface}:{c.address(rank)}<0>"
    if env and not log.few:
        log.info(rank, f"NCCL_SOCKET_IFNAME set by environment to {c.interface}")
    log.info(rank, f"Bootstrap{':' if c.number >= (2, 24) else ' :'} Using {where}")
    if log.few:
        return
    if c.number >= (2, 21):
        plugin = "NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin."
    else:
        plugin = "NET/Plugin : No plugin found (libnccl-net.so), using internal implementation"
    log.info(rank, plugin)
    if net == "IB":
        log.info(rank, f"NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB {where}")
    else:
        log.info(rank, "NET/IB : No device found.")
        log.info(rank, f"NET/Socket : Using [0]{where}")
    if c.number >= (2, 27):
        log.info(rank, f"Initialized NET plugin {net}")
        log.info(rank, f"Assigned NET plugin {net} to comm")
    log.info(rank, f"Using network {net}")


def _named(log: Log, rank: int, state: str) -> str:
    c = log.cluster
    d = c.device(rank)
    told = f"comm {log.comm(rank)} rank {rank} nranks {c.size} cudaDev {d}"
    if c.number < (2, 18):
        return f"{told} busId {0x1000 * (d + 1):x} - {state}"
    told += f" nvmlDev {d} busId {0x1000 * (d + 1):x} commId 0x{log.comm_id:x} - {state}"
    if c.number < (2, 21):
        return told
    front = f"[Rank {rank}] " if c.number >= (2, 29) and state == "Init START" else ""
    name = "ncclCommInitRankConfig" if c.number >= (2, 23) else "ncclCommInitRank"
    return f"{front}{name} {told}"


def start(log: Log, rank: int) -> None:
    """Init START, and from 2.20 on how many hosts there are."""
    c = log.cluster
    if c.number >= (2, 18):
        log.info(rank, _named(log, rank, "Init START"))
    if c.number >= (2, 20) and not log.few:
        told = f"nRanks {c.size} nNodes {c.hosts} localRanks {c.gpus} localRank {rank % c.gpus}"
        log.info(rank, f"comm {log.comm(rank)} rank {rank} {told} MNNVL 0")


def channels(log: Log, rank: int, net: str, gdr: bool, local: str = "") -> None:
    """Rings, trees, and the ring's edges."""
    c = log.cluster
    if rank == 0 and not log.few:
        ring = " ".join(str(r) for r in range(c.size))
        log.info(rank, f"Channel 00/02 : {ring}")
    ahead, back = (rank + 1) % c.size, (rank - 1) % c.size
    if c.size > 1:
        if not log.few:
            log.info(rank, f"Trees [0] {ahead}/-1/-1->{rank}->{back} [1] {ahead}/-1/-1->{rank}->-1")
        edge(log, rank, rank, ahead, "send", net, gdr, local)
        if rank % c.gpus == 0 and c.hosts > 1:
            edge(log, rank, back, rank, "receive", net, gdr, local)
    log.info(rank, _channels(c.number))
    tail = "" if c.number < (2, 24) else ", use ring PXN 0 GDR 1"
    log.info(rank, f"Connected all rings{tail}")


def _channels(number: tuple[int, ...]) -> str:
    if number >= (2, 20):
        return ("2 coll channels, 0 collnet channels, 0 nvls channels, 4 p2p channels, "
                "2 p2p channels per peer")  # fmt: skip
    nvls = "0 nvls channels, " if number >= (2, 18) else ""
    return f"2 coll channels, {nvls}4 p2p channels, 2 p2p channels per peer"


def edge(
    log: Log, rank: int, a: int, b: int, way: str, net: str = "IB", gdr: bool = True,
    local: str = "",
) -> None:  # fmt: skip
    """One channel between two ranks, as one of them prints it."""
    c = log.cluster
    da, db = (f"{0x1000 * (c.device(r) + 1):x}" if c.number < (2, 18) else str(c.device(r))
              for r in (a, b))  # fmt: skip
    told = f"Channel 00/0 : {a}[{da}] -> {b}[{db}]"
    if a // c.gpus != b // c.gpus:
        log.info(rank, f"{told} [{way}] via NET/{net}/0{'/GDRDMA' if gdr and net == 'IB' else ''}")
        return
    way_in = local or ("P2P/IPC" if c.number < (2, 18) else "P2P/CUMEM")
    log.info(rank, f"{told} via {way_in}")


def done(log: Log, rank: int) -> None:
    """Init COMPLETE, with timings from 2.23 on."""
    if log.cluster.number >= (2, 23) and not log.few:
        told = f"rank {rank} nranks {log.cluster.size} total 1.{rank % 90 + 10}"
        log.info(rank, f"Init timings - ncclCommInitRankConfig: {told} (kernels 0.10, alloc 0.30)")
    log.info(rank, _named(log, rank, "Init COMPLETE"))


def call(
    log: Log, rank: int, op_count: int, name: str, count: int, *, kind: int = 7, root: int = 0
) -> None:
    """A collective that a rank enqueues, as NCCL_DEBUG_SUBSYS=COLL shows it."""
    buffer = f"0x7f{(op_count * 4096 + rank) & 0xFFFFFFFF:08x}"
    told = f"sendbuff {buffer} recvbuff {buffer} count {count} datatype {kind} op 0 root {root}"
    tail = f"comm {log.comm(rank)} [nranks={log.cluster.size}] stream 0x55{rank:06x}"
    log.info(rank, f"{name}: opCount {op_count:x} {told} {tail}")


def calls(log: Log, first: int, last: int, *, leave_out: Iterable[tuple[int, int]] = ()) -> None:
    """The same collectives on all ranks; `leave_out` names (rank, opCount)."""
    out = set(leave_out)
    for op_count in range(first, last):
        name, count = FUNCTIONS[op_count % 4], 1024 * (1 + op_count % 50)
        for rank in range(log.cluster.size):
            if (rank, op_count) not in out:
                call(log, rank, op_count, name, count)
