"""The simulator's time and memory: rings of 16,384 ranks, and an irregular network of 1,024.

Each case runs in a process of its own, whose peak memory is printed. Prints only; a ring over 1 s
and fair sharing over 10 s are marked. Building the cluster's graph is timed apart.

    python tests/bench/simulate.py
"""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import time

import networkx as nx

from coursekit import cost, topology
from coursekit.topology.machine import Topology, graph_of

CASES = [
    ("cluster", "ring", "bottleneck", 1.0),
    ("irregular", "ring", "fair", 10.0),
    ("irregular", "halving_doubling", "fair", 10.0),
    ("irregular", "double_tree", "bottleneck", 10.0),
]


def irregular(size: int) -> Topology:
    """GPUs on 128 switches that are joined at random, by links of three speeds."""
    rng = random.Random(0)
    switches = nx.random_regular_graph(6, 128, seed=1)
    ranks = tuple(f"GPU{k}" for k in range(size))
    nodes = [(g, "gpu", "") for g in ranks] + [(f"s{k}", "leaf", "") for k in range(128)]
    edges = [(g, f"s{k % 128}", "network", 1, rng.choice([1e10, 2e10, 5e10]))
             for k, g in enumerate(ranks)]  # fmt: skip
    edges += [(f"s{a}", f"s{b}", "network", 1, rng.choice([1e10, 4e10, 1e11]))
              for a, b in switches.edges]  # fmt: skip
    return Topology("irregular", graph_of(nodes, edges), ranks)


def one(index: int) -> None:
    """Run one case and print its row."""
    kind, algorithm, sharing, limit = CASES[index]
    begin = time.perf_counter()
    made = topology.cluster("hgx-h100", 2048) if kind == "cluster" else irregular(1024)
    built = time.perf_counter() - begin
    begin = time.perf_counter()
    rounds = cost.rounds("all_reduce", algorithm, made.size, 1 << 30)
    found = cost.simulate(rounds, made, alpha=1e-6, sharing=sharing)
    took = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(
        f"{kind:10} {made.size:6} ranks {algorithm:17} {sharing:10} graph {built:5.2f} s, "
        f"simulated in {took:6.2f} s, {peak / 1e6:4.0f} MB: all_reduce of 1 GiB takes "
        f"{found.seconds:.3f} s{'   OVER ITS LIMIT' if took > limit else ''}",
        flush=True,
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        one(int(sys.argv[1]))
    else:
        for index in range(len(CASES)):
            subprocess.run([sys.executable, __file__, str(index)], check=True)
