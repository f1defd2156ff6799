"""How long a plan's pieces take: arithmetic, memory traffic, and messages of one micro-batch.

A block's time is that of its matrix products at a fraction of the peak, plus that of reading and
writing what lies between them at a fraction of the memory's bandwidth. Messages take what
`Machine` says: steps that wait, and bytes at the bus bandwidth of the group.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from coursekit import _data
from coursekit.plan._footprint import block_stored
from coursekit.plan._stored import SIZE
from coursekit.plan.plans import Job, Plan


@dataclass(frozen=True)
class Efficiency:
    """What share of a machine's two peaks is reached: fitted, see `data/published_plans.yaml`.

    Parameters
    ----------
    matmul : float
        Of the peak FLOP/s, in large matrix products.
    memory : float
        Of the memory's bandwidth, in what lies between them.
    """

    matmul: float
    memory: float


def fitted() -> Efficiency:
    """The constants of `data/published_plans.yaml`."""
    return Efficiency(**_data.load("published_plans.yaml")["efficiency"]["values"])


@dataclass(frozen=True)
class Half:
    """Seconds of one direction of one block and micro-batch, by what they go to."""

    attention: float
    rest: float
    tp: float = 0.0
    cp: float = 0.0
    ep: float = 0.0

    @property
    def compute(self) -> float:
        return self.attention + self.rest


def forward(job: Job, plan: Plan, moe: bool, eff: Efficiency) -> Half:
    """One block's forward."""
    shape, machine = job.model, job.machine
    tokens = plan.micro_batch * job.sequence / plan.cp
    peak = machine.gpu.peak * (2 if job.fp8 else 1) * eff.matmul
    width = shape.heads_width or shape.hidden
    # Scores and their sum over values: attention itself runs in 16 bits.
    scores = 4 * job.sequence * width * (0.5 if job.flash else 1.0) * tokens / plan.tp
    attention = scores / (machine.gpu.peak * eff.matmul)
    products = 2 * block_matrices(job, moe) * tokens / plan.tp / peak
    kept = block_stored(job, "none", moe=moe) * tokens
    # What is kept was written once and is read again; so are the weights that are here.
    between = 2 * (kept + _weights(job, plan, moe)) / plan.tp / (machine.hbm * eff.memory)
    return Half(
        attention,
        products + between,
        _tensor(job, plan, moe, tokens),
        _context(job, plan, tokens),
        _experts(job, plan, tokens) if moe else 0.0,
    )


def backward(job: Job, plan: Plan, half: Half, moe: bool, eff: Efficiency) -> Half:
    """One block's backward: twice the products and the traffic, the same messages, the blocks'
    gradients round the ring besides; and what is computed again first.
    """
    again = {"none": 0.0, "selective": 0.0, "cheap": 0.0, "full": 1.0}[plan.recompute]
    extra = 0.0
    if plan.recompute == "cheap":
        full, some = (block_stored(job, kind, moe=moe) for kind in ("none", "cheap"))
        tokens = plan.micro_batch * job.sequence / plan.cp / plan.tp
        extra = 2 * (full - some) * tokens / (job.machine.hbm * eff.memory)
    scores = again if plan.recompute != "selective" or job.flash else 1.0
    return replace(
        half,
        attention=half.attention * (2 + scores),
        rest=half.rest * (2 + again) + extra,
        tp=half.tp * (1 + again),
        cp=half.cp * (2 + again),
        ep=half.ep * (1 + again),
    )


def block_matrices(job: Job, moe: bool) -> int:
    """Weights that one token meets in a block."""
    shape = job.model
    if not moe:
        return shape.layer_matrices
    experts = (shape.top_k + shape.shared_experts) * shape.expert_matrices
    return shape.attention_matrices + experts + shape.hidden * shape.experts


def _weights(job: Job, plan: Plan, moe: bool) -> float:
    """Weights of a block that a rank reads, times its TP: of experts, those that are there."""
    shape = job.model
    if not moe:
        return shape.layer_matrices
    here = shape.experts / plan.ep * plan.tp + shape.shared_experts
    return shape.attention_matrices + here * shape.expert_matrices


def head(job: Job, plan: Plan, eff: Efficiency) -> float:
    """Seconds of the head's forward for one micro-batch."""
    tokens = plan.micro_batch * job.sequence / plan.cp
    products = 2 * job.model.hidden * job.model.vocab * tokens / plan.tp
    scores = 6 * job.model.vocab * tokens / plan.tp
    machine = job.machine
    return products / (machine.gpu.peak * eff.matmul) + scores / (machine.hbm * eff.memory)


def tensor_bytes(job: Job, plan: Plan, moe: bool, tokens: float) -> float:
    """Bytes that a rank sends for tensor parallelism in one direction of a block: an all-gather and
    a reduce-scatter for attention, and as many for a feed-forward part that is not experts.
    """
    pairs = 1 if moe else 2
    return pairs * 2 * (plan.tp - 1) / plan.tp * tokens * job.model.hidden * SIZE


def _tensor(job: Job, plan: Plan, moe: bool, tokens: float) -> float:
    if plan.tp == 1:
        return 0.0
    machine = job.machine
    calls = 2 if moe else 4
    sent = tensor_bytes(job, plan, moe, tokens)
    return calls * machine.ring(plan.tp) + sent / machine.bandwidth(plan.tp)


def context_bytes(job: Job, plan: Plan, tokens: float) -> float:
    """Bytes that a rank sends in one block's forward: its keys and values go round the ring."""
    return (plan.cp - 1) * 2 * tokens * job.model.kv_width / plan.tp * SIZE


def _context(job: Job, plan: Plan, tokens: float) -> float:
    if plan.cp == 1:
        return 0.0
    machine = job.machine
    sent = context_bytes(job, plan, tokens)
    return machine.ring(plan.cp, plan.tp) + sent / machine.bandwidth(plan.cp, plan.tp)


def expert_bytes(job: Job, plan: Plan, tokens: float) -> tuple[float, float]:
    """Bytes that a rank sends in one block's forward, inside the node and over the network: out to
    the experts and back. Where a token visits few nodes, each gets one copy and hands it on.
    """
    shape = job.model
    inside = job.machine.inside(plan.ep)
    one = 2 * tokens / plan.tp * shape.hidden * SIZE
    nodes = plan.ep // inside
    near = (plan.ep - nodes) / plan.ep if shape.expert_nodes else (inside - 1) / plan.ep
    far = (
        (nodes - 1)
        / nodes
        * (min(shape.expert_nodes, nodes) if shape.expert_nodes else shape.top_k)
    )
    return one * shape.top_k * near, one * far


def _experts(job: Job, plan: Plan, tokens: float) -> float:
    if plan.ep == 1:
        return 0.0
    machine = job.machine
    near, far = expert_bytes(job, plan, tokens)
    inside = machine.inside(plan.ep)
    # All pairs at once: one wait a direction, and both wires at the same time.
    waits = 2 * (machine.network_latency if inside < plan.ep else machine.latency)
    return waits + max(near / machine.link, far / machine.network)
