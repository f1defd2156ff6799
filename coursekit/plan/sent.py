"""Bytes that a plan sends in one step, by group, and which wire carries them."""

from __future__ import annotations

from dataclasses import dataclass

from coursekit.plan._footprint import stage_of
from coursekit.plan._seconds import context_bytes, expert_bytes, tensor_bytes
from coursekit.plan._stored import SIZE
from coursekit.plan.plans import Job, Plan


@dataclass(frozen=True)
class Sent:
    """What one rank sends in one step for one group.

    Parameters
    ----------
    group : str
        ``tp``, ``cp``, ``ep``, ``pp`` or ``dp``.
    bytes : float
        Sent by a rank of the fullest stage, forward, backward and after; what is computed again
        in backward is sent again too.
    wire : {"link", "network"}
        The slowest wire that the group's ring crosses; of experts, each wire has its own row.
    """

    group: str
    bytes: float
    wire: str


def sent(job: Job, plan: Plan) -> tuple[Sent, ...]:
    """The rows of all groups that have more than one rank, from the most bytes to the least.

    Tensor parallelism is counted as all-gathers and reduce-scatters of activations (with sequence
    parallelism; as all-reduces they are as many bytes), context parallelism as keys and values
    round the ring, and once more with their gradients, experts as all-to-all out and back, a
    pipeline as an inner stage's activations and gradients, of which tensor ranks send a part each.
    """
    machine, shape = job.machine, job.model
    stage, m = stage_of(shape, plan), plan.micro_batches(job.batch)
    tokens = plan.micro_batch * job.sequence / plan.cp
    passes = 3 if plan.recompute == "full" else 2
    kinds = ((stage.plain, False), (stage.moe, True))
    tensor = m * passes * sum(n * tensor_bytes(job, plan, moe, tokens) for n, moe in kinds)
    # Backward sends keys and values once more, and their gradients one step further, home.
    ring = context_bytes(job, plan, tokens)
    home = ring / max(1, plan.cp - 1) * plan.cp if plan.cp > 1 else 0.0
    context = m * stage.blocks * (passes * ring + home)
    near, far = expert_bytes(job, plan, tokens) if stage.moe else (0.0, 0.0)
    experts = m * stage.moe * passes
    boundary = 2 * m * plan.chunks * tokens * shape.hidden * SIZE / plan.tp if plan.pp > 1 else 0.0
    rows = [
        Sent("tp", tensor, machine.carrier(plan.tp)),
        Sent("cp", context, machine.carrier(plan.cp, plan.tp)),
        Sent("ep", experts * near, "link"),
        Sent("ep", experts * far, "network"),
        Sent("pp", boundary, machine.carrier(plan.pp, plan.tp * plan.cp * plan.dp)),
        *_replicas(job, plan, m),
    ]
    return tuple(sorted((r for r in rows if r.bytes), key=lambda r: -r.bytes))


def _replicas(job: Job, plan: Plan, m: int) -> list[Sent]:
    stage, cost, rows = stage_of(job.model, plan), job.bytes, []
    for parameters, size, stride in (
        (stage.dense_parameters, plan.replicas, plan.tp),
        (stage.expert_parameters, plan.expert_replicas, plan.ep),
    ):
        share = (size - 1) / size * parameters
        reduced = share * cost.gradients * (m if plan.zero > 1 else 1)
        # An all-reduce gathers what it has reduced; ZeRO gathers weights, in stage 3 twice.
        gathered = share * (cost.weights if plan.zero else cost.gradients)
        times = 2 * m if plan.zero == 3 else 1
        rows.append(Sent("dp", reduced + times * gathered, job.machine.carrier(size, stride)))
    return rows
