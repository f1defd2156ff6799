"""Running a schedule without times: which actions get done, and where ranks are stuck."""

from __future__ import annotations

from ._action import Action
from ._schedule import PipelineSchedule


def run(schedule: PipelineSchedule) -> tuple[list[Action], dict[int, Action]]:
    """All actions in an order in which they can be done, and by rank those that can not.

    Every rank goes on as far as it can before the next one does.
    """
    done: list[Action] = []
    known: set[Action] = set()
    place = [0] * schedule.ranks
    moving = True
    while moving:
        moving = False
        for rank, order in enumerate(schedule.orders):
            while place[rank] < len(order):
                action = order[place[rank]]
                if any(need not in known for need in schedule.needs(action)):
                    break
                known.add(action)
                done.append(action)
                place[rank] += 1
                moving = True
    stuck = {
        rank: order[place[rank]]
        for rank, order in enumerate(schedule.orders)
        if place[rank] < len(order)
    }
    return done, stuck
