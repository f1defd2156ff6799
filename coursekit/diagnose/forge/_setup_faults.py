"""Set-up: interfaces, rendezvous, versions, settings, devices."""

from __future__ import annotations

from coursekit.diagnose.forge import _nccl, _torch
from coursekit.diagnose.forge._faults import fault
from coursekit.diagnose.forge._log import Log


def _refuse(log: Log, rank: int, address: str, error: str) -> None:
    """A connection that fails, in the wording of the version."""
    number = log.cluster.number
    for _ in range(2):
        told = f"connect returned {error}, retrying"
        log.info(rank, f"Call to {told}" if number < (2, 24) else f"{told} (1/34) after sleep")
    if number < (2, 18):
        log.warn(rank, "misc/socket.cc", f"Net : Connect to {address} failed : {error}")
    elif number < (2, 24) or number < (2, 27):
        log.warn(
            rank, "misc/socket.cc", f"socketStartConnect: Connect to {address} failed : {error}"
        )
    elif number < (2, 29):
        log.warn(
            rank, "misc/socket.cc", f"socketPollConnect to {address} failed with error {error}"
        )
    else:
        told = f"ncclOsSocketPollConnect to {address} failed with error {error}"
        log.warn(rank, "os/linux.cc", told)
    log.trace(rank, "misc/socket.cc", "bootstrap.cc", "init.cc")


@fault("ok.healthy", least=(1, 1))
def healthy(log: Log) -> None:
    _nccl.setup(log)
    if not log.few:
        _nccl.calls(log, 1, 6)


@fault("evidence.insufficient")
def insufficient(log: Log) -> None:
    rank = log.some(0)
    if log.rng.random() < 0.5:
        version = log.cluster.version
        log.put(rank, f"[rank{rank}]: torch.distributed.DistBackendError: NCCL error in: "
                      "ProcessGroupNCCL.cpp:1691, unhandled system error (run with NCCL_DEBUG=INFO "
                      f"for details), NCCL version {version}")  # fmt: skip
    else:
        _nccl.begin(log, rank)


@fault("net.loopback_selected", least=(2, 1))
def loopback(log: Log) -> None:
    for rank in range(log.cluster.size):
        _nccl.begin(log, rank, "Socket", address="lo:127.0.0.1<0>", env=False)
        _nccl.start(log, rank)
    _refuse(log, log.some(), "127.0.0.1<41234>", "Connection refused")


@fault("net.wrong_interface", least=(2, 1))
def wrong_interface(log: Log) -> None:
    bad = log.rng.choice(("docker0:172.17.0.1<0>", "virbr0:192.168.122.1<0>",
                          "usb0:169.254.3.1<0>", "ip6tnl0:fe80::2%ip6tnl0<0>"))  # fmt: skip
    for rank in range(log.cluster.size):
        _nccl.begin(log, rank, "Socket", address=f"{bad}", env=False)
    _refuse(log, log.some(), bad.partition(":")[2].replace("<0>", "<40001>"), "No route to host")


@fault("net.stale_rendezvous")
def stale(log: Log) -> None:
    rank = log.some()
    _nccl.begin(log, rank)
    _refuse(log, rank, f"10.254.{log.rng.randrange(250)}.9<2{log.rng.randrange(1000, 9999)}>",
            "Connection refused")  # fmt: skip


@fault("net.connection_refused", least=(2, 1))
def refused(log: Log) -> None:
    _nccl.setup(log, complete=False, ranks=range(log.cluster.size))
    rank = log.some()
    error = "Connection refused"
    if (2, 18) <= log.cluster.number < (2, 24) and log.rng.random() < 0.5:
        error = "Software caused connection abort"
    _refuse(log, rank, f"{log.cluster.address(0)}<4{log.rng.randrange(1000, 9999)}>", error)


@fault("net.socket_fallback", least=(2, 1))
def sockets(log: Log) -> None:
    _nccl.setup(log, net="Socket")


@fault("net.provider_no_device")
def no_device(log: Log) -> None:
    for rank in range(log.cluster.size):
        _nccl.begin(log, rank, "Socket")
    log.put(0, f"libfabric:{log.cluster.pid(0)}:1747438790::core:core:fi_getinfo_():1392<warn> "
               "fi_getinfo: provider efa output empty list")  # fmt: skip


