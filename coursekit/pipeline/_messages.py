"""When each rank must begin to send and to receive, so that it never waits in a circle."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from ._action import Action
from ._schedule import PipelineSchedule
from ._simulate import simulate


class Post(NamedTuple):
    """Begin a message: `kind` is ``send`` or ``recv``; it carries what `source` has made."""

    kind: str
    peer: int
    source: Action


class Step(NamedTuple):
    """An action, what to begin before it, and what after it. Nothing is waited for but by need."""

    before: tuple[Post, ...]
    action: Action
    after: tuple[Post, ...]


def steps(schedule: PipelineSchedule) -> list[list[Step]]:
    """For every rank its actions with the messages between them.

    Two ranks begin the messages between them in one common order, in which they are made in the
    simulation: so they match without tags, and NCCL, which does the messages of two ranks one
    after the other, cannot get stuck.

    Raises:
        PipelineError: the schedule cannot run.
    """
    queues = _queues(schedule)
    planned = []
    for rank, order in enumerate(schedule.orders):
        mine = {peer: list(queue) for (own, peer), queue in queues.items() if own == rank}
        planned.append([_step(schedule, rank, action, mine) for action in order])
    return planned


def _queues(schedule: PipelineSchedule) -> dict[tuple[int, int], list[Post]]:
    """By rank and peer: all messages between them, in the order of their making."""
    queues: dict[tuple[int, int], list[Post]] = defaultdict(list)
    for bar in simulate(schedule, 2, 4).bars:
        goal = _goal(schedule, bar.action)
        if goal is not None and goal != bar.rank:
            queues[bar.rank, goal].append(Post("send", goal, bar.action))
            queues[goal, bar.rank].append(Post("recv", bar.rank, bar.action))
    return queues


def _goal(schedule: PipelineSchedule, action: Action) -> int | None:
    """The rank that waits for what an action makes."""
    stage = action.stage + 1 if action.phase == "F" else action.stage - 1
    if action.phase == "W" or stage not in range(schedule.stages):
        return None
    return schedule.place(stage)


def _step(
    schedule: PipelineSchedule, rank: int, action: Action, queues: dict[int, list[Post]]
) -> Step:
    before: list[Post] = []
    for need in schedule.needs(action):
        peer = schedule.place(need.stage)
        if peer != rank:
            before += _until(queues[peer], Post("recv", peer, need))
    goal = _goal(schedule, action)
    sends = goal is not None and goal != rank
    after = _until(queues[goal], Post("send", goal, action)) if sends and goal is not None else []
    return Step(tuple(before), action, tuple(after))


def _until(queue: list[Post], last: Post) -> list[Post]:
    """Take everything up to a message off the queue; nothing when it has begun already."""
    if last not in queue:
        return []
    taken = queue[: queue.index(last) + 1]
    del queue[: len(taken)]
    return taken
