"""Pipelines on four real ranks whose blocks sleep, beside what the simulator says, in one run.

A block sleeps in forward, and twice as long in backward: processor time plays no part, so that four
ranks run side by side on two cores as well. For each schedule the time of a step, median over
rounds, stands beside the simulator's, and torch.distributed.pipelining's time beside both, where it
has the schedule. Prints only; more than 25 % from the simulator is marked.

    python tests/bench/pipeline.py [--rounds 5] [--milliseconds 40]
"""

import argparse
import statistics

from coursekit import Ranks, pipeline

READY = """
import time
import torch
import torch.distributed as dist
from torch.distributed import pipelining
from coursekit import parallel, pipeline

torch.set_num_threads(1)
shape = parallel.small(hidden=16, layers=8)
ids, targets = parallel.batch(8, 16)

class Rest(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, sleeper):
        ctx.sleeper = sleeper
        time.sleep(sleeper.seconds)
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        s = ctx.sleeper
        time.sleep(s.seconds)
        s.later(lambda: time.sleep(s.seconds))
        return grad.clone(), None

class Sleeper(torch.nn.Module):
    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds
        self.later = lambda work: work()
        self.weight = torch.nn.Parameter(torch.ones(()))

    def forward(self, x):
        return Rest.apply(x * self.weight, self)

def model(seconds):
    made = parallel.GPT(shape)
    for number in range(shape.layers):
        made.blocks[number] = Sleeper(seconds)
    return made

def own(name, micro, chunks, seconds):
    pipe = parallel.Pipeline(
        model(seconds), pipeline.build(name, size, micro, chunks))
    for part in pipe.modules():
        if isinstance(part, Sleeper):
            part.later = pipe.store.do
    return lambda: pipe.forward_backward(ids, targets)

class Part(torch.nn.Module):
    def __init__(self, whole, stage, stages):
        super().__init__()
        each = len(whole.blocks) // stages
        self.embed = whole.embed if stage == 0 else None
        self.blocks = whole.blocks[stage * each : (stage + 1) * each]
        self.head = whole.head if stage == stages - 1 else None

    def forward(self, x):
        x = x if self.embed is None else self.embed(x)
        for block in self.blocks:
            x = block(x)
        return x if self.head is None else self.head(x)

def peer(name, micro, chunks, seconds):
    mine = [pipelining.PipelineStage(
        Part(model(seconds), s, size * chunks), s, size * chunks, torch.device("cpu"))
        for s in range(rank, size * chunks, size)]
    loss = parallel.gpt.CrossEntropy()
    ways = {"gpipe": pipelining.ScheduleGPipe, "1f1b": pipelining.Schedule1F1B,
            "interleaved": pipelining.ScheduleInterleaved1F1B}
    many = mine if chunks > 1 else mine[0]
    run = ways[name](many, micro, loss_fn=loss)
    inputs = [ids] if rank == 0 else []
    return lambda: run.step(*inputs, target=targets, losses=[])

kept = {}

def timed(way, *case):
    if (way, case) not in kept:
        kept[way, case] = {"own": own, "peer": peer}[way](*case)
        kept[way, case]()
    dist.barrier()
    began = time.perf_counter()
    kept[way, case]()
    return time.perf_counter() - began
"""
CASES = [
    ("naive", 4, 1),
    ("gpipe", 4, 1),
    ("gpipe", 8, 1),
    ("1f1b", 4, 1),
    ("1f1b", 8, 1),
    ("interleaved", 8, 2),
    ("zb-h1", 8, 1),
]
PEERS = ("gpipe", "1f1b", "interleaved")


def step(ranks: Ranks, way: str, case: tuple[str, int, int], seconds: float, rounds: int) -> float:
    """The median over rounds of the slowest rank's time."""

    def once(way: str, case: tuple[str, int, int], seconds: float) -> float:
        return timed(way, *case, seconds)  # noqa: F821

    return statistics.median(max(ranks.run(once, way, case, seconds)) for _ in range(rounds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--milliseconds", type=int, default=40, help="a rank's forward")
    told = parser.parse_args()
    forward = told.milliseconds / 1000
    print("four ranks, m micro-batches, v chunks a rank; milliseconds a step")
    print(f"{'schedule':<12} m v  simulator   own  own/sim  torch  torch/own  bubble (formula)")
    with Ranks(4, backend="gloo") as ranks:
        ranks.cell(READY)
        for name, micro, chunks in CASES:
            one = forward / chunks
            told_by = pipeline.simulate(
                pipeline.build(name, 4, micro, chunks), one, 2 * one, weight=one
            ).end
            case = (name, micro, chunks)
            own = step(ranks, "own", case, forward / 2, told.rounds)
            peer = step(ranks, "peer", case, forward / 2, told.rounds) if name in PEERS else None
            beside = f"{1000 * peer:6.0f} {peer / own:10.2f}" if peer else f"{'-':>6} {'-':>10}"
            share = pipeline.bubble(name, 4, micro, chunks)
            mark = "" if abs(own / told_by - 1) <= 0.25 else "  more than 25 % off"
            print(
                f"{name:<12} {micro} {chunks} {1000 * told_by:10.0f} {1000 * own:5.0f} "
                f"{own / told_by:8.2f} {beside}  {share}{mark}",
                flush=True,
            )


if __name__ == "__main__":
    main()
