"""The course's own schedules beside the library's collective, in one run, as ratios.

Four ranks on Gloo or Open MPI, 1 KiB to 64 MiB: for each size the library's time, how many times as
fast each schedule is (above 1: faster than the library), and the best of them. Rounds take turns,
and the median over rounds is printed. Prints only; machines are noisy.

    python tests/bench/collectives.py [--collective all_reduce] [--ranks 4] [--most 64M]
    python tests/bench/collectives.py --mpi            # beside MPI's own choice
    python tests/bench/collectives.py --mpi --ring     # beside MPI's AllReduce, forced to its ring
"""

import argparse
import os
import statistics

from coursekit import Ranks
from coursekit.measure import sizes, sweep
from coursekit.measure.cli import parse_size
from coursekit.schedule import algorithms

# Open MPI's number for the ring: `ompi_info --param coll tuned --level 9`.
FORCED = {
    "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
    "OMPI_MCA_coll_tuned_allreduce_algorithm": "4",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--collective", default="all_reduce")
    parser.add_argument("--algorithms", default="", help="some, with commas; all by default")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--least", default="1K")
    parser.add_argument("--most", default="64M")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mpi", action="store_true", help="over MPI, beside MPI's own collective")
    parser.add_argument("--ring", action="store_true", help="with --mpi: force MPI's ring")
    asked = parser.parse_args()
    if asked.ring:
        os.environ |= FORCED
    names = asked.algorithms.split(",") if asked.algorithms else algorithms(asked.collective)
    launcher, over = ("mpi", "mpi") if asked.mpi else ("local", None)
    print(f"{asked.collective}, {asked.ranks} ranks, {over or 'gloo'}; library's time / own time\n")
    print(f"{'bytes':>10}{'library us':>12}" + "".join(f"{n:>20}" for n in names) + f"{'best':>8}")
    with Ranks(asked.ranks, "gloo", launcher, timeout=600) as ranks:
        for nbytes in sizes(parse_size(asked.least), parse_size(asked.most), 4):
            rounds = [
                sweep(ranks, asked.collective, [nbytes], ["library", *names], backend=over).rows
                for _ in range(asked.rounds)
            ]
            if any(row.wrong for rows in rounds for row in rows):
                raise SystemExit("a result was wrong")
            times = [[row.time_us for row in rows] for rows in rounds]
            ratios = [
                statistics.median(row[0] / row[n] for row in times)
                for n in range(1, len(names) + 1)
            ]
            library = statistics.median(row[0] for row in times)
            cells = "".join(f"{r:20.2f}" for r in ratios) + f"{max(ratios):8.2f}"
            print(f"{nbytes:10}{library:12.0f}{cells}", flush=True)


if __name__ == "__main__":
    main()
