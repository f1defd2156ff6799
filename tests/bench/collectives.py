"""The course's own schedules beside the library's collective, in one run, as ratios.

Four ranks on Gloo or Open MPI, 1 KiB to 64 MiB: for each size the library's time, and how many
times as fast each schedule is (above 1: faster than the library). Prints only; machines are noisy.

    python tests/bench/collectives.py [--collective all_reduce] [--ranks 4] [--most 64M] [--mpi]
"""

import argparse

from coursekit import Ranks
from coursekit.measure import sizes, sweep
from coursekit.measure.cli import parse_size
from coursekit.schedule import algorithms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--collective", default="all_reduce")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--most", default="64M")
    parser.add_argument("--mpi", action="store_true", help="over MPI, beside MPI's own collective")
    asked = parser.parse_args()
    names = algorithms(asked.collective)
    wanted = sizes(1024, parse_size(asked.most), 4)
    launcher, over = ("mpi", "mpi") if asked.mpi else ("local", None)
    with Ranks(asked.ranks, "gloo", launcher, timeout=600) as ranks:
        done = sweep(ranks, asked.collective, wanted, ["library", *names], backend=over, warmup=3)
    library = done.of("library")
    where = f"{asked.collective}, {asked.ranks} ranks, {done.backend}"
    print(f"{where}; ratios: library's time / own time\n")
    print(f"{'bytes':>10}{'library us':>12}" + "".join(f"{n:>20}" for n in names))
    for i, base in enumerate(library):
        ratios = (base.time_us / done.of(n)[i].time_us for n in names)
        print(f"{base.size:10}{base.time_us:12.0f}" + "".join(f"{r:20.2f}" for r in ratios))
    if any(row.wrong for row in done.rows):
        raise SystemExit("a result was wrong")


if __name__ == "__main__":
    main()
