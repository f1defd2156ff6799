"""Open MPI, UCX, Gloo, launchers, topology."""

from __future__ import annotations

from collections.abc import Callable

from coursekit.diagnose.forge import _hardware_faults, _nccl, _torch
from coursekit.diagnose.forge._faults import fault
from coursekit.diagnose.forge._log import Log

LINE = "-" * 74


def _mpi(log: Log, text: str) -> None:
    """A help text of Open MPI's, between its lines."""
    log.plain(f"{LINE}\n{text}\n{LINE}")


@fault("mpi.slots")
def slots(log: Log) -> None:
    term = log.rng.choice(("Open MPI", "PRRTE"))
    _mpi(log, f"There are not enough slots available in the system to satisfy the "
              f"{log.cluster.size}\nslots that were requested by the application:\n\n  python\n\n"
              f'A "slot" is the {term} term for an allocatable unit.')  # fmt: skip


@fault("mpi.hostfile")
def hostfile(log: Log) -> None:
    _mpi(log, "Open RTE was unable to open the hostfile:\n    ./hosts\n"
              "Check to make sure the path and filename are correct.")  # fmt: skip


@fault("mpi.tcp_iface", least=(2, 1))
def interface(log: Log) -> None:
    host, pid = log.cluster.host(0), log.cluster.pid(0)
    log.plain(log.rng.choice((
        f"[{host}][[53711,1],0][btl_tcp_endpoint.c:636:mca_btl_tcp_endpoint_recv_connect_ack] "
        "received unexpected process identifier [[53711,1],2]",
        f"[1695332443.361791] [{host}:{pid}:0]            sock.c:323  UCX  ERROR   "
        "connect(fd=42, dest_addr=172.17.0.1:54351) failed: Connection refused",
        f"[{host}][[53711,1],0][btl_tcp_endpoint.c:625] connect() to 172.17.0.1:1024 failed: "
        "Connection refused (111)",
    )))  # fmt: skip


@fault("mpi.pml_mismatch", least=(2, 1))
def pml(log: Log) -> None:
    host = log.cluster.host(0)
    log.plain(f"[{host}:19225] [[52456,1],5] selected pml ob1, but peer [[52456,1],0] on {host} "
              "selected pml ucx")  # fmt: skip


@fault("mpi.not_cuda_aware")
def not_aware(log: Log) -> None:
    host, pid = log.cluster.host(0), log.cluster.pid(0)
    log.plain(log.rng.choice((
        f"[{host}:{pid}:0:{pid}] Caught signal 11 (Segmentation fault: invalid permissions for "
        "mapped object at address 0x7f4d4e000000)",
        "The user requested CUDA support with the --mca opal_cuda_support 1 flag but the library "
        "was not compiled with any support.",
    )))  # fmt: skip


@fault("mpi.openib_notice")
def openib(log: Log) -> None:
    _mpi(log, "By default, for Open MPI 4.0 and later, infiniband ports on a device\nare not used "
              f"by default.\n\n  Local host:              {log.cluster.host(0)}")  # fmt: skip


@fault("ucx.retry_exceeded", least=(2, 1))
def ucx_retry(log: Log) -> None:
    front = f"[{log.cluster.host(0)}:24113:0:24113] ib_mlx5_log.c:143  "
    told = "Transport retry count exceeded on mlx5_0:1/RoCE (synd 0x15 vend 0x81 hw_synd 0/0)"
    request = f"DCI QP 0x1510 wqe[{log.rng.choice((0, 4711))}]: SEND s-e [rqpn 0x223a4"
    address = "rmac 0c:00:00:00:00:01 sgix 0 dgid fe80::1 tc 0"
    log.plain(f"{front}{told}\n{front}{request} {address}] [inl len 18]")


@fault("ucx.unreachable", least=(2, 1))
def ucx_unreachable(log: Log) -> None:
    front = f"[1556000000.000000] [{log.cluster.host(0)}:9001:0] select.c:410 UCX  ERROR"
    away = "Destination is unreachable"
    log.plain(f"{front} no active messages transport to <no debug data>: "
              f"tcp/{log.cluster.interface} - {away}, self/self - {away}")  # fmt: skip


@fault("ucx.memlock", least=(2, 1))
def ucx_memlock(log: Log) -> None:
    log.plain(f"[1613000000.000000] [{log.cluster.host(0)}:5:0] ib_md.c:325 UCX  ERROR ibv_reg_mr("
              f"address=0x7f0000000000, length={log.rng.randrange(1 << 24)}, access=0xf) failed: "
              "Cannot allocate memory")  # fmt: skip


@fault("gloo.loopback_hostname", least=(2, 1))
def gloo_loopback(log: Log) -> None:
    log.put(1, "RuntimeError: Gloo connectFullMesh failed with [/pytorch/third_party/gloo/gloo/"
               "transport/tcp/pair.cc:144] no error. SO_ERROR: Connection refused, remote="
               f"[127.0.{log.rng.randrange(2)}.1]:{log.rng.randrange(2000, 60000)}")  # fmt: skip


@fault("gloo.iface_syntax")
def gloo_syntax(log: Log) -> None:
    log.put(0, "RuntimeError: [enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/"
               "device.cc:84] ifa != nullptr. Unable to find address for: "
               f"{log.rng.choice(('^lo', '^docker0,lo', '=eth0'))}")  # fmt: skip


@fault("secondary.peer_closed", least=(2, 1))
def peer_closed(log: Log) -> None:
    if log.rng.random() < 0.5:
        _nccl.setup(log)
        _hardware_faults.closed(log, log.some())
    else:
        log.put(1, "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] "
                   f"Connection closed by peer [{log.cluster.address(0)}]:46210")  # fmt: skip


@fault("secondary.sigterm")
def sigterm(log: Log) -> None:
    _torch.sigterm(log, [log.cluster.pid(r) for r in range(log.cluster.size)])


@fault("topo.ring_crosses_pcie", least=(1, 4))
def crosses(log: Log) -> None:
    _table(log, lambda a, b: f"NV{12}" if a // 2 == b // 2 else "SYS")
    _nccl.setup(log, local="P2P/IPC")


@fault("topo.pcie_only")
def pcie_only(log: Log) -> None:
    kind = log.rng.choice(("PHB", "NODE", "SYS", "PIX"))
    _table(log, lambda a, b: kind)


@fault("topo.nvlink_islands", least=(1, 4))
def islands(log: Log) -> None:
    _table(log, lambda a, b: "NV4" if a // 2 == b // 2 else "SYS")


@fault("topo.full_nvlink", least=(1, 4))
def full(log: Log) -> None:
    links = log.rng.choice((8, 12, 18))
    _table(log, lambda a, b: f"NV{links}")


def _table(log: Log, kind: Callable[[int, int], str]) -> None:
    """`nvidia-smi topo -m` of one host."""
    gpus = log.cluster.gpus
    log.plain("\t" + "\t".join(f"GPU{k}" for k in range(gpus)) + "\tCPU Affinity\tNUMA Affinity")
    for a in range(gpus):
        cells = "\t".join(" X " if a == b else kind(a, b) for b in range(gpus))
        log.plain(f"GPU{a}\t{cells}\t0-31\t0")
