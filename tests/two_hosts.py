"""Run by two_hosts.sh: attach two torchrun nodes to one notebook and reduce over the link."""

import subprocess
from pathlib import Path

import torch

from coursekit import Ranks


def received() -> int:
    lines = Path("/proc/net/dev").read_text().splitlines()
    return next(int(line.split(":")[1].split()[0]) for line in lines if "left:" in line)


def main() -> None:
    with Ranks(4, launcher="attach", host="10.77.0.1") as ranks:
        line = ranks.command().replace("--nproc-per-node 4", "--nproc-per-node 2 --nnodes 2 {node}")
        meet = "--node-rank {} --master-addr 10.77.0.1 --master-port 29511"
        jobs = [
            subprocess.Popen(f"{inside} {line.format(node=meet.format(n))}", shell=True)
            for n, inside in enumerate(["env", "ip netns exec other env"])
        ]
        ranks.wait()
        before = received()

        def work() -> float:
            x = torch.full((1 << 20,), float(rank))  # noqa: F821
            dist.all_reduce(x)  # noqa: F821
            return x[-1].item()

        print(f"sum={ranks.run(work)}", flush=True)
        print(f"bytes={received() - before}", flush=True)
        hosts = [h["address"] for _, h in sorted(ranks._launcher._hellos.items())]
        print(f"hosts={' '.join(hosts)}", flush=True)
    for job in jobs:
        job.wait(20)


if __name__ == "__main__":
    main()
