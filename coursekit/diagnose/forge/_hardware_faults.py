"""Memory, network cards, links between GPUs, drivers."""

from __future__ import annotations

from coursekit.diagnose.forge import _nccl, _torch
from coursekit.diagnose.forge._faults import fault
from coursekit.diagnose.forge._log import Log

STATUS = {4: "LOC_PROT_ERR", 5: "WR_FLUSH_ERR", 12: "RETRY_EXC_ERR"}


def completion(log: Log, rank: int, status: int, vendor: int) -> None:
    """A failed request of a network card, in the wording of the version."""
    number = log.cluster.number
    peer = f"{log.cluster.address(0)}<4{log.rng.randrange(1000, 9999)}>"
    if number < (2, 20):
        told = f"NET/IB : Got completion from peer {peer} with error {status}, opcode 1, len 0, "
        told += f"vendor err {vendor}"
    elif number < (2, 28):
        told = f"NET/IB : Got completion from peer {peer} with status={status} opcode=1 len=0 "
        told += f"vendor err {vendor} (Send) hca mlx5_{rank % 8}"
    else:
        told = f"NET/IB: Got completion from peer {peer} with status=IBV_WC_{STATUS[status]}"
        told += f"({status}) opcode=IBV_WC_RDMA_WRITE(1) vendor_err={vendor} hca mlx5_{rank % 8}"
    log.warn(rank, "transport/net_ib.cc" if number < (2, 29) else "transport/net_ib/p2p.cc", told)
    log.trace(rank, "transport/net.cc", "proxy.cc", code=6)


def closed(log: Log, rank: int) -> None:
    """A peer that is gone: what the others print afterwards."""
    c = log.cluster
    peer = f"{c.address(0)}<4{log.rng.randrange(1000, 9999)}>"
    front = "Net :" if c.number < (2, 18) else "socketProgress:"
    log.warn(rank, "misc/socket.cc", f"{front} Connection closed by remote peer {peer}")
    log.trace(rank, "misc/socket.cc", "proxy.cc", code=6)


@fault("ib.retry_exceeded", least=(2, 1))
def retry(log: Log) -> None:
    _nccl.setup(log)
    if log.rng.random() < 0.5:
        closed(log, log.some(0))
        completion(log, log.some(0), 5, 249)
    completion(log, log.some(), 12, 129)
    completion(log, log.some(), 5, 249)


@fault("ib.local_protection", least=(2, 1))
def protection(log: Log) -> None:
    _nccl.setup(log)
    completion(log, log.some(), 4, 81)
    completion(log, log.some(), 5, 249)


@fault("ib.flush_secondary", least=(2, 1))
def flush(log: Log) -> None:
    _nccl.setup(log)
    completion(log, log.some(), 5, 249)


@fault("ib.memlock", least=(2, 1))
def memlock(log: Log) -> None:
    _nccl.setup(log, complete=False)
    rank = log.some()
    log.warn(rank, "misc/ibvwrap.cc",
             f"Call to {log.rng.choice(('ibv_reg_mr', 'ibv_reg_mr_iova2'))} failed with error "
             "Cannot allocate memory")  # fmt: skip
    log.trace(rank, "transport/net_ib.cc", "transport/net.cc")


@fault("gdr.disabled_module", least=(2, 2))
def module(log: Log) -> None:
    _nccl.setup(log, gdr=False)
    for rank in range(log.cluster.size):
        for card in range(2):
            log.info(rank, f"NET/IB : GPU Direct RDMA Disabled for HCA {card} 'mlx5_{card}'")


