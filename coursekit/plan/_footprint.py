"""What the fullest GPU of a plan holds."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from coursekit.plan._rules import PlanError
from coursekit.plan._stored import (
    attention_stored,
    backward_held,
    feed_stored,
    whole_stored,
)
from coursekit.plan.memory import Memory
from coursekit.plan.models import Model
from coursekit.plan.plans import Job, Plan


@dataclass(frozen=True)
class Stage:
    """The fullest stage of a pipeline: its blocks, and the parameters of each kind on one rank."""

    blocks: int
    moe: int
    dense_parameters: float
    expert_parameters: float
    ends: float

    @property
    def plain(self) -> int:
        """Blocks without experts."""
        return self.blocks - self.moe


def stage_of(shape: Model, plan: Plan) -> Stage:
    blocks = ceil(shape.layers / (plan.pp * plan.chunks)) * plan.chunks
    moe = min(blocks, shape.moe_layers)
    outside = shape.parameters - shape.expert_parameters - _plain_parts(shape)
    ends = (1 if shape.tied else 2) * shape.vocab * shape.hidden + shape.positions * shape.hidden
    per_block = (outside - ends) / shape.layers
    plain = (blocks - moe) * _feed_forward(shape)
    # A pipeline's first stage has the embedding, its last the head: each one end at most.
    end = ends if plan.pp == 1 or shape.tied else ends / 2
    return Stage(
        blocks,
        moe,
        (blocks * per_block + plain + end) / plan.tp,
        shape.expert_parameters / max(1, shape.moe_layers) * moe / plan.ep,
        end / plan.tp,
    )


def footprint(
    job: Job, plan: Plan, *, sequence_parallel: bool = True, schedule: str = "1f1b"
) -> Memory:
    """Bytes on the fullest GPU, also of plans that break a rule.

    Counted: the states of the rank's parameters; what blocks keep for backward, tensor by tensor
    and for every micro-batch in flight; the gradients that the first block's backward needs beside
    that; and the head's scores. Not: a few numbers a token, such as a norm's mean; buffers that a
    library keeps for its messages; and what it makes after backward, such as a flat copy of all
    gradients. Routers are taken to be even.

    Parameters
    ----------
    sequence_parallel : bool
        Whether tensor ranks also share norms and residuals, as `evaluate` takes it.
    schedule : {"1f1b", "gpipe"}
        1F1B, with chunks interleaved, as `evaluate` takes it; or all forwards first.

    Raises
    ------
    PlanError
        There is no such schedule.
    """
    if schedule not in ("1f1b", "gpipe"):
        raise PlanError(f"schedule must be 1f1b or gpipe, got {schedule!r}; try '1f1b'")
    shape, cost = job.model, job.bytes
    stage = stage_of(shape, plan)
    kinds = (
        (stage.dense_parameters, plan.replicas),
        (stage.expert_parameters, plan.expert_replicas),
    )

    def kept(each: int, first: int) -> float:
        return sum(n * each / (r if plan.zero >= first else 1) for n, r in kinds)

    return Memory(
        kept(cost.weights, 3),
        kept(cost.gradients, 2),
        kept(cost.optimizer, 1),
        activations(job, plan, stage, sequence_parallel, schedule),
    )


def activations(
    job: Job, plan: Plan, stage: Stage, split: bool = True, schedule: str = "1f1b"
) -> float:
    """Kept for backward at the fullest moment, and what one block needs while it runs."""
    shape, size = job.model, job.bytes.kept
    tokens = plan.micro_batch * job.sequence / plan.cp / plan.tp
    # What tensor ranks do not share is there on each of them.
    copies = 1 if split else plan.tp
    kept = _kept(job, plan.recompute, stage, copies)
    m = plan.micro_batches(job.batch)
    flying = in_flight(plan, m, schedule) * tokens * kept / plan.chunks
    again = tokens * backward_held(shape, moe=stage.moe > 0, size=size, copies=copies)
    if plan.recompute == "full":
        again += tokens * _kept(job, "none", stage, copies) / stage.blocks
    if plan.zero == 3:
        # Two blocks' weights and one block's gradients are whole at a time.
        again += 3 * job.bytes.weights * stage.dense_parameters / stage.blocks
    # The head's scores, and their softmax in 32 bits: a last stage keeps one micro-batch of them
    # (GPipe all), and fewer blocks than the first.
    head = (size + 4) * plan.micro_batch * job.sequence / plan.cp * shape.vocab / plan.tp
    if plan.pp == 1:
        return flying + max(again, head)
    last = (m if schedule == "gpipe" else 1) * (tokens * kept + head)
    return max(flying + again, last)


def in_flight(plan: Plan, micro_batches: int, schedule: str = "1f1b") -> int:
    """Chunk forwards that the first rank keeps at a time: 1F1B, or interleaved (Narayanan et al.
    2021, arXiv:2104.04473, section 2.2); in GPipe, all.
    """
    most = micro_batches * plan.chunks
    if plan.pp == 1:
        return 1
    if schedule == "gpipe":
        return most
    if plan.chunks == 1:
        return min(plan.pp, most)
    return min(2 * (plan.pp - 1) + (plan.chunks - 1) * plan.pp + 1, most)


def _kept(job: Job, recompute: str, stage: Stage, copies: int = 1) -> float:
    kinds = ((stage.plain, False), (stage.moe, True))
    whole = (copies - 1) * whole_stored(job.model, recompute, size=job.bytes.kept)
    return sum(n * (block_stored(job, recompute, moe=moe) + whole) for n, moe in kinds if n)


def block_stored(job: Job, recompute: str, *, moe: bool) -> float:
    """Bytes a token that one block keeps."""
    shape, size = job.model, job.bytes.kept
    attention = attention_stored(shape, job.sequence, recompute, flash=job.flash, size=size)
    product = 1 if job.fp8 else size
    return attention + feed_stored(shape, recompute, moe=moe, size=size, product=product)


def _feed_forward(shape: Model) -> int:
    """Parameters of a plain feed-forward part."""
    biases = shape.ffn + shape.hidden if shape.bias else 0
    return shape.layer_matrices - shape.attention_matrices + biases


def _plain_parts(shape: Model) -> int:
    return (shape.layers - shape.moe_layers) * _feed_forward(shape)
