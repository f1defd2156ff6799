"""Ranks that do not call the same things, or wait for each other."""

from __future__ import annotations

from coursekit.diagnose.forge import _nccl, _recorder, _torch
from coursekit.diagnose.forge._faults import fault
from coursekit.diagnose.forge._log import Log


def _forms(log: Log, *forms: str) -> str:
    return log.rng.choice(forms)


def _seq(log: Log) -> int:
    return log.rng.randrange(30, 90_000)


@fault("coll.order_mismatch", least=(1, 4), version=(2, 19))
def order(log: Log) -> None:
    odd, seq, size = log.some(0), _seq(log), log.cluster.size
    form = _forms(log, "calls", "watchdog", "prints", "dumps")
    if form == "calls":
        _nccl.setup(log)
        _nccl.calls(log, seq - 3, seq)
        for rank in range(size):
            name, count = ("AllGather", 480) if rank == odd else ("AllReduce", 4096)
            _nccl.call(log, rank, seq, name, count)
    elif form == "watchdog":
        for rank in range(size):
            op = "_ALLGATHER_BASE" if rank == odd else "ALLREDUCE"
            _torch.timeouts(log, [rank], seq, op, 4096)
    elif form == "prints":
        _torch.fingerprints(log, (1, seq, "BROADCAST", "1"), (0, seq, "ALLREDUCE", "4096"))
    else:
        _recorder.dumps(log, lambda rank: _recorder.history(
            seq, "started", name="all_gather" if rank == odd else "all_reduce"))  # fmt: skip


@fault("coll.size_mismatch", least=(1, 4), version=(2, 19))
def size(log: Log) -> None:
    odd, seq, ranks = log.some(0), _seq(log), log.cluster.size
    form = _forms(log, "calls", "watchdog", "prints", "dumps", "truncated", "trace")
    if form == "calls":
        _nccl.setup(log)
        _nccl.calls(log, seq - 3, seq)
        for rank in range(ranks):
            _nccl.call(log, rank, seq, "AllReduce", 4098 if rank == odd else 4096)
    elif form == "watchdog":
        for rank in range(ranks):
            _torch.timeouts(log, [rank], seq, "ALLREDUCE", 4098 if rank == odd else 4096)
    elif form == "prints":
        _torch.fingerprints(log, (1, seq, "ALLREDUCE", "4098"), (0, seq, "ALLREDUCE", "4096"))
    elif form == "dumps":
        _recorder.dumps(log, lambda rank: _recorder.history(
            seq, "started", elements=4098 if rank == odd else 4096))  # fmt: skip
    elif form == "truncated":
        log.warn(odd, "transport/net_socket.cc", "NET/Socket : peer 10.0.0.1<40112> message "
                 "truncated : receiving 524288 bytes instead of 65536")  # fmt: skip
    else:
        log.plain(f"Collective {seq} at entry 38 errors\ngroup info: 0:default_pg\ncollective: "
                  f"nccl:all_reduce\nerror msg: Culprit rank {odd}; Error type: "
                  "SIZE_OR_SYNTAX_MISMATCH, Expected input sizes: '[[4096]]' does not match found "
                  "input sizes: '[[4098]]'")  # fmt: skip


@fault("coll.count_mismatch", least=(2, 4))
def count(log: Log) -> None:
    seq, ranks, odd = _seq(log), log.cluster.size, log.some(0)
    log.plain("#0-0 (fa93daea854b060b) MISMATCH\n  Communicator ranks have different AllReduce "
              f"operation counts\n  {ranks - 1} ranks have launched up to operation {seq}\n"
              f"  1 ranks have launched up to operation {seq + log.rng.choice((-4, -1, 1, 5))}\n"
              f"  Rank {odd} -- GPU {log.cluster.device(odd)} managed by process "
              f"{log.cluster.pid(odd)} on node {log.cluster.host(odd)}")  # fmt: skip


