"""All plans for a job on so many GPUs: the fastest, and why the others are not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from coursekit.plan._footprint import footprint
from coursekit.plan._rules import PlanError, positive
from coursekit.plan._seconds import fitted
from coursekit.plan.machines import Machine
from coursekit.plan.memory import GB
from coursekit.plan.models import Model
from coursekit.plan.plans import RECOMPUTE, SHORTEST, Job, Plan, broken_rule, job
from coursekit.plan.step import Outcome, weigh

DEGREES = ("tp", "cp", "pp", "ep", "dp", "zero", "micro_batch", "chunks", "recompute")
MICRO_BATCHES = (1, 2, 4, 8)
# Plans as close as this are equal to a prediction; the simpler one is preferred.
CLOSE = 0.01


@dataclass(frozen=True)
class Search:
    """What became of every plan.

    Parameters
    ----------
    outcomes : list of Outcome
        Plans that keep all rules and fit, the fastest first.
    rejected : dict from Plan to str
        The others, each with the first reason why it fails.
    """

    job: Job
    gpus: int
    outcomes: list[Outcome]
    rejected: dict[Plan, str]

    @property
    def best(self) -> Outcome:
        """The simplest of those that are within 1 % of the fastest.

        Raises
        ------
        PlanError
            No plan fits.
        """
        if not self.outcomes:
            reason, count = self.reasons.most_common(1)[0]
            raise PlanError(
                f"no plan fits {self.job.model.title} on {self.gpus} GPUs of "
                f"{self.job.machine.title}; {count} of {len(self.rejected)} plans: {reason}; "
                "take more GPUs or more memory, shorter sequences, or another batch"
            )
        first = self.outcomes[0].seconds.total
        near = [o for o in self.outcomes if o.seconds.total <= first * (1 + CLOSE)]
        return min(near, key=lambda o: (_parts(o.plan), o.seconds.total))

    @cached_property
    def reasons(self) -> Counter[str]:
        """How many plans fail for which reason; how much memory is too much is left out."""
        return Counter(reason.partition(":")[0] for reason in self.rejected.values())

    def why(self, plan: Plan) -> str:
        """Why a plan is not the best: the rule it breaks, or what it loses its time to.

        Raises
        ------
        PlanError
            The plan is for another number of GPUs.
        """
        if plan.gpus != self.gpus:
            raise PlanError(f"a plan must be for {self.gpus} GPUs, got {plan.gpus} ({plan})")
        told = self.rejected.get(plan)
        if told is None:
            found = [o for o in self.outcomes if o.plan == plan]
            made = found[0] if found else _try(self.job, plan)
            told = made if isinstance(made, str) else _against(self.best, made)
        return told

    def by(self, degree: str) -> dict[int | str, Outcome | str]:
        """For each value of one degree, the fastest plan with it, or why there is none.

        Parameters
        ----------
        degree : str
            A field of `Plan`: ``tp``, ``cp``, ``pp``, ``ep``, ``dp``, ``zero``, ``micro_batch``,
            ``chunks`` or ``recompute``.

        Raises
        ------
        PlanError
            There is no such degree.
        """
        if degree not in DEGREES:
            raise PlanError(f"degree must be one of {', '.join(DEGREES)}, got {degree!r}")
        found: dict[int | str, Outcome | str] = {}
        lost: dict[int | str, Counter[str]] = {}
        for outcome in self.outcomes:
            found.setdefault(getattr(outcome.plan, degree), outcome)
        for plan, reason in self.rejected.items():
            lost.setdefault(getattr(plan, degree), Counter())[reason.partition(":")[0]] += 1
        for value, reasons in lost.items():
            found.setdefault(value, reasons.most_common(1)[0][0])
        return dict(sorted(found.items(), key=lambda pair: _rank(pair[0])))


def best(model: Model | str, gpus: int, machine: Machine | str = "h100", **options: Any) -> Search:
    """Try every plan of `enumerate`.

    Parameters
    ----------
    options
        As `job`: ``sequence``, ``batch``, ``flash``, ``fp8``, ``overlap``, ``policy``.

    Raises
    ------
    PlanError
        A name is unknown, or a number is not positive.

    Examples
    --------
    >>> print(best("llama2-7b", 8, "a100").best.plan.tp)
    1
    """
    return try_all(job(model, machine, **options), gpus)


def try_all(job: Job, gpus: int) -> Search:
    """Try every plan of `enumerate` for a job.

    Raises
    ------
    PlanError
        `gpus` is not positive.
    """
    outcomes, rejected = [], {}
    for plan in enumerate(job, gpus):
        made = _try(job, plan)
        if isinstance(made, str):
            rejected[plan] = made
        else:
            outcomes.append(made)
    outcomes.sort(key=lambda o: (o.seconds.total, o.memory.total))
    return Search(job, gpus, outcomes, rejected)


def enumerate(job: Job, gpus: int) -> Iterator[Plan]:
    """Plans for exactly so many GPUs, each with the least recomputation that fits.

    Every way to write `gpus` as TP x CP x PP x DP is there, with every ZeRO stage, micro-batches of
    1 to 8 sequences, chunks and degrees of expert parallelism that could make sense; also those
    that break a rule, so that the rule can be told.

    Raises
    ------
    PlanError
        `gpus` is not positive.
    """
    positive("gpus", gpus)
    shape = job.model
    for tp in _divisors(gpus, 2 * job.machine.node):
        for cp in _divisors(gpus // tp, max(1, job.sequence // SHORTEST), powers=True):
            for pp in _divisors(gpus // tp // cp, shape.layers + 2):
                dp = gpus // tp // cp // pp
                most = min(shape.experts, tp * cp * dp)
                for ep in _divisors(tp * cp * dp, most) if shape.experts else (1,):
                    yield from _pieces(job, Plan(dp, tp, pp, cp=cp, ep=ep))


def _pieces(job: Job, plan: Plan) -> Iterator[Plan]:
    """The degrees once more, with every stage, micro-batch and number of chunks."""
    if broken_rule(job, plan):
        yield plan
        return
    each = (job.model.layers + 2) // plan.pp
    chunks = sorted({v for v in (1, 2, 4, 8, each) if v <= each}) if plan.pp > 1 else [1]
    for zero in range(4 if plan.replicas > 1 else 1):
        for micro_batch in MICRO_BATCHES:
            for v in chunks:
                made = replace(plan, zero=zero, micro_batch=micro_batch, chunks=v)
                yield _least_again(job, made)


def _least_again(job: Job, plan: Plan) -> Plan:
    """The plan with the least recomputation that fits, else with the most."""
    for recompute in RECOMPUTE:
        if recompute == "selective" and job.flash:
            continue
        made = replace(plan, recompute=recompute)
        if footprint(job, made).fits(job.machine.room):
            return made
    return made


def _try(job: Job, plan: Plan) -> Outcome | str:
    if rule := broken_rule(job, plan):
        return rule
    memory, room = footprint(job, plan), job.machine.room
    if not memory.fits(room):
        return f"it does not fit: {memory.gb:.0f} GB where {room / GB:.0f} are free"
    return weigh(job, plan, memory, fitted())


def _against(best: Outcome, other: Outcome) -> str:
    """How much slower, and the three things that it loses most to."""
    if other.plan == best.plan:
        return "it is the best"
    first, second = best.seconds, other.seconds
    more = second.total / first.total - 1
    lost = {name: getattr(second, name) - getattr(first, name) for name in first.parts}
    worst = sorted(lost.items(), key=lambda pair: -pair[1])[:3]
    told = ", ".join(f"{name} +{s:.2g} s" for name, s in worst if s > CLOSE * first.total)
    word = f"{more:.1%} slower" if more > 0 else f"{-more:.1%} faster, but not as simple"
    return word + (f" ({told})" if told else "")


def _parts(plan: Plan) -> int:
    """How many things must be set up."""
    degrees = (plan.tp, plan.cp, plan.pp, plan.ep, plan.chunks, plan.micro_batch)
    return sum(d > 1 for d in degrees) + plan.zero + RECOMPUTE.index(plan.recompute)


def _rank(value: int | str) -> int:
    return value if isinstance(value, int) else RECOMPUTE.index(value)


def _divisors(number: int, most: int, *, powers: bool = False) -> list[int]:
    found = [d for d in range(1, min(number, most) + 1) if number % d == 0]
    return [d for d in found if d & (d - 1) == 0] if powers else found
