# ruff: noqa: E501 - a log line is as long as it is
"""Logs as NCCL, PyTorch, launchers and tools print them, each with the verdict it must give first.

All of them are written for these tests: names, addresses and numbers belong to nobody.
"""

from __future__ import annotations

WATCH = (
    "[rank{r}]:[E418 11:22:33.100000000 ProcessGroupNCCL.cpp:632] [Rank {r}] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum={s}, OpType={op}, NumelIn={n}, NumelOut={n}, "
    "Timeout(ms)=600000) ran for 600054 milliseconds before timing out."
)
STATE = (
    "[rank{r}]:[E418 11:22:33.200000000 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) "
    "Rank {r}] failure detected by watchdog at work sequence id: {s} PG status: last enqueued "
    "work: {e}, last completed work: {c}"
)
PRINT = "CollectiveFingerPrint(SequenceNumber={s}, OpType={op}{more})"
SHAPE = (
    ", TensorShape=[{n}], TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float "
    "(default), device=cuda)"
)
CALL = (
    "h{r}:5{r}:6{r} [0] NCCL INFO {name}: opCount {o} sendbuff 0x7f1 recvbuff 0x7f2 count {n} "
    "datatype 7 op 0 root 0 comm 0x5{r}0 [nranks={size}] stream 0x9"
)
START = (
    "h{r}:5{r}:6{r} [0] NCCL INFO ncclCommInitRankConfig comm 0x5{r}0 rank {r} nranks {size} "
    "cudaDev 0 nvmlDev 0 busId 1b000 commId 0xabcd{i} - Init {state}"
)


def watch(ranks: list[int], s: int = 77, op: str = "ALLREDUCE", n: int = 4096) -> str:
    return "\n".join(WATCH.format(r=r, s=s, op=op, n=n) for r in ranks)


def state(rank: int, s: int, e: int, c: int) -> str:
    return STATE.format(r=rank, s=s, e=e, c=c)


def call(rank: int, o: str, name: str = "AllReduce", n: int = 100, size: int = 2) -> str:
    return CALL.format(r=rank, o=o, name=name, n=n, size=size)


def start(rank: int, size: int, word: str = "START", i: int = 1) -> str:
    return START.format(r=rank, size=size, state=word, i=i)


def prints(a: tuple[int, int, str, str], b: tuple[int, int, str, str]) -> str:
    def one(told: tuple[int, int, str, str]) -> str:
        rank, s, op, n = told
        more = SHAPE.format(n=n) if n else ""
        return f"Rank {rank} is running collective: " + PRINT.format(s=s, op=op, more=more)

    return (
        f"RuntimeError: Detected mismatch between collectives on ranks. {one(a)}, but {one(b)}."
        "Collectives differ in the following aspects: "
    )


NODE = "trainer-a:700:812 [0] "
ON_B = "trainer-b:900:991 [1] "
TABLE = """\
\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity
GPU0\t X \t{0}\t{1}\t{1}\t0-15\t0
GPU1\t{0}\t X \t{1}\t{1}\t0-15\t0
GPU2\t{1}\t{1}\t X \t{0}\t16-31\t1
GPU3\t{1}\t{1}\t{0}\t X \t16-31\t1
"""
RULE = "-" * 70

