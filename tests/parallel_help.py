"""What the tests of parallel modes share: one process's run, and each mode's, of the same model."""

from dataclasses import dataclass

import torch

from coursekit import parallel

LENGTH = 16


@dataclass(frozen=True)
class Case:
    """One way to train: fields of the shape, rows of the batch, and what makes it awkward."""

    shape: tuple = ()
    rows: int = 8
    micro: int = 1
    frozen: tuple = ()
    skip: tuple = ()  # (step, rank or None for all, block)
    dtype: torch.dtype = torch.float64

    def make(self):
        model = parallel.GPT(parallel.small(hidden=32, **dict(self.shape))).to(self.dtype)
        for number, block in enumerate(model.blocks):
            model.blocks[number] = sometimes(block)
        for name, p in model.named_parameters():
            p.requires_grad = not any(name.startswith(f) for f in self.frozen)
        return model

    def skips(self, model, step, rank):
        for number, block in enumerate(model.blocks):
            here = ((step, who, number) in self.skip for who in (rank, None))
            if hasattr(block, "on"):
                block.on = not any(here)


class Sometimes(parallel.gpt.Block):
    """A block that a step may leave out."""

    def __init__(self) -> None:
        raise NotImplementedError

    def forward(self, x):
        return super().forward(x) if self.on else x


def sometimes(block):
    block.__class__ = Sometimes
    block.on = True
    return block


CASES = {
    "plain": Case(),
    "odd_vocabulary": Case(shape=(("vocab", 51),)),
    "tied": Case(shape=(("tied", True), ("vocab", 51))),
    "accumulated": Case(micro=2),
    "frozen": Case(frozen=("embed", "blocks.1.mlp", "blocks.2")),
    "unused": Case(skip=((1, None, 2), (3, None, 0))),
}
UNEVEN = {
    "uneven": Case(rows=7),
    "uneven_accumulated": Case(rows=9, micro=2, shape=(("tied", True),)),
    "used_on_some_ranks": Case(skip=((1, 1, 2), (3, 0, 1))),
}
STEPS = 5


def optimizer(params):
    """AdamW in float64; in float32 SGD: Adam makes whole steps of gradients that are noise."""
    params = list(params)
    if not params:  # A rank of which everything is frozen.
        params = [torch.nn.Parameter(torch.zeros(1))]
    if params[0].dtype == torch.float64:
        return torch.optim.AdamW(params, lr=1e-3)
    return torch.optim.SGD(params, lr=0.1, momentum=0.9)


def trained(model):
    return [p for p in model.parameters() if p.requires_grad]


def alone(case, size=1):
    """One process: what every rank's rows give, in turn, each with its own skips."""
    model = case.make()
    opt = optimizer(trained(model))
    for step in range(STEPS):
        opt.zero_grad()
        ids, targets = parallel.batch(case.rows, LENGTH, seed=step)
        for rank, rows in enumerate(torch.arange(case.rows).tensor_split(size)):
            case.skips(model, step, rank)
            loss = model(ids[rows], targets[rows]) * len(rows) / case.rows
            loss.backward()
        opt.step()
    return {n: p.detach().clone() for n, p in model.named_parameters(remove_duplicate=False)}


def farthest(states, expected):
    """The greatest difference of any number, over all ranks; every name must be there."""
    worst = 0.0
    for state in states:
        assert set(state) == set(expected)
        worst = max(worst, *(float((state[n] - expected[n]).abs().max()) for n in expected))
    return worst
