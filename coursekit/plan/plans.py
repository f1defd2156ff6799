"""One plan for training one model on one machine, and the rules that a plan must keep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from coursekit.plan._rules import PlanError, positive
from coursekit.plan._strategies import Strategy
from coursekit.plan.machines import Machine
from coursekit.plan.machines import machine as machine_card
from coursekit.plan.memory import POLICIES, Policy
from coursekit.plan.models import Model
from coursekit.plan.models import model as model_card

RECOMPUTE = ("none", "selective", "cheap", "full")
# Pieces of a sequence shorter than this leave the kernels of attention waiting.
SHORTEST = 1024


@dataclass(frozen=True)
class Plan(Strategy):
    """Who shares what, in which pieces.

    Ranks are numbered with tensor parallelism innermost, then context, data, and pipeline
    parallelism: the most talkative neighbours are the nearest, as in Megatron-LM. Experts are
    spread over ``tp * cp * dp`` ranks of a pipeline stage ("folding"), so that `ep` does not
    multiply the number of GPUs.

    Parameters
    ----------
    dp, tp, pp, zero : int
        As `Strategy`.
    cp, ep : int
        Degrees of context and expert parallelism.
    micro_batch : int
        Sequences in a micro-batch.
    chunks : int
        Model chunks a rank of an interleaved pipeline; 1 is plain 1F1B.
    recompute : {"none", "selective", "cheap", "full"}
        What backward computes again: nothing; attention's scores; also norms and the activation
        function; whole blocks from their inputs.
    """

    cp: int = 1
    ep: int = 1
    micro_batch: int = 1
    chunks: int = 1
    recompute: str = "none"

    @property
    def gpus(self) -> int:
        """GPUs altogether."""
        return self.dp * self.tp * self.pp * self.cp

    @property
    def replicas(self) -> int:
        """Ranks that hold the same dense weights: they share ZeRO's parts."""
        return self.dp * self.cp

    @property
    def expert_replicas(self) -> int:
        """Ranks that hold the same experts."""
        return self.tp * self.cp * self.dp // self.ep

    def micro_batches(self, batch: int) -> int:
        """Micro-batches that each pipeline does in a step of `batch` sequences."""
        return batch // (self.dp * self.micro_batch)

    def __str__(self) -> str:
        degrees = {"TP": self.tp, "CP": self.cp, "PP": self.pp, "EP": self.ep, "DP": self.dp}
        parts = [f"{name}{degree}" for name, degree in degrees.items() if degree > 1]
        parts += [f"ZeRO-{self.zero}"] if self.zero else []
        parts += [f"{self.chunks} chunks"] if self.chunks > 1 else []
        parts += [f"micro-batch {self.micro_batch}"] if self.micro_batch > 1 else []
        parts += [f"recompute {self.recompute}"] if self.recompute != "none" else []
        return " ".join(parts) or "1 GPU"


@dataclass(frozen=True)
class Job:
    """What is trained on what: the question that a plan answers.

    Parameters
    ----------
    model : Model
        The shape.
    machine : Machine
        Where it runs.
    sequence, batch : int
        Tokens in a sequence, sequences in a step.
    flash : bool
        Attention keeps no scores and skips what a causal mask hides (arXiv:2205.14135); what is
        skipped is not counted as arithmetic either.
    fp8 : bool
        Matrix products at twice the peak; what is kept and sent stays 16-bit.
    overlap : tuple of str
        Groups whose messages run beside the computing, as far as it lasts: of ``dp``, ``cp``,
        ``pp``, ``ep``.
    policy : str
        Bytes a parameter, see `POLICIES`.

    Raises
    ------
    PlanError
        A choice is unknown or a number is not positive.
    """

    model: Model
    machine: Machine
    sequence: int
    batch: int
    flash: bool = True
    fp8: bool = False
    overlap: tuple[str, ...] = ("dp", "cp", "pp")
    policy: str = "bf16"

    def __post_init__(self) -> None:
        for name in ("sequence", "batch"):
            positive(name, getattr(self, name))
        if self.policy not in POLICIES:
            raise PlanError(
                f"policy must be one of {', '.join(POLICIES)}, got {self.policy!r}; try 'bf16'"
            )
        if wrong := set(self.overlap) - {"dp", "cp", "pp", "ep"}:
            raise PlanError(
                f"overlap must be of dp, cp, pp, ep, got {', '.join(sorted(wrong))}; "
                "tensor parallelism's messages stand between its products"
            )

    @property
    def bytes(self) -> Policy:
        """Bytes a parameter."""
        return POLICIES[self.policy]

    @property
    def tokens(self) -> int:
        """Tokens in a step."""
        return self.sequence * self.batch


def job(
    model: Model | str, machine: Machine | str = "h100", *, sequence: int = 0, batch: int = 0,
    **options: Any,
) -> Job:  # fmt: skip
    """A job from the names of cards; where `sequence` or `batch` is 0, the model card's.

    Raises:
        PlanError: a name or choice is unknown, or neither says how long sequences are or how many.
    """
    shape = model_card(model) if isinstance(model, str) else model
    place = machine_card(machine) if isinstance(machine, str) else machine
    return Job(shape, place, sequence or shape.sequence, batch or shape.batch, **options)


def broken_rule(job: Job, plan: Plan) -> str:
    """The first rule that a plan breaks, in words, or nothing. Memory is not among them."""
    shape, node = job.model, job.machine.node
    for rule, broken in (
        (f"TP must stay inside a node of {node} GPUs: it talks four times a block", plan.tp > node),
        (f"TP must divide the {shape.heads} heads", shape.heads % plan.tp),
        # Where ranks outnumber these heads, several keep the same one; that copy is not counted.
        (f"TP must divide the {shape.kv_heads} key-value heads, or they must divide TP",
         shape.kv_heads % plan.tp and plan.tp % shape.kv_heads),
        # The embedding and the head may be chunks of their own, as in Llama 3 405B
        # (arXiv:2407.21783, section 3.3.2).
        (f"PP times chunks must be at most the {shape.layers} blocks and the two ends",
         plan.pp * plan.chunks > shape.layers + 2),
        ("chunks need a pipeline", plan.chunks > 1 and plan.pp == 1),
        (f"CP must cut the sequence of {job.sequence} into 2 CP equal pieces",
         plan.cp > 1 and job.sequence % (2 * plan.cp)),
        (f"CP must leave pieces of at least {SHORTEST} tokens, 2 CP in a sequence",
         plan.cp > 1 and job.sequence < 2 * plan.cp * SHORTEST),
        ("EP needs experts", plan.ep > 1 and not shape.experts),
        (f"EP must divide the {shape.experts} experts", shape.experts % plan.ep),
        ("EP must divide the TP x CP x DP ranks that it folds into",
         plan.tp * plan.cp * plan.dp % plan.ep),
        (f"DP times the micro-batch must divide the batch of {job.batch} sequences",
         job.batch % (plan.dp * plan.micro_batch)),
        ("interleaved chunks need a number of micro-batches that PP divides",
         plan.chunks > 1 and plan.micro_batches(job.batch) % plan.pp),
        ("ZeRO needs replicas to share with", plan.zero and plan.replicas == 1),
        ("ZeRO-3 does not stand beside a pipeline: it gathers weights anew for every micro-batch",
         plan.zero > 2 and plan.pp > 1),
    ):  # fmt: skip
        if broken:
            return rule
    return ""