CASES: list[tuple[str, str]] = [
    # -- nothing wrong, or not enough
    ("ok.healthy", f"NCCL version 2.21.5+cuda12.4\n{NODE}NCCL INFO Connected all rings\n"
     f"{start(0, 1)}\n{start(0, 1, 'COMPLETE')}"),
    ("ok.healthy", f"{NODE}NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct\n"
     f"{NODE}NCCL INFO Connected all rings, use ring PXN 0 GDR 1\n"
     "  1048576  262144  float  sum  -1  58.3  17.9  17.9  0  57.1  18.3  18.3  0"),
    ("evidence.insufficient", ""),
    ("evidence.insufficient", "epoch 3, loss 2.31\nepoch 4, loss 2.30"),
    ("evidence.insufficient", "RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:1269, unhandled "
     "system error, NCCL version 2.14.3\nncclSystemError: System call (e.g. socket, malloc) failed"),
    ("evidence.insufficient", f"NCCL version 2.27.5+cuda12.9\n{NODE}NCCL INFO Bootstrap: Using "
     "eth3:10.77.0.3<0>"),
    ("evidence.insufficient", watch([3])),
    # -- set-up
    ("version.mismatch", f"{ON_B}init.cc:1510 NCCL WARN Mismatched NCCL version detected : rank 0 "
     "version 22706 rank 4 version 22605"),
    ("version.mismatch", "trainer-a: NCCL version 2.27.6+cuda12.9\ntrainer-b: NCCL version "
     "2.26.2+cuda12.2".replace("trainer-a: ", "0: ").replace("trainer-b: ", "8: ")),
    ("nccl.version_bug", f"3: {NODE}bootstrap.cc:81 NCCL WARN Message truncated : received 512 "
     f"bytes instead of 8\n3: {NODE}NCCL INFO bootstrap.cc:560 -> 3"),
    ("env.not_uniform", f"{NODE}NCCL INFO Bootstrap : Using ib0:10.4.0.1<0>\n{ON_B}NCCL INFO "
     f"NCCL_SOCKET_IFNAME set by environment to eno2\n{ON_B}NCCL INFO Bootstrap : Using "
     "eno2:10.5.0.2<0>"),
    ("env.not_uniform", f"{NODE}NCCL INFO NCCL_PROTO set by environment to LL\n{ON_B}NCCL INFO "
     "NCCL_PROTO set by environment to Simple"),
    ("init.duplicate_gpu", f"[1,5]<stdout>:{NODE}init.cc:501 NCCL WARN Duplicate GPU detected : "
     "rank 5 and rank 4 both on CUDA device 81000"),
    ("init.duplicate_gpu", "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:219, "
     "invalid usage, NCCL version 2.19.3\nncclInvalidUsage: This usually reflects invalid usage of "
     "NCCL library.\nLast error:\nDuplicate GPU detected : rank 3 and rank 2 both on CUDA device "
     "c1000"),
    ("init.multi_rank_gpu_needs_flag", f"[2026-04-02 09:00:00] {NODE}graph/topo.cc:1702 NCCL WARN "
     "Multiple ranks detected using the same GPU on this node. Set NCCL_MULTI_RANK_GPU_ENABLE=1 to "
     "enable this configuration."),
    ("init.multi_rank_gpu_needs_flag", f"[2026-04-02 09:00:00] {NODE}init.cc:1702 (initTransports) "
     "NCCL WARN Multiple Ranks are using the same GPU/Partition. Set NCCL_MULTI_RANK_GPU_ENABLE=1 "
     "to enable this configuration."),
    ("init.incomplete", "\n".join(start(r, 8) for r in (0, 1, 2, 3, 4, 6, 7))),
    ("init.incomplete", "\n".join(start(r, 3) for r in (0, 1, 2))),
    ("tuning.no_algorithm", f"{NODE}enqueue.cc:1990 NCCL WARN Error : no algorithm/protocol "
     "available for function Reduce with datatype ncclFloat32. NCCL_ALGO was set to NVLS."),
    ("tuning.no_algorithm", f"{NODE}enqueue.cc:1880 NCCL WARN No algorithm/protocol available for "
     "function Broadcast with datatype ncclInt8."),
    # -- network
    ("net.loopback_selected", f"{NODE}NCCL INFO NET : Using interface lo:127.0.0.1<0>\n{ON_B}NCCL "
     f"INFO NET : Using interface lo:127.0.0.1<0>\n{ON_B}include/socket.h:361 NCCL WARN Call to "
     "connect timeout : Connection refused"),
    ("net.loopback_selected", f"{NODE}NCCL INFO Bootstrap : Using lo:127.0.0.1<0>\n{ON_B}NCCL INFO "
     "Bootstrap : Using lo:127.0.0.1<0>"),
    ("net.stale_rendezvous", f"{NODE}NCCL INFO Call to connect returned Connection refused, "
     f"retrying\n{NODE}include/socket.h:391 NCCL WARN Connect to 10.44.3.9<30111> failed : "
     f"Connection refused\n{NODE}NCCL INFO bootstrap.cc:101 -> 2"),
    ("net.stale_rendezvous", f"{NODE}NCCL INFO Bootstrap: Using eth1:10.44.0.7<0>\n{NODE}"
     "misc/socket.cc:700 NCCL WARN socketPollConnect to 10.99.0.1<41000> failed with error "
     "Connection refused"),
    ("net.wrong_interface", f"{NODE}NCCL INFO Bootstrap : Using [0]tunl0:fe80::9%tunl0<0> "
     "[1]ens5:10.7.0.5<0>"),
    ("net.wrong_interface", f"{NODE}bootstrap.cc:120 NCCL WARN Bootstrap : no socket interface "
     "found"),
    ("net.wrong_interface", f"{NODE}NCCL INFO Bootstrap : Using docker0:172.17.0.1<0>\n{ON_B}NCCL "
     "INFO Bootstrap : Using docker0:172.17.0.1<0>"),
    ("net.wrong_interface", f"{NODE}NCCL INFO socketPollConnect: connect to 10.8.0.2<40001> "
     "returned No route to host, retrying (3/34) after sleep for 300 msec"),
    ("net.connection_refused", f"NCCL version 2.19.3+cuda12.1\n{NODE}misc/socket.cc:490 NCCL WARN "
     "socketStartConnect: Connect to 10.3.0.8<50017> failed : Software caused connection abort"),
    ("net.connection_refused", f"{ON_B}NCCL INFO Bootstrap: Using eth1:10.44.0.7<0>\n{NODE}NCCL "
     f"INFO Bootstrap: Using eth1:10.44.0.8<0>\n{NODE}misc/socket.cc:700 NCCL WARN "
     "socketPollConnect to 10.44.0.7<41000> failed with error Connection refused"),
    ("net.socket_fallback", f"{NODE}NCCL INFO NET/IB : No device found.\n{NODE}NCCL INFO Using "
     f"network Socket\n{NODE}NCCL INFO Channel 01/0 : 4[0] -> 0[0] [receive] via NET/Socket/0"),
    ("net.provider_no_device", "2026-02-01T10:00:00.000Z libfabric:77:1700000000::core:core:"
     "fi_getinfo_():1340<warn> fi_getinfo: provider efa output empty list"),
    ("net.provider_no_device", f"{NODE}NCCL WARN Failed to initialize any NET plugin"),
    ("rdzv.docker_bridge_address", "torch.distributed.DistNetworkError: The client socket has "
     "timed out after 300000ms while trying to connect to (172.17.0.9, 40321)."),
    ("rdzv.timeout", "torch.distributed.DistNetworkError: The client socket has timed out after "
     "60s while trying to connect to (10.9.0.1, 29500)."),
    ("rdzv.addr_in_use", "RuntimeError: The server socket has failed to bind to ?UNKNOWN? (errno: "
     "98 - Address already in use)."),
    # -- InfiniBand and GPUDirect RDMA
    *((f"ib.{name}", f"[2026-03-03 10:00:00] {ON_B}transport/net_ib.cc:1500 NCCL WARN {text}")
      for name, code, word in (("retry_exceeded", 12, "RETRY_EXC_ERR"),
                               ("local_protection", 4, "LOC_PROT_ERR"),
                               ("flush_secondary", 5, "WR_FLUSH_ERR"))
      for text in (
          f"NET/IB : Got completion from peer 10.3.0.2<48752> with error {code}, opcode 0, len 0, "
          "vendor err 129 (Recv)",
          f"NET/IB : Got completion from peer 10.3.0.2<48752> with status={code} opcode=0 len=0 "
          "vendor err 129 (Recv) hca mlx5_3",
          "NET/IB: Got completion from peer 10.3.0.2<48752> with "
          f"status=IBV_WC_{word}({code}) opcode=IBV_WC_SEND(0) vendor_err=129 hca mlx5_3")),
    ("ib.memlock", f"{NODE}misc/ibvwrap.cc:270 NCCL WARN Call to ibv_reg_mr failed with error "
     f"Cannot allocate memory\n{NODE}NCCL INFO transport/net_ib.cc:1080 -> 2"),
    ("gdr.disabled_module", f"{NODE}NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_4'"
     f"\n{NODE}NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 1 'mlx5_5'"),
    ("gdr.one_node_only", f"{NODE}NCCL INFO Channel 00/0 : 4[0] -> 0[0] [receive] via NET/IB/1\n"
     f"{ON_B}NCCL INFO Channel 00/0 : 0[0] -> 4[0] [receive] via NET/IB/1/GDRDMA"),
    ("gdr.disabled_distance", f"{NODE}NCCL INFO GPU Direct RDMA Disabled for GPU 3 / HCA 1 "
     "(distance 7 > 4)"),
    # -- memory
    ("shm.too_small", f"{NODE}include/shm.h:30 NCCL WARN Call to posix_fallocate failed : No space "
     "left on device"),
    ("shm.too_small", f"[2026-05-05 10:00:00] {NODE}misc/shmutils.cc:90 NCCL WARN Error: failed to "
     "extend /dev/shm/nccl-Q1w2E3 to 10485764 bytes, error: No space left on device (28)\n"
     f"[2026-05-05 10:00:00] {ON_B}proxy.cc:1300 NCCL WARN Socket recv failed while polling for "
     "opId=0x7f00"),
    ("shm.too_small", "RuntimeError: NCCL error in: NCCLUtils.hpp:275, unhandled system error, NCCL "
     "version 2.21.5\nLast error:\nError while creating shared memory segment /dev/shm/nccl-aBcDeF "
     "(size 9637888), error: No space left on device (28)"),
    ("shm.leaked_files", f"{NODE}misc/shmutils.cc:120 NCCL WARN Error while creating shared memory "
     "segment /dev/shm/nccl-Q1w2E3 (size 9637888), error: No space left on device (28)\n"
     "$ ls /dev/shm\nnccl-a1b2c3  nccl-d4e5f6  nccl-g7h8i9  nccl-j1k2l3"),
    ("shm.register_failed", f"{NODE}misc/shmutils.cc:103 NCCL WARN Cuda failure 'operation not "
     f"supported'\n{NODE}misc/shmutils.cc:114 NCCL WARN Error while creating shared memory segment "
     "/dev/shm/nccl-Zz9Yy8 (size 4194304)"),
    ("shm.cumem_host_fail", f"{NODE}include/alloc.h:240 NCCL WARN Cuda failure 1 'invalid "
     f"argument'\n{NODE}NCCL INFO transport/shm.cc:590 -> 1"),
    ("shm.cumem_host_asymmetric", f"{NODE}NCCL INFO cuMem host allocations do not appear to be "
     "working; falling back to a /dev/shm/ based implementation.\n"
     "trainer-a:701:813 [1] NCCL INFO CUMEM allocated shareable buffer 0x7f00 size 4096\n"
     "trainer-a:701:813 [1] misc/shmutils.cc:120 NCCL WARN Error while attaching to shared memory "
     "segment /dev/shm/nccl-Q1w2E3 (size 4096), error: No such file or directory (2)"),
    ("shm.cumem_host_fallback", f"{NODE}NCCL INFO cuMem host allocations do not appear to be "
     f"working; falling back to a /dev/shm/ based implementation.\n{NODE}NCCL INFO Connected all "
     "rings, use ring PXN 0 GDR 1"),
    ("mem.cuda_oom", "[rank6]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.00 "
     "GiB. GPU 6 has a total capacity of 79.15 GiB\n" + watch([0, 1, 2, 3, 4, 5, 7])),
    ("mem.cuda_oom", f"{NODE}init.cc:900 NCCL WARN Cuda failure 2 'out of memory'"),
    ("proc.sigkill_host_oom", "W0101 10:00:00.000000 9 torch/distributed/elastic/multiprocessing/"
     "api.py:900] Closing process 411 via signal SIGTERM\nE0101 10:00:01.000000 9 torch/distributed/"
     "elastic/multiprocessing/api.py:874] failed (exitcode: -9) local_rank: 1 (pid: 412) of "
     "binary: /usr/bin/python3"),
    ("proc.sigkill_host_oom", "[81234.5] Out of memory: Killed process 5512 (python) total-vm:9kB"),
    # -- GPUs among themselves
    ("p2p.acs_hang", "ACSCtl: SrcValid+ TransBlk- ReqRedir+ CmpltRedir+\n"
     f"{NODE}NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC"),
    ("p2p.iommu_hang", "[  99.1] nvidia 0000:81:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT "
     "domain=0x0021 address=0xd0000000 flags=0x0030]"),
    ("p2p.nvlink_fault", f"{NODE}graph/paths.cc:300 NCCL WARN P2P is disabled between NVLINK "
     "connected GPUs 3 and 2. This should not be the case given their connectivity."),
    ("p2p.nvlink_fault", "[ 4411.2] NVRM: Xid (PCI:0000:c1:00): 74, pid=88, NVLink: fatal error"),
    ("gpu.xid", "[ 4411.2] NVRM: Xid (PCI:0000:c1:00): 79, pid=88, GPU has fallen off the bus."),
    ("p2p.disabled_by_env", f"{NODE}NCCL INFO NCCL_P2P_DISABLE set by environment to 1.\n{NODE}NCCL "
     "INFO Connected all rings"),
    ("p2p.consumer_info", f"{NODE}NCCL INFO P2P is disabled between connected GPUs 3 and 2. You "
     f"can repress this message with NCCL_IGNORE_DISABLED_P2P=1.\n{NODE}NCCL INFO Connected all "
     "rings"),
    ("nvls.fabric_manager", f"{NODE}transport/nvls.cc:250 NCCL WARN Cuda failure 1 'invalid "
     f"argument'\n{NODE}NCCL INFO transport/nvls.cc:400 -> 1"),
    ("nvls.fabric_manager", f"[2026-03-03 10:00:00] {NODE}transport/nvls.cc:333 NCCL WARN Failed to "
     "bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401 'the operation "
     "cannot be performed in the present state'."),
    ("nvls.fabric_manager_transient", f"[2026-03-03 10:00:00] {NODE}transport/nvls.cc:380 NCCL WARN "
     "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 802 'system "
     "not yet initialized'."),
    # -- collectives
    ("coll.order_mismatch", f"{call(0, '1f')}\n{call(1, '1f')}\n{call(0, '20', 'AllGather')}\n"
     f"{call(1, '20')}"),
    ("coll.order_mismatch", prints((1, 9, "BROADCAST", "8"), (0, 9, "BARRIER", ""))),
    ("coll.order_mismatch", f"{watch([0, 1, 2])}\n{watch([3], op='_ALLGATHER_BASE')}"),
    ("coll.order_mismatch", "  #12 started ranks:\n    [0, 1, 3] started ALLREDUCE\n    [2] started "
     "BROADCAST"),
    ("coll.order_mismatch", "error msg: Culprit rank 3; Error type: COLLECTIVE_TYPE_MISMATCH, "
     "Expected collective type: 'all_gather' does not match found collective type: 'all_reduce'"),
    ("coll.size_mismatch", f"rank0| {call(0, 'b')}\nrank1| {call(1, 'b', n=101)}"),
    ("coll.size_mismatch", prints((1, 9, "ALLREDUCE", "800"), (0, 9, "ALLREDUCE", "900"))),
    ("coll.size_mismatch", f"10.3.0.4: {NODE}transport/net_ib.cc:1040 NCCL WARN NET/IB : req 0/1 "
     "tag 2 peer 10.3.0.5<51001> collective mismatch error, local size 262144 remote size 131072"),
    ("coll.size_mismatch", f"{NODE}transport/net_socket.cc:550 NCCL WARN NET/Socket : peer "
     "10.3.0.5<51001> message truncated : receiving 131072 bytes instead of 65536"),
    ("coll.size_mismatch", f"{watch([0, 1, 3])}\n{watch([2], n=2048)}"),
    ("coll.size_mismatch", "error msg: Culprit rank 9; Error type: SIZE_OR_SYNTAX_MISMATCH, Expected "
     "input sizes: '[[64]]' does not match found input sizes: '[[65]]'"),
    ("coll.count_mismatch", "#1-0 (00c0ffee00c0ffee) MISMATCH\n  Communicator ranks have different "
     "AllReduce operation counts\n  7 ranks have launched up to operation 311\n  1 ranks have "
     "launched up to operation 310\n  Rank 5 -- GPU 5 managed by process 8811 on node trainer-a"),
    ("coll.early_barrier", f"{watch([0, 1, 2])}\n{watch([3], n=1)}"),
    ("coll.missing_rank", watch([0, 1, 2, 4, 5, 6, 7])),
    ("coll.missing_rank", f"{watch([0, 1, 2])}\n{state(3, 76, 76, 75)}"),
    ("coll.missing_rank", "  - To our best knowledge, ranks [3] are the lagging ranks that caused "
     "this timeout. They never joined any collectives"),
    ("coll.missing_rank", "RuntimeError: [Rank 0]: Ranks 2, 5 failed to pass monitoredBarrier in "
     "30000 ms"),
    ("coll.missing_rank", "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:81] Timed out "
     "waiting 30000ms for recv operation to complete"),
    ("coll.missing_rank", "Not all ranks joining collective 12 at entry 11\nmissing ranks: {2, 3}"),
    ("coll.rank0_only_work", "\n".join(f"{watch([r], n=1)}\n{state(r, 77, 77, 76)}"
                                       for r in (1, 2, 3))),
    ("coll.uneven_inputs", "\n".join(
        f"[rank{r}]:[E704 10:00:00.100000000 ProcessGroupNCCL.cpp:1746] [PG ID 0 PG GUID "
        f"0(default_pg) Rank {r}] ProcessGroupNCCL's watchdog got stuck for 480 seconds without "
        "making progress in monitoring enqueued collectives." for r in (1, 3, 2))),
    ("coll.all_joined_stall", "\n".join(f"{watch([r])}\n{state(r, 77, 79, 76)}" for r in range(4))),
    ("watchdog.ran_for_exceeds_timeout", "[E ProcessGroupNCCL.cpp:467] [Rank 2] Watchdog caught "
     "collective operation timeout: WorkNCCL(SeqNum=81, OpType=ALLREDUCE, Timeout(ms)=1800000) ran "
     "for 9100000 milliseconds before timing out."),
    ("watchdog.teardown", "\n".join(
        f"[rank{r}]:[E704 10:00:00.100000000 ProcessGroupNCCL.cpp:1870] [PG ID {20 + r} PG GUID "
        f"{40 + r}(EXPERT_GROUP) Rank 0] ProcessGroupNCCL's watchdog got stuck for 480 seconds "
        "without making progress in monitoring enqueued collectives." for r in (0, 4))),
    ("watchdog.stuck", "\n".join(
        f"[rank{r}]:[E704 10:00:00.100000000 ProcessGroupNCCL.cpp:1870] [PG ID 0 PG GUID "
        f"0(default_pg) Rank {r}] ProcessGroupNCCL's watchdog got stuck for 600 seconds without "
        "making progress in monitoring enqueued collectives." for r in range(4))),
    # -- what follows from something else
    ("secondary.peer_closed", f"{NODE}misc/socket.cc:50 NCCL WARN socketProgress: Connection closed "
     "by remote peer trainer-b<40111>"),
    ("secondary.peer_closed", "RuntimeError: [gloo/transport/tcp/pair.cc:540] Connection closed by "
     "peer [10.3.0.7]:40222\nRuntimeError: [gloo/transport/tcp/unbound_buffer.cc:81] Timed out "
     "waiting 600000ms for recv operation to complete"),
    ("secondary.sigterm", "W0101 10:00:00.000000 9 torch/distributed/elastic/agent/server/api.py:"
     "719] Received 15 death signal, shutting down workers\nW0101 10:00:00.000000 9 torch/"
     "distributed/elastic/multiprocessing/api.py:766] Closing process 77 via signal SIGTERM"),
    # -- MPI, UCX, Gloo
    ("mpi.slots", f"{RULE}\nThere are not enough slots available in the system to satisfy the 16\n"
     f'slots that were requested by the application:\n\n  ./a.out\n\nA "slot" is the PRRTE term\n{RULE}'),
    ("mpi.hostfile", f"{RULE}\nOpen RTE was unable to open the hostfile:\n    machines.txt\n{RULE}"),
    ("mpi.tcp_iface", "[trainer-a][[4711,1],0][btl_tcp_endpoint.c:636:mca_btl_tcp_endpoint_recv_"
     "connect_ack] received unexpected process identifier [[4711,1],3]"),
    ("mpi.tcp_iface", "[1700000000.1] [trainer-a:77:0]  sock.c:323  UCX  ERROR   connect(fd=9, "
     "dest_addr=172.17.0.1:40001) failed: Connection refused\n[trainer-a:77] pml_ucx.c:424  Error: "
     "ucp_ep_create(proc=1) failed: Destination is unreachable"),
    ("mpi.pml_mismatch", "[trainer-a:88] [[99,1],2] selected pml ob1, but peer [[99,1],0] on "
     "trainer-b selected pml ucx"),
    ("mpi.not_cuda_aware", "[trainer-a:88:0:88] Caught signal 11 (Segmentation fault: invalid "
     "permissions for mapped object at address 0x7f2200000000)"),
    ("mpi.openib_notice", f"{RULE}\nBy default, for Open MPI 4.0 and later, infiniband ports on a "
     f"device\nare not used by default.\n\n  Local host:              trainer-a\n{RULE}"),
    ("ucx.retry_exceeded", "[trainer-a:5:0:5] ib_mlx5_log.c:170  Transport retry count exceeded on "
     "mlx5_2:1/RoCE (synd 0x15 vend 0x81 hw_synd 0/0)\n[trainer-a:5:0:5] ib_mlx5_log.c:170  RC QP "
     "0x4a wqe[0]: SEND --e [rqpn 0x99 sgix 1 dgid ::ffff:10.3.0.2 tc 0]"),
    ("ucx.unreachable", "[1700000000.1] [trainer-a:77:0] select.c:410 UCX  ERROR no active messages "
     "transport to <no debug data>: tcp/eno1 - Destination is unreachable"),
    ("ucx.memlock", "[1700000000.1] [trainer-a:77:0] ib_md.c:300 UCX  ERROR ibv_reg_mr(address="
     "0x7f00, length=4194304, access=0xf) failed: Cannot allocate memory"),
    ("gloo.loopback_hostname", "RuntimeError: Gloo connectFullMesh failed with [gloo/transport/tcp/"
     "pair.cc:144] no error. SO_ERROR: Connection refused, remote=[127.0.1.1]:34567"),
    ("gloo.iface_syntax", "RuntimeError: [enforce fail at gloo/transport/tcp/device.cc:84] ifa != "
     "nullptr. Unable to find address for: ^docker0"),
    # -- topology
    ("topo.ring_crosses_pcie", "# nGpus 2  4294967296 bytes  busbw 196 GB/s\n# nGpus 4  4294967296 "
     "bytes  busbw 18 GB/s"),
    ("topo.ring_crosses_pcie", TABLE.format("NV4", "SYS") + f"{NODE}NCCL INFO Channel 00/0 : 1[1] "
     "-> 2[2] via P2P/IPC"),
    ("topo.pcie_only", TABLE.format("PHB", "SYS")),
    ("topo.nvlink_islands", TABLE.format("NV4", "SYS")),
    ("topo.full_nvlink", TABLE.format("NV12", "NV12")),
    ("topo.single_gpu", "\tGPU0\tCPU Affinity\nGPU0\t X \t0-31"),
]  # fmt: skip
