"""`sweep` beside loops that others would write, in one run: OSU's on MPI, a plain one on torch.

The loops are those of mpi4py's OSU demos: a barrier, calls to warm up, then calls back to back, on
rank 0. OSU divides the whole time by the number of calls; on a busy machine such a mean holds every
stall, so here the clock is read ten times on the way and the median taken, as the sweep does.
Every round measures all of them one after the other on the same ranks, in changing order. Two
ratios: the median over the rounds, and that of both sides' lower quartiles. Prints only.

    python tests/bench/agreement.py [--ranks 4] [--rounds 9] [--collectives all_reduce]
"""

import argparse
import statistics
import time
from itertools import pairwise

from coursekit import Ranks
from coursekit.comm.names import all_gather_whole
from coursekit.measure import sweep

SIZES = (8, 16 << 20)
BATCHES = 10
COLLECTIVES = ("all_reduce", "all_gather", "broadcast")


def calls_for(nbytes):
    """Calls to warm up, and calls of a batch: fewer of the large ones, as OSU does."""
    return (20, 30) if nbytes <= 8192 else (3, 2)


def osu_loop(collective, nbytes):
    """On a rank: seconds a call of MPI's collective; bytes of the whole buffer."""
    import torch
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    skip, loop = calls_for(nbytes)
    size = max(nbytes, 4 * comm.Get_size()) if collective == "all_gather" else nbytes
    # torch's memory, as in the sweep: numpy's lies on huge pages, which alone makes it faster.
    data = torch.ones(size // 4).numpy()
    part = torch.ones(size // 4 // comm.Get_size()).numpy()
    call = {
        "all_reduce": lambda: comm.Allreduce(MPI.IN_PLACE, data),
        "all_gather": lambda: comm.Allgather(part, data),
        "broadcast": lambda: comm.Bcast(data, 0),
    }[collective]
    comm.Barrier()
    for _ in range(skip):
        call()
    marks = [MPI.Wtime()]
    for _ in range(BATCHES):
        for _ in range(loop):
            call()
        marks.append(MPI.Wtime())
    comm.Barrier()
    return statistics.median(b - a for a, b in pairwise(marks)) / loop


def torch_loop(collective, nbytes):
    """On a rank: seconds a call of torch.distributed's collective."""
    import torch
    import torch.distributed as dist

    ranks = dist.get_world_size()
    skip, loop = calls_for(nbytes)
    size = max(nbytes, 4 * ranks) if collective == "all_gather" else nbytes
    data, part = torch.ones(size // 4), torch.ones(size // 4 // ranks)
    call = {
        "all_reduce": lambda: dist.all_reduce(data),
        "all_gather": lambda: all_gather_whole()(data, part),
        "broadcast": lambda: dist.broadcast(data, 0),
    }[collective]
    dist.barrier()
    for _ in range(skip):
        call()
    marks = [time.perf_counter()]
    for _ in range(BATCHES):
        for _ in range(loop):
            call()
        marks.append(time.perf_counter())
    dist.barrier()
    return statistics.median(b - a for a, b in pairwise(marks)) / loop


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--collectives", default=",".join(COLLECTIVES))
    asked = parser.parse_args()
    print(f"{asked.ranks} ranks; microseconds a call: median over {asked.rounds} rounds\n")
    heads = (
        "collective",
        "bytes",
        "over",
        "loop us",
        "sweep us",
        "ratio",
        "least",
        "least",
        "ratio",
    )
    print("{:>11}{:>10}{:>6}{:>11}{:>11}{:>8}{:>11}{:>11}{:>8}".format(*heads))
    with Ranks(asked.ranks, launcher="mpi", backend="gloo", timeout=600) as ranks:
        for collective in asked.collectives.split(","):
            for nbytes in SIZES:
                for over, loop in (("mpi", osu_loop), ("gloo", torch_loop)):
                    compare(ranks, collective, nbytes, over, loop, asked.rounds)


def compare(ranks, collective, nbytes, over, loop, rounds):
    own, other = [], []
    for i in range(rounds):
        for mine in (i % 2 == 0, i % 2 == 1):
            if mine:
                own.append(sweep(ranks, collective, [nbytes], backend=over).rows[0].time_us)
            else:
                other.append(ranks.run(loop, collective, nbytes)[0] * 1e6)
    ratio = statistics.median(a / b for a, b in zip(own, other, strict=True))
    medians = f"{statistics.median(other):11.1f}{statistics.median(own):11.1f}{ratio:8.2f}"
    low, base = (statistics.quantiles(times, n=4)[0] for times in (own, other))
    quartiles = f"{base:11.1f}{low:11.1f}{low / base:8.2f}"
    print(f"{collective:>11}{nbytes:10}{over:>6}{medians}{quartiles}", flush=True)


if __name__ == "__main__":
    main()
