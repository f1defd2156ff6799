"""Schedules run on real ranks, against the library's own collective."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from coursekit import schedule
from coursekit.comm import CommError, connect, execute
from coursekit.ranks import RankFailed

from .ranks_help import clean_ranks

DTYPES = ("float16", "bfloat16", "float32", "float64", "int32", "int64", "uint8")
ROOTED = {"broadcast", "reduce", "scatter", "gather"}


def every_algorithm(size, collective):
    """Each schedule of a collective; roots at both ends."""
    roots = sorted({0, size - 1}) if collective in ROOTED else [None]
    for name in schedule.algorithms(collective):
        for root in roots:
            more = {} if root is None else {"root": root}
            yield schedule.build(collective, name, size, **more)


def inputs(size, length, dtype):
    """Small whole numbers, exact in every dtype, another on each rank."""
    kind = getattr(torch, dtype)
    return [((torch.arange(length) + r) % 3 + 1).to(kind) for r in range(size)]


def reference(collective, x, rank, size, root):
    """What the library's collective gives on this rank."""
    import torch.distributed as dist

    block = x.numel() // size
    match collective:
        case "all_reduce":
            out = x.clone()
            dist.all_reduce(out)
        case "reduce":
            out = x.clone()
            dist.reduce(out, root)
        case "broadcast":
            out = x.clone()
            dist.broadcast(out, root)
        case "all_gather":
            out = torch.empty_like(x)
            dist.all_gather_into_tensor(out, x[rank * block : (rank + 1) * block].clone())
        case "reduce_scatter":
            out = x[:block].clone()
            dist.reduce_scatter_tensor(out, x.clone())
        case "all_to_all":
            out = torch.empty_like(x)
            dist.all_to_all_single(out, x.clone())
        case "scatter":
            out = x[:block].clone()
            dist.scatter(out, list(x.clone().chunk(size)) if rank == root else None, root)
        case "gather":
            parts = [torch.empty_like(x[:block]) for _ in range(size)] if rank == root else None
            dist.gather(x[rank * block : (rank + 1) * block].clone(), parts, root)
            out = torch.cat(parts) if rank == root else None
    return out


def own_part(s, result, rank):
    """The part of the result buffer that the collective promises to this rank."""
    block = result.numel() // s.size
    if s.collective in ("reduce", "gather") and rank != s.root:
        return None
    if s.collective in ("reduce_scatter", "scatter"):
        return result[rank * block : (rank + 1) * block]
    return result


