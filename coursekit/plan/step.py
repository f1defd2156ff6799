"""How long one training step of a plan takes, and what its seconds go to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from math import ceil

from coursekit.plan._footprint import Stage, footprint, stage_of
from coursekit.plan._rules import PlanError
from coursekit.plan._seconds import Efficiency, Half, backward, fitted, forward, head
from coursekit.plan._stored import SIZE
from coursekit.plan.flops import exact_flops
from coursekit.plan.memory import Memory
from coursekit.plan.plans import Job, Plan, broken_rule
from coursekit.plan.sent import Sent, sent

# While messages run, their kernels hold 20 of 132 multiprocessors: DeepSeek-AI 2024,
# arXiv:2412.19437, section 3.2.2.
BESIDE = 20 / 132


@dataclass(frozen=True)
class Step:
    """Seconds of one step, on the slowest stage's GPUs.

    Parameters
    ----------
    compute : float
        Arithmetic of the forward and backward passes, with what is computed again.
    bubble : float
        Waiting for the pipeline to fill and to drain.
    tp, cp, ep, pp, dp : float
        Messages of each group that nothing hides.
    optimizer : float
        The update of the weights.
    beside : float
        What the computing loses while messages run beside it.
    hidden : float
        Messages that ran beside the computing: not part of the total.
    """

    compute: float
    bubble: float
    tp: float
    cp: float
    ep: float
    pp: float
    dp: float
    optimizer: float
    beside: float = 0.0
    hidden: float = 0.0

    @property
    def parts(self) -> dict[str, float]:
        """What adds up to the total, by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "hidden"}

    @property
    def total(self) -> float:
        """All but what is hidden, in seconds."""
        return sum(self.parts.values())


@dataclass(frozen=True)
class Outcome:
    """What a plan costs.

    Parameters
    ----------
    memory : Memory
        Bytes on the fullest GPU.
    seconds : Step
        Of one training step.
    flops : float
        Of the model in one step, without what is computed again.
    recomputed : float
        The same with every block's forward once more where the plan recomputes it.
    """

    job: Job
    plan: Plan
    memory: Memory
    seconds: Step
    flops: float
    recomputed: float

    @property
    def fits(self) -> bool:
        """Whether the fullest GPU has room."""
        return self.memory.fits(self.job.machine.room)

    @property
    def sent(self) -> tuple[Sent, ...]:
        """Bytes that a rank sends in a step, by group and wire."""
        return sent(self.job, self.plan)

    @property
    def mfu(self) -> float:
        """Share of the 16-bit peak that becomes the model's arithmetic (arXiv:2204.02311)."""
        return self.tflops * 1e12 / self.job.machine.gpu.peak

    @property
    def tflops(self) -> float:
        """The model's TFLOP/s a GPU."""
        return self.flops / self.seconds.total / self.plan.gpus / 1e12

    @property
    def hardware_tflops(self) -> float:
        """TFLOP/s a GPU with what is computed again, as arXiv:2104.04473 reports them."""
        return self.recomputed / self.seconds.total / self.plan.gpus / 1e12

    @property
    def tokens_per_second(self) -> float:
        """Tokens that all GPUs together train on in a second."""
        return self.job.tokens / self.seconds.total


def evaluate(job: Job, plan: Plan, efficiency: Efficiency | None = None) -> Outcome:
    """Memory and time of one plan.

    Raises
    ------
    PlanError
        The plan breaks a rule; that it does not fit is no error, see `Outcome.fits`.
    """
    if rule := broken_rule(job, plan):
        raise PlanError(f"{rule}; got {plan}")
    return weigh(job, plan, footprint(job, plan), efficiency)


def weigh(job: Job, plan: Plan, memory: Memory, efficiency: Efficiency | None = None) -> Outcome:
    """The outcome of a plan that keeps the rules, whose memory is known already."""
    seconds = _step(job, plan, efficiency or fitted())
    plain, again = _flops(job)
    return Outcome(job, plan, memory, seconds, plain, again if plan.recompute == "full" else plain)


@cache
def _flops(job: Job) -> tuple[float, float]:
    """The model's arithmetic in a step, and with every block's forward once more."""
    seen = job.sequence // 2 if job.flash else job.sequence
    both = (exact_flops(job.model, job.tokens, seen, recompute=again) for again in (False, True))
    plain, again = both
    return plain, again


