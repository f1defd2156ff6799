"""The course's parallel modes beside torch's, in one run, as ratios of step times.

A GPT of width 256 on Gloo ranks of one thread each: forward, backward, sums and optimizer.
Rounds take turns, and the median over rounds is printed: the peer's time over the other's (above 1:
faster than the peer). Where the machine lets us, the data-parallel ways run once more over
a slow link: a network namespace of their own whose loopback is shaped with tc. Prints only.

    python tests/bench/parallel.py [--ranks 2,4] [--rounds 9] [--rate 800]
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys

from coursekit import Ranks

READY = """
import time
import torch
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from coursekit import parallel

torch.set_num_threads(1)
shape = parallel.small(hidden=256)
ids, targets = (parallel.share(t) for t in parallel.batch(8 * size, 64))

def sgd(params):
    return torch.optim.SGD(params, lr=0.01)

def torch_ddp():
    model = DistributedDataParallel(parallel.GPT(shape))
    return model, lambda: None, sgd(model.parameters())

def own(way, **options):
    model = way(parallel.GPT(shape), **options)
    return model, model.finish, sgd(model.parameters())

def zero(stage, collectives="own"):
    model = parallel.Zero(parallel.GPT(shape), sgd, stage=stage, collectives=collectives)
    return model, lambda: None, model

def fsdp2():
    model = parallel.GPT(shape)
    for module in (*model.blocks, model):
        fully_shard(module)
    return model, lambda: None, sgd(model.parameters())

makers = {
    "torch DDP": torch_ddp,
    "Bucketed": lambda: own(parallel.Bucketed),
    "Bucketed 2 MiB": lambda: own(parallel.Bucketed, bucket_mib=2),
    "Flat": lambda: own(parallel.Flat),
    "Naive": lambda: own(parallel.Naive),
    "torch FSDP2": fsdp2,
    "ZeRO-1": lambda: zero(1),
    "ZeRO-2": lambda: zero(2),
    "ZeRO-3": lambda: zero(3),
    "ZeRO-3, Gloo's collectives": lambda: zero(3, "library"),
}
kept = {}

def one(name):
    if name not in kept:
        kept[name] = makers[name]()
    model, finish, optimizer = kept[name]
    dist.barrier()
    began = time.perf_counter()
    model(ids, targets).backward()
    finish()
    optimizer.step()
    if hasattr(optimizer, "zero_grad"):
        optimizer.zero_grad()
    return time.perf_counter() - began
"""
DATA = ("torch DDP", "Bucketed", "Bucketed 2 MiB", "Flat", "Naive")
SHARDED = ("torch FSDP2", "ZeRO-1", "ZeRO-2", "ZeRO-3", "ZeRO-3, Gloo's collectives")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--rate", type=int, default=800, help="Mbit/s of the slow link")
    parser.add_argument("--shaped", action="store_true", help="what this bench calls itself with")
    asked = parser.parse_args()
    if asked.shaped:
        shape_loopback(asked.rate)
        table(2, DATA, asked.rounds, f"all share one link of {asked.rate} Mbit/s")
        return
    for size in map(int, asked.ranks.split(",")):
        table(size, DATA, asked.rounds, "loopback")
        table(size, SHARDED, asked.rounds, "loopback")
    print(
        f"On loopback the {os.cpu_count()} cores that compute also move the bytes: overlap hides "
        "waiting, and there is hardly any.\n",
        flush=True,
    )
    slow_link(asked)


def table(size: int, names: tuple[str, ...], rounds: int, where: str) -> None:
    """Step times of one round after the other; the first name is the peer."""
    with Ranks(size, "gloo", timeout=600) as ranks:
        ranks.cell(READY)
        for name in names:
            for _ in range(2):
                ranks.run(lambda name: one(name), name)  # noqa: F821
        times: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(rounds):
            for name in names:
                times[name].append(max(ranks.run(lambda name: one(name), name)))  # noqa: F821
        memory = ranks.run(
            lambda: {n: o.memory() for n, (_, _, o) in kept.items() if hasattr(o, "memory")}  # noqa: F821
        )[0]
    print(f"{size} ranks, {where}\n{'':28}{'ms':>8}{names[0] + ' / it':>20}")
    for name, taken in times.items():
        pairs = zip(times[names[0]], taken, strict=True)
        ratio = statistics.median(peer / own for peer, own in pairs)
        held = sum(memory[name].values()) / 2**20 if name in memory else 0
        told = f"   holds {held:.1f} MiB between steps" if held else ""
        print(f"{name:28}{statistics.median(taken) * 1e3:8.1f}{ratio:20.2f}{told}")
    print(flush=True)


def slow_link(asked: argparse.Namespace) -> None:
    """This bench once more, alone in a network namespace; or why not."""
    missing = [name for name in ("unshare", "ip", "tc") if shutil.which(name) is None]
    if missing:
        print(f"No slow link here: {', '.join(missing)} is missing (apt-get install iproute2).")
        return
    mine = [sys.executable, __file__, "--shaped", "--rate", str(asked.rate)]
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    done = subprocess.run(["unshare", *user, "--net", *mine, "--rounds", str(asked.rounds)])
    if done.returncode:
        print(f"No slow link here: the namespace or tc was refused (code {done.returncode}).")


def shape_loopback(rate: int) -> None:
    for command in (
        "ip link set lo up mtu 9000",
        f"tc qdisc add dev lo root tbf rate {rate}mbit burst 128kb latency 400ms",
    ):
        subprocess.run(command.split(), check=True)


if __name__ == "__main__":
    main()