def compare(schedules, buffers):
    """On a rank: run every schedule, return those whose result differs from the library's."""
    comm = connect()
    wrong = []
    for s in schedules:
        for x in (b[comm.rank] for b in buffers):
            if s.collective in ("all_gather", "reduce_scatter", "all_to_all", "scatter", "gather"):
                x = x[: x.numel() // s.chunks * s.chunks]
                if not x.numel():
                    continue
            if s.needs_equal_chunks and x.numel() % s.chunks:
                continue
            expected = reference(s.collective, x, comm.rank, comm.size, s.root)
            got = own_part(s, execute(s, comm, x.clone()), comm.rank)
            if got is not None and not torch.equal(got, expected):
                wrong.append(f"{s!r} {x.dtype} of {x.numel()}: {got} instead of {expected}")
    return wrong


@pytest.fixture(scope="module", params=range(1, 9))
def gloo(request):
    with clean_ranks(request.param, backend="gloo") as ranks:
        yield ranks


COLLECTIVES = [
    "all_reduce", "reduce", "broadcast", "all_gather",
    "reduce_scatter", "all_to_all", "scatter", "gather",
]  # fmt: skip


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_algorithm_gives_what_the_library_gives_on_gloo(gloo, collective):
    schedules = list(every_algorithm(gloo.size, collective))
    assert schedules
    buffers = [inputs(gloo.size, n, "float32") for n in (0, 1, 7, 48, 1200)]
    buffers += [inputs(gloo.size, 120, d) for d in DTYPES]
    for wrong in gloo.run(compare, schedules, buffers, timeout=120):
        assert wrong == []


def test_long_messages_are_cut_and_added_piece_by_piece(gloo):
    """The same results when everything that is added travels in segments of 64 bytes."""
    names = ("all_reduce", "reduce", "reduce_scatter")
    schedules = [s for name in names for s in every_algorithm(gloo.size, name)]
    buffers = [inputs(gloo.size, n, d) for n, d in ((840, "float32"), (1680, "uint8"))]

    def work():
        from coursekit.comm import _execute

        _execute.SEGMENT, kept = 64, _execute.SEGMENT
        try:
            return compare(schedules, buffers)
        finally:
            _execute.SEGMENT = kept

    assert gloo.run(work, timeout=120) == [[]] * gloo.size


def test_beside_the_buffer_a_ring_takes_at_most_a_chunk_a_peer():
    """Memory that torch asked for while a ring of four ranks ran, counted by a dispatch mode."""
    length = 4 * (6 << 20)

    def work():
        from torch.utils._python_dispatch import TorchDispatchMode

        class Asked(TorchDispatchMode):
            bytes = 0

            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                out = func(*args, **(kwargs or {}))
                if func.overloadpacket.__name__ in ("new_empty", "empty", "clone", "cat"):
                    Asked.bytes += out.nbytes
                return out

        x = torch.ones(length)
        with Asked():
            execute(schedule.build("all_reduce", "ring", size), connect(), x)  # noqa: F821
        assert torch.equal(x, torch.full_like(x, size))  # noqa: F821
        return Asked.bytes

    with clean_ranks(4, backend="gloo") as ranks:
        chunk = length // 4 * 4
        assert all(0 < asked <= 3 * chunk for asked in ranks.run(work))


def mpi_reference(collective, x, comm, root):
    """What MPI's own collective gives on this rank; None where it does not know the dtype."""
    from mpi4py import MPI

    if x.dtype in (torch.float16, torch.bfloat16):
        return None
    rank, block = comm.Get_rank(), x.numel() // comm.Get_size()
    mine, out = x.numpy().copy(), x.numpy().copy()
    own = mine[rank * block : (rank + 1) * block].copy()
    match collective:
        case "all_reduce":
            comm.Allreduce(MPI.IN_PLACE, out)
        case "reduce":
            comm.Reduce(mine, out if rank == root else None, root=root)
        case "broadcast":
            comm.Bcast(out, root)
        case "all_gather":
            comm.Allgather(own, out)
        case "reduce_scatter":
            out = out[:block].copy()
            comm.Reduce_scatter_block(mine, out)
        case "all_to_all":
            comm.Alltoall(mine, out)
        case "scatter":
            out = out[:block].copy()
            comm.Scatter(mine if rank == root else None, out, root)
        case "gather":
            comm.Gather(own, out if rank == root else None, root)
    return torch.from_numpy(out)


def compare_on_mpi(schedules, buffers):
    """On a rank: run every schedule over MPI, return those that differ from MPI's collective."""
    communicator = comm  # noqa: F821 - the rank's mpi4py communicator
    mine = connect(communicator)
    assert mine.name == "mpi"
    wrong = []
    for s in schedules:
        for x in (b[mine.rank] for b in buffers):
            if s.collective != "all_reduce" or s.needs_equal_chunks:
                x = x[: x.numel() // s.chunks * s.chunks]
            expected = mpi_reference(s.collective, x, communicator, s.root)
            if expected is None:
                expected = reference(s.collective, x, mine.rank, mine.size, s.root)
            got = own_part(s, execute(s, mine, x.clone()), mine.rank)
            if got is not None and not torch.equal(got, expected):
                wrong.append(f"{s!r} {x.dtype} of {x.numel()}: {got} instead of {expected}")
    return wrong


@pytest.mark.needs("mpirun")
@pytest.mark.parametrize("size", range(1, 9))
def test_every_algorithm_gives_what_mpi_gives(size):
    buffers = [inputs(size, n, "float32") for n in (0, 1, 7, 48, 1200)]
    buffers += [inputs(size, 48, d) for d in DTYPES]
    with clean_ranks(size, launcher="mpi") as ranks:
        for collective in COLLECTIVES:
            schedules = list(every_algorithm(size, collective))
            for wrong in ranks.run(compare_on_mpi, schedules, buffers, timeout=200):
                assert wrong == []


@pytest.mark.parametrize("op", ["min", "max", "prod", "avg"])
def test_other_operations_match_the_library(gloo, op):
    schedules = list(every_algorithm(gloo.size, "all_reduce"))
    buffers = inputs(gloo.size, 60, "float64")

    def work():
        kind = {"min": "MIN", "max": "MAX", "prod": "PRODUCT", "avg": "SUM"}[op]
        expected = buffers[rank].clone()  # noqa: F821
        dist.all_reduce(expected, op=getattr(dist.ReduceOp, kind))  # noqa: F821
        if op == "avg":
            expected /= size  # noqa: F821
        got = [execute(s, connect(), buffers[rank].clone(), op) for s in schedules]  # noqa: F821
        return [
            repr(s) for s, g in zip(schedules, got, strict=True) if not torch.allclose(g, expected)
        ]

    assert gloo.run(work) == [[]] * gloo.size


def test_a_barrier_waits_for_the_last(gloo):
    steps = list(every_algorithm(gloo.size, "barrier"))

    def work():
        import time

        came = []
        for s in steps:
            time.sleep(0.05 * (rank == size - 1))  # noqa: F821
            before = time.monotonic()
            execute(s, connect(), torch.empty(0))
            came.append((before, time.monotonic()))
        return came

    for per_schedule in zip(*gloo.run(work), strict=True):
        last_in = max(before for before, _ in per_schedule)
        assert all(out >= last_in for _, out in per_schedule)


@pytest.mark.parametrize(
    ("make", "op", "says"),
    [
        (lambda: torch.ones(4, 4), "sum", "one-dimensional and contiguous"),
        (lambda: torch.ones(8)[::2], "sum", "one-dimensional and contiguous"),
        (lambda: torch.ones(4), "mean", "op must be one of"),
        (lambda: torch.ones(4, dtype=torch.int64), "avg", "avg needs a float dtype"),
    ],
)
def test_a_buffer_or_op_that_cannot_be_is_refused_on_every_rank(two, make, op, says):
    ring = schedule.build("all_reduce", "ring", 2)
    with pytest.raises(RankFailed, match=says):
        two.run(lambda: execute(ring, connect(), make(), op))


def test_a_schedule_of_another_size_is_refused(two):
    ring = schedule.build("all_reduce", "ring", 3)
    with pytest.raises(RankFailed, match="as many ranks as the communicator, got 3 for 2"):
        two.run(lambda: execute(ring, connect(), torch.ones(3)))


def test_connect_says_what_it_takes():
    with pytest.raises(CommError, match="needs an initialised process group"):
        connect()
    with pytest.raises(CommError, match="process group or an mpi4py communicator, got int"):
        connect(3)


@pytest.mark.needs("mpirun")
def test_mpi_says_whether_it_takes_gpu_memory_and_refuses_what_it_cannot_take():
    def ask():
        from coursekit.comm._mpi import cuda_aware

        mine = connect(comm)  # noqa: F821
        try:
            mine.isend(torch.empty(3, device="meta"), 0)
        except CommError as error:
            return cuda_aware(), str(error)

    said = subprocess.run(
        ["ompi_info", "--parsable", "--all"],
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    built_so = "mpi_built_with_cuda_support:value:true" in said.stdout
    with clean_ranks(1, launcher="mpi") as ranks:
        ((aware, refusal),) = ranks.run(ask)
    assert aware is built_so
    assert "got a buffer on meta; copy it with .cpu()" in refusal
