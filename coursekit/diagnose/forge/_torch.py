"""PyTorch's and torchrun's texts, as each version prints them."""

from __future__ import annotations

from collections.abc import Iterable

from coursekit.diagnose.forge._log import Log


def _front(log: Log, rank: int, line: int) -> str:
    if log.cluster.torch_number < (2, 2):
        return f"[E ProcessGroupNCCL.cpp:{line}] "
    return f"[rank{rank}]:[E{log.rng.randrange(101, 1231)} 09:10:00.10000{rank % 10} "\
           f"ProcessGroupNCCL.cpp:{line}] "  # fmt: skip


def _group(log: Log, rank: int, group: tuple[int, str]) -> str:
    number, name = group
    if log.cluster.torch_number >= (2, 5):
        return f"[PG ID {number} PG GUID {number}({name}) Rank {rank}] "
    if log.cluster.torch_number >= (2, 4):
        return f"[PG {number} Rank {rank}] "
    return f"[Rank {rank}] "


DEFAULT = (0, "default_pg")


def timeout(
    log: Log, rank: int, seq: int, op: str, elements: int, *, seconds: int = 600,
    ran: float = 1.0, group: tuple[int, str] = DEFAULT,
) -> None:  # fmt: skip
    """The watchdog's line about a collective that did not end."""
    numel = f"NumelIn={elements}, NumelOut={elements}, "
    if log.cluster.torch_number < (2, 2):
        numel = ""
    spent = int(seconds * 1000 * ran) + log.rng.randrange(90)
    work = f"WorkNCCL(SeqNum={seq}, OpType={op}, {numel}Timeout(ms)={seconds * 1000})"
    who = f"[Rank {rank}] "
    if log.cluster.torch_number >= (2, 6) and log.rng.random() < 0.5:
        who = _group(log, rank, group)
    told = f"{who}Watchdog caught collective operation timeout: {work}"
    log.put(rank, f"{_front(log, rank, 616)}{told} ran for {spent} milliseconds before timing out.")


def status(
    log: Log, rank: int, at: int, enqueued: int, completed: int, *, group: tuple[int, str] = DEFAULT
) -> None:
    """Where a rank's group stands, in the wording of the version; none before 2.2."""
    number = log.cluster.torch_number
    last = f"last enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}."
    if number < (2, 2):
        return
    if number < (2, 4):
        told = f"Timeout at NCCL work: {at}, {last}"
    elif number < (2, 6):
        told = f"Exception (either an error or timeout) detected by watchdog at work: {at}, {last}"
    else:
        begun = f"last started work: {at}, " if number >= (2, 14) else ""
        told = (f"failure detected by watchdog at work sequence id: {at} PG status: last enqueued "
                f"work: {enqueued}, {begun}last completed work: {completed}")  # fmt: skip
    log.put(rank, f"{_front(log, rank, 1785)}{_group(log, rank, group)}{told}")


def timeouts(
    log: Log, ranks: Iterable[int], seq: int, op: str, elements: int, *, seconds: int = 600,
    ahead: int = 0,
) -> None:  # fmt: skip
    """Time-out and status of several ranks at one number."""
    for rank in ranks:
        timeout(log, rank, seq, op, elements, seconds=seconds)
        status(log, rank, seq, seq + ahead, seq - 1)


def stuck(log: Log, rank: int, *, seconds: int = 480, group: tuple[int, str] = DEFAULT) -> None:
    """The heartbeat monitor's line."""
    told = f"ProcessGroupNCCL's watchdog got stuck for {seconds} seconds without making progress "
    log.put(rank, f"{_front(log, rank, 1870)}{_group(log, rank, group)}{told}"
                  "in monitoring enqueued collectives.")  # fmt: skip


def fingerprints(log: Log, a: tuple[int, int, str, str], b: tuple[int, int, str, str]) -> None:
    """DETAIL's message: rank, sequence number, operation, shape of both."""
    options = "TensorOptions(dtype=float (default), device=cuda)"

    def one(told: tuple[int, int, str, str]) -> str:
        rank, seq, op, shape = told
        tensor = f", TensorShape=[{shape}], TensorDtypes=Float, TensorDeviceTypes={options}"
        return (f"Rank {rank} is running collective: CollectiveFingerPrint(SequenceNumber={seq}, "
                f"OpType={op}{tensor if shape else ''})")  # fmt: skip

    aspect = "Op type" if a[2] != b[2] else "Tensor Tensor shapes"
    values = (a[2], b[2]) if a[2] != b[2] else (a[3], b[3])
    log.put(a[0], f"[rank{a[0]}]: RuntimeError: Detected mismatch between collectives on ranks. "
                  f"{one(a)}, but {one(b)}.Collectives differ in the following aspects: \t {aspect}"
                  f": {values[0]}vs {values[1]}")  # fmt: skip


def nccl_error(log: Log, rank: int, told: str, kind: str, last: str) -> None:
    """An error of NCCL's as an exception of torch's."""
    version = log.cluster.version
    log.put(rank, f"[rank{rank}]: torch.distributed.DistBackendError: NCCL error in: "
                  f"../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, {told} (run with "
                  f"NCCL_DEBUG=WARN for details), NCCL version {version}")  # fmt: skip
    log.put(rank, f"{kind}: see the line below.")
    log.put(rank, f"Last error:\n{last}")


def sigterm(log: Log, pids: Iterable[int]) -> None:
    """The agent ends the workers that are left, in either wording."""
    old = log.cluster.torch_number < (2, 3)
    for pid in pids:
        if old:
            log.plain("WARNING:torch.distributed.elastic.multiprocessing.api:Sending process "
                      f"{pid} closing signal SIGTERM")  # fmt: skip
        else:
            front = (
                "W0227 17:39:41.936000 2938 torch/distributed/elastic/multiprocessing/api.py:766]"
            )
            log.plain(f"{front} Closing process {pid} via signal SIGTERM")


def summary(log: Log, rank: int, code: int, told: str) -> None:
    """Torchrun's block about the first failure."""
    c = log.cluster
    local, pid, line = c.device(rank), c.pid(rank), "=" * 60
    front = "E0227 17:39:42.100000 2938 torch/distributed/elastic/multiprocessing/api.py:869]"
    log.plain(f"{front} failed (exitcode: {code}) local_rank: {local} (pid: {pid}) of binary: py")
    log.plain(f"""{line}
train.py FAILED
{"-" * 60}
Failures:
  <NO_OTHER_FAILURES>
{"-" * 60}
Root Cause (first observed failure):
[0]:
  time      : 2026-02-27_17:39:41
  host      : {c.host(rank)}
  rank      : {rank} (local_rank: {local})
  exitcode  : {code} (pid: {pid})
  error_file: <N/A>
  traceback : {told}
{line}""")