@fault("rdzv.docker_bridge_address")
def bridge(log: Log) -> None:
    rank, last = log.some(), log.rng.randrange(2, 250)
    log.put(rank, "torch.distributed.DistNetworkError: The client socket has timed out after "
                  f"600000ms while trying to connect to (172.17.0.{last}, 45113).")  # fmt: skip


@fault("rdzv.timeout")
def rendezvous(log: Log) -> None:
    rank = log.some()
    log.put(rank, "torch.distributed.DistNetworkError: The client socket has timed out after "
                  f"{log.rng.choice(('60s', '900s', '600000ms'))} while trying to connect to "
                  f"({log.cluster.address(0)}, 29500).")  # fmt: skip


@fault("rdzv.addr_in_use")
def in_use(log: Log) -> None:
    log.put(0, "[W socket.cpp:436] [c10d] The server socket has failed to bind to [::]:29500 "
               "(errno: 98 - Address already in use).")  # fmt: skip
    told = "The server socket has failed to listen on any local network address. port: 29500"
    log.put(0, f"torch.distributed.DistNetworkError: {told}, code: -98, name: EADDRINUSE")


@fault("version.mismatch", version=(2, 23))
def versions(log: Log) -> None:
    _nccl.setup(log, complete=False)
    rank = log.some()
    log.warn(rank, "init.cc", "Mismatched NCCL version detected : rank 0 version 22304 rank "
                              f"{rank} version 22005")  # fmt: skip
    log.trace(rank, "init.cc", code=5)


@fault("nccl.version_bug")
def bug(log: Log) -> None:
    _nccl.setup(log, complete=False)
    rank = log.some()
    log.warn(rank, "bootstrap.cc", "Message truncated : received 256 bytes instead of 4")
    log.trace(rank, "bootstrap.cc", "transport.cc", "group.cc", code=3)


@fault("env.not_uniform", least=(2, 2))
def environment(log: Log) -> None:
    odd = log.some()
    differ = log.rng.random() < 0.5
    for rank in range(log.cluster.size):
        if rank != odd or differ:
            name, values = "NCCL_PROTO", ("Simple", "LL")
            log.info(rank, f"{name} set by environment to {values[rank == odd]}")
        _nccl.begin(log, rank)
        _nccl.start(log, rank)
    for rank in range(log.cluster.size):
        _nccl.channels(log, rank, "IB", gdr=True)
        _nccl.done(log, rank)


@fault("init.duplicate_gpu", below=(2, 30))
def duplicate(log: Log) -> None:
    _nccl.setup(log, complete=False)
    a, bus = log.some(), log.rng.choice(("1000", "1b000", "41000"))
    told = f"Duplicate GPU detected : rank {a} and rank 0 both on CUDA device {bus}"
    log.warn(a, "init.cc", told)
    log.trace(a, "init.cc", code=5)
    if log.rng.random() < 0.5:
        kind = "ncclInvalidUsage"
        _torch.nccl_error(log, a, "invalid usage", kind, told)


@fault("init.multi_rank_gpu_needs_flag", version=(2, 30, 3))
def several(log: Log) -> None:
    _nccl.setup(log, complete=False)
    if log.cluster.number >= (2, 30, 7):
        told = "Multiple Ranks are using the same GPU/Partition."
        where = "init.cc"
    else:
        told = "Multiple ranks detected using the same GPU on this node."
        where = "graph/topo.cc"
    log.warn(0, where, f"{told} Set NCCL_MULTI_RANK_GPU_ENABLE=1 to enable this configuration.")


@fault("init.incomplete", least=(1, 4), version=(2, 18))
def incomplete(log: Log) -> None:
    odd = log.some()
    _nccl.setup(log, ranks=[r for r in range(log.cluster.size) if r != odd], complete=False)


@fault("tuning.no_algorithm")
def algorithm(log: Log) -> None:
    _nccl.setup(log)
    for rank in range(log.cluster.size):
        log.info(rank, "NCCL_ALGO set by environment to NVLS")
    number = log.cluster.number
    told = "Error : no algorithm/protocol available"
    if number >= (2, 30):
        told = "No algorithm/protocol available"
    if number >= (2, 24):
        told += " for function Broadcast with datatype ncclInt8. NCCL_ALGO was set to NVLS."
    log.warn(0, "enqueue.cc", told)