def _step(job: Job, plan: Plan, eff: Efficiency) -> Step:
    stage, m = stage_of(job.model, plan), plan.micro_batches(job.batch)
    there = _total(stage, lambda moe: forward(job, plan, moe, eff))
    back = _total(stage, lambda moe: backward(job, plan, forward(job, plan, moe, eff), moe, eff))
    last = _head_extra(job, plan, stage, head(job, plan, eff), there.compute)
    compute = there.compute + back.compute + 3 * last
    exposed = {"tp": there.tp + back.tp}
    hidden = 0.0
    for name, behind in (("cp", "attention"), ("ep", "compute")):
        parts = [(getattr(half, name), getattr(half, behind)) for half in (there, back)]
        shown = sum(_beyond(job, name, told, window) for told, window in parts)
        exposed[name] = shown
        hidden += sum(told for told, _ in parts) - shown
    each = compute + sum(exposed.values())
    pp, pp_hidden = _pipeline(job, plan, m, there.compute)
    dp, dp_hidden = _data(job, plan, stage, m, there, back)
    beside = hidden * m + pp_hidden + dp_hidden
    return Step(
        compute * m,
        (plan.pp - 1) / plan.chunks * each,
        exposed["tp"] * m,
        exposed["cp"] * m,
        exposed["ep"] * m,
        pp,
        dp,
        _optimizer(job, plan, stage, eff),
        BESIDE * beside,
        beside,
    )


def _total(stage: Stage, one: Callable[[bool], Half]) -> Half:
    """All blocks of a stage, those with experts and those without."""
    kinds = [(n, one(moe)) for n, moe in ((stage.plain, False), (stage.moe, True)) if n]
    return Half(*(sum(n * getattr(h, f.name) for n, h in kinds) for f in fields(Half)))


def _beyond(job: Job, name: str, told: float, window: float) -> float:
    """What is left of a message after the computing that may hide it."""
    return max(0.0, told - window) if name in job.overlap else told


def _head_extra(job: Job, plan: Plan, stage: Stage, head: float, blocks: float) -> float:
    """What the head adds to the slowest stage: a last stage that is short of blocks has room."""
    spare = stage.blocks * plan.pp - job.model.layers
    return max(0.0, head - blocks / stage.blocks if spare else head)


def _pipeline(job: Job, plan: Plan, m: int, stage_forward: float) -> tuple[float, float]:
    """Activations and their gradients between stages; tensor ranks send a part each."""
    if plan.pp == 1:
        return 0.0, 0.0
    machine, stride = job.machine, plan.tp * plan.cp * plan.dp
    size = plan.micro_batch * job.sequence / plan.cp * job.model.hidden * SIZE / plan.tp
    inside = machine.inside(plan.pp, stride) == plan.pp
    wire, wait = (
        (machine.link, machine.latency) if inside else (machine.network, machine.network_latency)
    )
    one = wait + size / wire
    # To fill and to drain, nothing hides them.
    ends = 2 * (plan.pp - 1) * one
    each = _beyond(job, "pp", one, stage_forward / plan.chunks)
    between = 2 * m * plan.chunks
    return ends + between * each, between * (one - each)


def _data(
    job: Job, plan: Plan, stage: Stage, m: int, there: Half, back: Half
) -> tuple[float, float]:
    """Gradients to sum and, with ZeRO, weights to gather."""
    told = [0.0, 0.0]
    windows = [back.compute, there.compute]
    for parameters, size, stride in (
        (stage.dense_parameters, plan.replicas, plan.tp),
        (stage.expert_parameters, plan.expert_replicas, plan.ep),
    ):
        if size == 1 or not parameters:
            continue
        where = (size, stride, stage.blocks)
        reduced = _ring(job, parameters * job.bytes.gradients, *where)
        gathered = _ring(job, parameters * job.bytes.weights, *where)
        if plan.zero == 0:
            told[0] += _sum(job, parameters * job.bytes.gradients, *where)
        elif plan.zero == 3:
            told[0] += (reduced + gathered) * m
            told[1] += gathered * m
        else:
            told[0] += reduced * (m if plan.zero == 2 else 1)
            told[1] += gathered
    if plan.zero == 3:
        windows = [w * m for w in windows]
    shown = sum(_beyond(job, "dp", t, w) for t, w in zip(told, windows, strict=True))
    return shown, sum(told) - shown


def _ring(job: Job, total: float, size: int, stride: int, calls: int) -> float:
    """An all-gather, or a reduce-scatter, of so many bytes, a call a block."""
    machine = job.machine
    sent = (size - 1) / size * total
    return calls * machine.ring(size, stride) + sent / machine.bandwidth(size, stride)


def _sum(job: Job, total: float, size: int, stride: int, calls: int) -> float:
    machine = job.machine
    sent = 2 * (size - 1) / size * total
    return calls * machine.tree(size, stride) + sent / machine.bandwidth(size, stride)


def _optimizer(job: Job, plan: Plan, stage: Stage, eff: Efficiency) -> float:
    """States are read and written, gradients read, weights written."""
    cost = job.bytes
    parts = [
        (stage.dense_parameters, plan.replicas),
        (stage.expert_parameters, plan.expert_replicas),
    ]
    mine = sum(n / (r if plan.zero else 1) for n, r in parts)
    moved = 2 * cost.optimizer + cost.gradients + cost.weights
    return ceil(mine) * moved / (job.machine.hbm * eff.memory)
