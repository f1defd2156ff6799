"""One slow pair among real links: algorithms measured, beside what the bytes alone need.

Ranks in network namespaces, every pair at one rate and one pair at a tenth of it. The closed form
of a ring across the pair is 2 (K-1) S/K bytes over its rate; for the others the simulator's links
alone (alpha 0) are printed. Both count what goes over the wire, headers too. Prints only.

    python tests/bench/faults.py [--ranks 8] [--mib 4] [--rate "200 Mbit/s"] [--slow "20 Mbit/s"]
"""

from __future__ import annotations

import argparse
import statistics

from coursekit import cost, faults, schedule, topology


def timed(plan, count):
    """Seconds of one all_reduce on this rank; None is Gloo's own."""
    import time

    import torch
    import torch.distributed as dist

    from coursekit.comm import connect, execute

    comm, x = connect(), torch.ones(count)
    dist.barrier()
    began = time.perf_counter()
    if plan is None:
        dist.all_reduce(x)
    else:
        execute(plan, comm, x)
    return time.perf_counter() - began


def table(asked: argparse.Namespace, pair: tuple[int, int]) -> None:
    """Measure all ways with one pair slow."""
    size, count = asked.ranks, (asked.mib << 20) // 4
    with faults.cluster(size, asked.rate, slow={pair: asked.slow}, way=asked.way) as cluster:
        links = cluster.topology()
        around = topology.best_ring(links).ranks
        ring = schedule.build("all_reduce", "ring", size)
        ways = {
            "ring in order": ring,
            f"ring {'-'.join(map(str, around))}": ring.relabel(around),
            "tree": schedule.build("all_reduce", "tree", size),
            "double tree": schedule.build("all_reduce", "double_tree", size),
            "Gloo's own": None,
        }
        print(cluster)
        print(f"{asked.mib} MiB, {'ms':>32}  links alone   ratio")
        for name, plan in ways.items():
            runs = [max(cluster.ranks.run(timed, plan, count)) for _ in range(asked.runs)]
            took = statistics.median(runs) * 1e3
            said = "" if plan is None else predicted(plan, links, count, took, cluster.overhead)
            print(f"{name:30}{took:10.0f}{said}", flush=True)
    print()


def predicted(plan, links, count: int, took: float, wire: float) -> str:
    rounds = cost.rounds_of(plan, count, 4)
    alone = cost.simulate(rounds, links).seconds * 1e3 * wire
    return f"{alone:13.0f}{took / alone:8.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--mib", type=int, default=4)
    parser.add_argument("--rate", default="200 Mbit/s")
    parser.add_argument("--slow", default="20 Mbit/s")
    parser.add_argument("--way", default="auto", choices=("auto", "root", "user", "tun", "paced"))
    parser.add_argument("--runs", type=int, default=5)
    asked = parser.parse_args()
    for pair in ((0, asked.ranks - 1), (0, asked.ranks // 2)):
        table(asked, pair)
    fast(asked)


def fast(asked: argparse.Namespace) -> None:
    """How close links of other rates come, between two ranks: a message one way."""
    for rate in ("50 Mbit/s", "1 Gbit/s", "4 Gbit/s", "10 Gbit/s"):
        with faults.cluster(2, rate, way=asked.way) as cluster:
            bits = faults.parse_rate(rate)
            count = max(1 << 18, bits // 8 // 8)  # a quarter of a second or more
            plan = schedule.build("broadcast", "binomial", 2)
            seconds = statistics.median(
                cluster.ranks.run(timed, plan, count)[1] for _ in range(asked.runs)
            )
            got = 8 * 4 * count * cluster.overhead / seconds
        print(f"asked for {rate:12} got {got / 1e6:8.0f} Mbit/s on the wire")


if __name__ == "__main__":
    main()