@fault("coll.missing_rank", least=(1, 4), version=(2, 19))
def missing(log: Log) -> None:
    odd, seq, ranks = log.some(), _seq(log), log.cluster.size
    others = [r for r in range(ranks) if r != odd]
    form = _forms(log, "watchdog", "behind", "desync", "dumps", "absent", "barrier", "monitored")
    if form in ("watchdog", "barrier"):
        _nccl.setup(log)
        elements = 1 if form == "barrier" else 4096
        _torch.timeouts(log, others, seq, "ALLREDUCE", elements)
    elif form == "behind":
        _torch.timeouts(log, others, seq, "ALLREDUCE", 4096, ahead=2)
        _torch.status(log, odd, seq - 1, seq - 1, seq - 2)
    elif form == "desync":
        _torch.timeouts(log, others, seq, "ALLREDUCE", 4096)
        log.plain(f"\t - [{odd}] finished collective #{seq - 1}, but didn't join collective #{seq} "
                  f"(count from 1)\n\t - {others} joined but didn't finish collective #{seq} "
                  "(count from 1)")  # fmt: skip
    elif form == "monitored":
        log.put(0, f"RuntimeError: [Rank 0]: Ranks {odd} failed to pass monitoredBarrier in 10000 "
                   "ms")  # fmt: skip
    else:
        without = (odd,) if form == "absent" else ()
        _recorder.dumps(log, lambda rank: _recorder.history(
            seq, "none" if rank == odd else "started"), without=without)  # fmt: skip


@fault("coll.rank0_only_work", least=(1, 3), version=(2, 19))
def rank0(log: Log) -> None:
    seq, ranks = _seq(log), log.cluster.size
    if log.rng.random() < 0.5:
        _torch.timeouts(log, range(1, ranks), seq, "ALLREDUCE", 1)
    else:
        _recorder.dumps(log, lambda rank: _recorder.history(
            seq, "started" if rank else "none", elements=1))  # fmt: skip


@fault("coll.early_barrier", least=(1, 4), version=(2, 19))
def early(log: Log) -> None:
    odd, seq = log.some(0), _seq(log)
    if log.rng.random() < 0.5:
        for rank in range(log.cluster.size):
            _torch.timeouts(log, [rank], seq, "ALLREDUCE", 1 if rank == odd else 1 << 20)
    else:
        _recorder.dumps(log, lambda rank: _recorder.history(
            seq, "started", elements=1 if rank == odd else 1 << 20))  # fmt: skip


@fault("coll.uneven_inputs", least=(1, 3))
def uneven(log: Log) -> None:
    for rank in range(1, log.cluster.size):
        _torch.stuck(log, rank)


@fault("coll.all_joined_stall", least=(1, 2), version=(2, 19))
def stall(log: Log) -> None:
    seq, ranks = _seq(log), log.cluster.size
    form = _forms(log, "watchdog", "dumps", "desync")
    if form == "dumps":
        _recorder.dumps(log, lambda rank: _recorder.history(seq, "started"))
    elif form == "desync":
        log.plain(f"\t - {list(range(ranks))} joined but didn't finish collective #{seq} (count "
                  "from 1)")  # fmt: skip
    else:
        _nccl.setup(log)
        _torch.timeouts(log, range(ranks), seq, "ALLREDUCE", 466_119_168, ahead=2)


@fault("watchdog.ran_for_exceeds_timeout")
def late(log: Log) -> None:
    seq = _seq(log)
    for rank in range(log.cluster.size):
        _torch.timeout(log, rank, seq, "ALLREDUCE", 4096, seconds=1800,
                       ran=3 + 10 * log.rng.random())  # fmt: skip


@fault("watchdog.teardown", least=(1, 4), version=(2, 26))
def teardown(log: Log) -> None:
    for rank in range(log.cluster.size):
        name = ("EXPERT_MODEL_PARALLEL_GROUP", "TENSOR_MODEL_PARALLEL_GROUP")[rank % 2]
        _torch.stuck(log, rank, group=(12 + rank % 2, name))


@fault("watchdog.stuck")
def stuck(log: Log) -> None:
    for rank in range(log.cluster.size):
        _torch.stuck(log, rank, seconds=log.rng.choice((480, 600)))