@fault("gdr.one_node_only", least=(2, 2))
def one_node(log: Log) -> None:
    c = log.cluster
    odd = log.rng.randrange(c.hosts)
    _nccl.setup(log, gdr={r for r in range(c.size) if r // c.gpus != odd})


@fault("gdr.disabled_distance", least=(2, 2), below=(2, 29))
def distance(log: Log) -> None:
    _nccl.setup(log, gdr=False)
    for rank in range(log.cluster.size):
        log.info(rank, f"GPU Direct RDMA Disabled for GPU {log.cluster.device(rank)} / HCA 0 "
                       "(distance 8 > 4)")  # fmt: skip


@fault("mem.cuda_oom")
def out_of_memory(log: Log) -> None:
    _nccl.setup(log)
    odd = log.some(0)
    log.put(odd, f"[rank{odd}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate "
                 f"{log.rng.randrange(1, 60)}.00 GiB. GPU {log.cluster.device(odd)} has a total "
                 "capacity of 79.15 GiB of which 1.06 GiB is free.")  # fmt: skip
    others = [r for r in range(log.cluster.size) if r != odd]
    _torch.timeouts(log, others, 12 + log.rng.randrange(900), "ALLREDUCE", 466_119_168)
    closed(log, others[0])


@fault("proc.sigkill_host_oom")
def killed(log: Log) -> None:
    c, odd = log.cluster, log.some(0)
    _torch.sigterm(log, [c.pid(r) for r in range(c.size) if r != odd])
    _torch.summary(log, odd, -9, f"Signal 9 (SIGKILL) received by PID {c.pid(odd)}")


def _segment(log: Log, rank: int, error: str) -> None:
    name = f"/dev/shm/nccl-{log.rng.randrange(1 << 24):06X}"
    number = log.cluster.number
    size = log.rng.randrange(1, 40) * 1048576 + 4452
    tail = f", error: {error}" if number >= (2, 22) else f" : {error}"
    log.warn(rank, "misc/shmutils.cc", f"Error: failed to extend {name} to {size} bytes{tail}")
    told = f"Error while creating shared memory segment {name} (size {size}){tail}"
    log.warn(rank, "misc/shmutils.cc", told)
    log.trace(rank, "transport/shm.cc", "transport.cc", "init.cc")


@fault("shm.too_small")
def small(log: Log) -> None:
    _nccl.setup(log, complete=False)
    odd = log.some(0)
    if log.rng.random() < 0.3:
        log.warn(odd, "include/shm.h", "Call to posix_fallocate failed : No space left on device")
    else:
        _segment(log, odd, "No space left on device (28)")
    log.warn(log.some(), "proxy.cc", "Socket recv failed while polling for opId=0x7f0000000010")


@fault("shm.leaked_files")
def leaked(log: Log) -> None:
    _nccl.setup(log, complete=False)
    _segment(log, log.some(0), "No space left on device (28)")
    log.plain("$ ls -l /dev/shm")
    for _ in range(log.rng.randrange(4, 12)):
        log.plain(
            f"-rw------- 1 user user 9637888 Mar  3 11:20 nccl-{log.rng.randrange(1 << 24):06X}"
        )


@fault("shm.register_failed")
def register(log: Log) -> None:
    _nccl.setup(log, complete=False)
    odd = log.some(0)
    told = "Cuda failure 'invalid argument'" if log.cluster.number < (2, 19) else \
        "Cuda failure 1 'invalid argument'"  # fmt: skip
    log.warn(odd, "misc/shmutils.cc", told)
    what = "Error while creating shared memory segment /dev/shm/nccl-NzwJ7O (size 9637888)"
    log.warn(odd, "misc/shmutils.cc", what)


@fault("shm.cumem_host_fail", version=(2, 24))
def cumem(log: Log) -> None:
    _nccl.setup(log, complete=False)
    odd = log.some(0)
    log.warn(odd, "include/alloc.h", "Cuda failure 1 'invalid argument'")
    log.trace(odd, "transport/shm.cc", "transport.cc", "init.cc", code=1)


@fault("shm.cumem_host_fallback", version=(2, 26))
def fallback(log: Log) -> None:
    for rank in range(log.cluster.size):
        log.info(rank, _FALLBACK)
    _nccl.setup(log, local="SHM/direct/direct")


_FALLBACK = (
    "cuMem host allocations do not appear to be working; falling back to a /dev/shm/ based "
    "implementation. This could be due to the container runtime disabling NUMA support."
)


@fault("shm.cumem_host_asymmetric", version=(2, 26))
def asymmetric(log: Log) -> None:
    _nccl.setup(log, complete=False)
    log.info(0, _FALLBACK)
    log.info(1, "CUMEM allocated shareable buffer 0x7f0000000000 size 4194304")
    what = "Error while attaching to shared memory segment /dev/shm/nccl-AbCdEf (size 4194304)"
    log.warn(1, "misc/shmutils.cc", f"{what}, error: No such file or directory (2)")


@fault("p2p.acs_hang")
def acs(log: Log) -> None:
    _nccl.setup(log, local="P2P/IPC")
    log.plain("$ lspci -vvv | grep ACSCtl")
    log.plain("\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl-")
    if log.rng.random() < 0.5:
        _torch.timeouts(log, range(log.cluster.size), 1, "ALLREDUCE", 4096)


@fault("p2p.iommu_hang")
def iommu(log: Log) -> None:
    _nccl.setup(log, local="P2P/IPC")
    log.plain(log.rng.choice((
        "[ 912.11] nvidia 0000:41:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0011 "
        "address=0x32030000 flags=0x0020]",
        "[ 912.11] DMAR: [DMA Write NO_PASID] Request device [41:00.0] fault addr 0xf8000000",
    )))  # fmt: skip
    _torch.timeouts(log, range(log.cluster.size), 1, "ALLREDUCE", 4096)


@fault("p2p.nvlink_fault")
def nvlink(log: Log) -> None:
    if log.rng.random() < 0.5:
        _nccl.setup(log, complete=False)
        log.warn(0, "graph/paths.cc", "P2P is disabled between NVLINK connected GPUs 1 and 0. This "
                 "should not be the case given their connectivity, and is probably due to a "
                 "hardware issue.")  # fmt: skip
        return
    _nccl.setup(log)
    log.plain("[77012.4] NVRM: Xid (PCI:0000:1b:00): 74, pid=2211, NVLink: fatal error detected on "
              "link 6")  # fmt: skip
    _torch.timeouts(log, range(log.cluster.size), 77, "ALLREDUCE", 1 << 20)


@fault("gpu.xid")
def xid(log: Log) -> None:
    _nccl.setup(log)
    log.plain(f"[77012.4] NVRM: Xid (PCI:0000:1b:00): {log.rng.choice((48, 63, 79, 94, 119))}, "
              "pid=2211, GPU fault")  # fmt: skip
    _torch.timeouts(log, range(1, log.cluster.size), 77, "ALLREDUCE", 1 << 20)


@fault("nvls.fabric_manager", version=(2, 19))
def fabric(log: Log) -> None:
    _nccl.setup(log, complete=False)
    rank = log.some(0)
    if log.cluster.number < (2, 27):
        log.warn(rank, "transport/nvls.cc", "Cuda failure 1 'invalid argument'")
        log.trace(rank, "transport/nvls.cc", "init.cc", code=1)
    else:
        _bind(log, rank, "401 'the operation cannot be performed in the present state'")


@fault("nvls.fabric_manager_transient", version=(2, 27))
def transient(log: Log) -> None:
    _nccl.setup(log, complete=False)
    _bind(log, log.some(0), "802 'system not yet initialized'")


def _bind(log: Log, rank: int, error: str) -> None:
    log.warn(rank, "transport/nvls.cc", "Failed to bind NVLink SHARP (NVLS) Multicast memory of "
             f"size 4194304 : CUDA error {error}.\nThis is usually caused by a system or "
             "configuration error in the Fabric Manager or NVSwitches.")  # fmt: skip


@fault("p2p.disabled_by_env")
def by_env(log: Log) -> None:
    for rank in range(log.cluster.size):
        log.info(rank, "NCCL_P2P_DISABLE set by environment to 1.")
    _nccl.setup(log, local="SHM/direct/direct")


@fault("p2p.consumer_info")
def consumer(log: Log) -> None:
    for rank in range(log.cluster.size):
        log.info(rank, "P2P is disabled between connected GPUs 1 and 0. You can repress this "
                       "message with NCCL_IGNORE_DISABLED_P2P=1.")  # fmt: skip
    _nccl.setup(log, local="SHM/direct/direct")
