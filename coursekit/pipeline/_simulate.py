"""How long a schedule takes, and how many activations it holds, if stages take the given times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from ._action import Action
from ._check import check
from ._errors import PipelineError
from ._run import run
from ._schedule import PipelineSchedule

Time = int | float


class Bar(NamedTuple):
    """When a rank does an action, in the unit of the times that were given."""

    rank: int
    action: Action
    start: Time
    end: Time


@dataclass(frozen=True)
class Timeline:
    """When every action of a schedule is done.

    Attributes:
        bars: in the order of their ends.
        ranks: how many there are.
    """

    bars: tuple[Bar, ...]
    ranks: int

    @property
    def end(self) -> Time:
        """When the last action ends."""
        return max(bar.end for bar in self.bars)

    def busy(self, rank: int) -> Time:
        """How long a rank computes."""
        return sum(bar.end - bar.start for bar in self.bars if bar.rank == rank)

    @property
    def bubble(self) -> Fraction | float:
        """Idle time over busy time, all ranks together; exact where times are whole numbers."""
        busy = sum(self.busy(rank) for rank in range(self.ranks))
        idle = self.ranks * self.end - busy
        whole = isinstance(busy, int) and isinstance(idle, int)
        return Fraction(idle, busy) if whole else idle / busy  # type: ignore[arg-type]


def simulate(
    schedule: PipelineSchedule,
    forward: Time | Sequence[Time] = 1,
    backward: Time | Sequence[Time] = 2,
    *,
    weight: Time | Sequence[Time] | None = None,
    p2p: Time = 0,
) -> Timeline:
    """When every action is done, if no rank ever waits without need.

    A message leaves when its action ends, takes `p2p` and keeps nobody from computing; stages of
    one rank hand over for nothing.

    Args:
        forward, backward: the time of a stage for a micro-batch; one number, or one a stage. A rank
            with several chunks takes their sum.
        weight: the part of `backward` that is W where it comes in halves; half of it when None.
        p2p: the time of a message between ranks.

    Raises:
        PipelineError: the schedule cannot run (see `check`), or a time is below 0.
    """
    check(schedule)
    cost = _costs(schedule, forward, backward, weight, p2p)
    ends: dict[Action, Time] = {}
    free: list[Time] = [0] * schedule.ranks
    bars = []
    for action in run(schedule)[0]:
        rank = schedule.place(action.stage)
        came = (
            ends[need] + (p2p if schedule.place(need.stage) != rank else 0)
            for need in schedule.needs(action)
        )
        start = max(free[rank], *came, 0)
        free[rank] = ends[action] = start + cost[action.phase][action.stage]
        bars.append(Bar(rank, action, start, ends[action]))
    return Timeline(tuple(sorted(bars, key=lambda bar: (bar.end, bar.start))), schedule.ranks)


def peak(schedule: PipelineSchedule) -> list[int]:
    """The most activations of a stage and micro-batch that each rank holds at a time.

    Held from F to B, or to W where the backward comes in halves. With v chunks a rank each is the
    v-th part of what a rank without chunks holds for a micro-batch.

    Raises:
        PipelineError: the schedule cannot run.
    """
    check(schedule)
    most = []
    for order in schedule.orders:
        held = seen = 0
        for action in order:
            held += {"F": 1, "I": 0}.get(action.phase, -1)
            seen = max(seen, held)
        most.append(seen)
    return most


def _costs(
    schedule: PipelineSchedule,
    forward: Time | Sequence[Time],
    backward: Time | Sequence[Time],
    weight: Time | Sequence[Time] | None,
    p2p: Time,
) -> dict[str, list[Time]]:
    f, b = _each(schedule, "forward", forward), _each(schedule, "backward", backward)
    # Times that are whole numbers stay whole.
    halves = [x // 2 if isinstance(x, int) and x % 2 == 0 else x / 2 for x in b]
    w = halves if weight is None else _each(schedule, "weight", weight)
    i = [whole - part for whole, part in zip(b, w, strict=True)]
    if min(*f, *b, *w, *i, p2p) < 0:
        raise PipelineError(
            f"times must be 0 or more, and weight at most backward, got forward {forward}, "
            f"backward {backward}, weight {weight}, p2p {p2p}; try forward 1, backward 2"
        )
    return {"F": f, "B": b, "I": i, "W": w}


def _each(schedule: PipelineSchedule, name: str, given: Time | Sequence[Time]) -> list[Time]:
    each = list(given) if isinstance(given, Sequence) else [given] * schedule.stages
    if len(each) != schedule.stages:
        raise PipelineError(
            f"{name} is one time or one a stage, got {len(each)} for {schedule.stages} stages; "
            f"give {schedule.stages}, or one number"
        )
    return each
