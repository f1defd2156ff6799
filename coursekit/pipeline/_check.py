"""Whether a schedule can run; if not, what is the first thing that breaks."""

from __future__ import annotations

from collections import Counter

from ._action import Action
from ._errors import PipelineError
from ._run import run
from ._schedule import PipelineSchedule


def check(schedule: PipelineSchedule) -> PipelineSchedule:
    """Return the schedule, if every rank can do all its actions in its order.

    Raises:
        PipelineError: an action is on another rank than its stage, is missing or is there twice; or
            one stands before what it needs; or ranks wait for each other in a circle. `broken`
            holds the first broken dependency, `cycle` the ranks of a circle.
    """
    _placed(schedule)
    _complete(schedule)
    done, stuck = run(schedule)
    if stuck:
        raise _broken(schedule, set(done), stuck)
    return schedule


def _placed(schedule: PipelineSchedule) -> None:
    for rank, order in enumerate(schedule.orders):
        for action in order:
            if action.stage >= schedule.stages:
                raise PipelineError(
                    f"stages go from 0 to {schedule.stages - 1}, got {action} on rank {rank}; "
                    "take it out, or give PipelineSchedule.of(..., stages=...)"
                )
            home = schedule.place(action.stage)
            if home != rank:
                raise PipelineError(
                    f"stage {action.stage} lies on rank {home} (stage % ranks), got {action} on "
                    f"rank {rank}; move it there"
                )


def _complete(schedule: PipelineSchedule) -> None:
    count = Counter(action for order in schedule.orders for action in order)
    twice = next((a for a, n in count.items() if n > 1), None)
    if twice:
        raise PipelineError(
            f"every action is done once, got {twice} {count[twice]} times on rank "
            f"{schedule.place(twice.stage)}; leave one"
        )
    splits = schedule.splits
    for stage in range(schedule.stages):
        for micro_batch in range(schedule.micro_batches):
            wanted = "FIW" if (stage, micro_batch) in splits else "FB"
            have = {p for p in "FBIW" if Action(stage, p, micro_batch) in count}
            if have != set(wanted):
                raise _wrong_set(schedule, stage, micro_batch, wanted, have)


def _wrong_set(
    schedule: PipelineSchedule, stage: int, micro_batch: int, wanted: str, have: set[str]
) -> PipelineError:
    missing = [str(Action(stage, p, micro_batch)) for p in wanted if p not in have]
    rank = schedule.place(stage)
    if missing:
        return PipelineError(
            f"every stage does forward and backward of all {schedule.micro_batches} micro-batches, "
            f"got no {' and no '.join(missing)} on rank {rank}; add it"
        )
    return PipelineError(
        f"a backward is either whole (B) or in halves (I and W), got all of them for micro-batch "
        f"{micro_batch} of stage {stage} on rank {rank}; leave out the B or both others"
    )


def _broken(
    schedule: PipelineSchedule, done: set[Action], stuck: dict[int, Action]
) -> PipelineError:
    """The first action that waits for one later in its own rank's order; else a circle."""
    waits = {r: next(n for n in schedule.needs(a) if n not in done) for r, a in stuck.items()}
    for rank, action in stuck.items():
        need = waits[rank]
        if schedule.place(need.stage) == rank:
            return PipelineError(
                f"{action} needs {need} before it, got {need} later in the order of rank {rank}; "
                f"move {need} up",
                broken=(action, need),
            )
    cycle = _cycle(schedule, waits)
    rank = cycle[0]
    told = "; ".join(
        f"rank {r} stands at {stuck[r]}, which needs {waits[r]} of rank "
        f"{schedule.place(waits[r].stage)}"
        for r in cycle
    )
    return PipelineError(
        "ranks must not wait for each other in a circle, got "
        f"{' -> '.join(map(str, (*cycle, rank)))}: {told}; move one of these down in its order",
        broken=(stuck[rank], waits[rank]),
        cycle=cycle,
    )


def _cycle(schedule: PipelineSchedule, waits: dict[int, Action]) -> tuple[int, ...]:
    path = [min(waits)]
    while True:
        following = schedule.place(waits[path[-1]].stage)
        if following in path:
            return tuple(path[path.index(following) :])
        path.append(following)
