"""Collectives as data: who sends which chunk to whom, in which step.

A schedule is built (`build`), proved (`prove`), counted (`count`, `matrix`), traced (`trace`),
saved as JSON (`dumps`, `save`); elsewhere in the course it is run, timed and drawn. How to read a
schedule, and what whoever runs one must do, stands at `Schedule`.

    >>> ring = build("all_reduce", "ring", 4)
    >>> print(prove(ring))
    proved: <Schedule all_reduce ring: 4 ranks, 4 chunks, 24 transfers in 6 steps> does what all_reduce promises

Errors: ScheduleError (a ValueError); WrongSchedule, a kind of it, for what `prove` refuses.
"""  # noqa: E501

from coursekit.schedule._chunks import chunk_bounds
from coursekit.schedule._collectives import COLLECTIVES, Contract, collective_name
from coursekit.schedule._count import Counts
from coursekit.schedule._deadlock import Call, Deadlock, Wait, deadlock, programs
from coursekit.schedule._errors import ScheduleError, WrongSchedule
from coursekit.schedule._json import dumps, load, loads, save
from coursekit.schedule._pipeline import tree_depths, tree_parents
from coursekit.schedule._proof import Content, Proof, contract, prove, trace
from coursekit.schedule._registry import algorithms, build, builder, options
from coursekit.schedule._schedule import Schedule
from coursekit.schedule._transfer import COPY, DTYPE, REDUCE, Message, Transfer

__all__ = [  # noqa: RUF022 - in the order of sorted(), as in every face
    "COLLECTIVES",
    "COPY",
    "Call",
    "Content",
    "Contract",
    "Counts",
    "DTYPE",
    "Deadlock",
    "Message",
    "Proof",
    "REDUCE",
    "Schedule",
    "ScheduleError",
    "Transfer",
    "Wait",
    "WrongSchedule",
    "algorithms",
    "build",
    "builder",
    "chunk_bounds",
    "collective_name",
    "contract",
    "deadlock",
    "dumps",
    "load",
    "loads",
    "options",
    "programs",
    "prove",
    "save",
    "trace",
    "tree_depths",
    "tree_parents",
]
