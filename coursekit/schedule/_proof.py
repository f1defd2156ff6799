"""Proof that a schedule does what its collective promises, by symbolic execution.

Instead of numbers a chunk holds the set of ranks whose contributions are in it, so a proof holds
for all data, all lengths and every commutative and associative reduction.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

from coursekit.schedule._collectives import CUSTOM, ROOTED, Contract, Piece, collective_name
from coursekit.schedule._errors import ScheduleError, WrongSchedule, ranks_text
from coursekit.schedule._races import Race, first_race
from coursekit.schedule._schedule import Schedule
from coursekit.schedule._transfer import REDUCE

__all__ = ["Content", "Proof", "contract", "prove", "trace"]


class Fault(NamedTuple):
    """How a chunk went wrong: the chunk of the rank in the step, and what it held then."""

    step: int
    rank: int
    slot: int
    kind: str
    told: str
    held: int


class Content(NamedTuple):
    """What a chunk holds: chunk number `chunk` of the input, summed over some ranks.

    `ranks` has bit r set where rank r's contribution is in it; `fault` says what went wrong with
    it or with something added to it, None if nothing did.
    """

    chunk: int
    ranks: int
    fault: Fault | None = None

    @property
    def contributors(self) -> tuple[int, ...]:
        """The ranks whose contributions are in it."""
        return _members(self.ranks)


State = list[list[Content | None]]


@dataclasses.dataclass(frozen=True)
class Proof:
    """A schedule that was found right."""

    schedule: Schedule

    def __str__(self) -> str:
        return f"proved: {self.schedule!r} does what {self.schedule.collective} promises"


def contract(schedule: Schedule) -> Contract:
    """What the schedule's collective promises.

    Raises:
        ScheduleError: the schedule's collective is `custom`.
    """
    if schedule.collective == CUSTOM:
        raise ScheduleError(
            "a schedule must belong to a collective to be proved, got custom; "
            "try prove(schedule, 'all_reduce')"
        )
    return Contract(schedule.collective, schedule.size, schedule.chunks, schedule.root)


def prove(schedule: Schedule, collective: str | None = None, root: int | None = None) -> Proof:
    """Show that every rank ends with what the collective promises.

    Args:
        schedule: what to prove.
        collective, root: prove it as this collective in place of the schedule's own.

    Raises:
        WrongSchedule: it is wrong; the error names the first wrong chunk. A chunk that is sent
            before it was received and a race are always refused; a contribution added twice, or to
            another chunk, is if a result depends on it.
        ScheduleError: there is no such collective, or its chunks do not fit.
    """
    run = _Run(_as(schedule, collective, root))
    for _ in run.steps():
        if run.broken is not None:
            raise run.error(run.broken)
    run.check_ends()
    return Proof(run.schedule)


def trace(
    schedule: Schedule, collective: str | None = None, root: int | None = None
) -> list[State]:
    """What every chunk of every rank holds: before the first step, then after each step.

    `trace(s)[step + 1][rank][chunk]` is a `Content`, or None where nothing has been received. Wrong
    schedules are traced too, to the end; what went wrong stands in `Content.fault`.
    """
    run = _Run(_as(schedule, collective, root))
    return [[list(chunks) for chunks in state] for state in run.states()]


def _as(schedule: Schedule, collective: str | None, root: int | None) -> Schedule:
    if collective is None and root is None:
        return schedule
    collective = collective_name(schedule.collective if collective is None else collective)
    if root is None and collective in ROOTED:
        root = schedule.root
    return dataclasses.replace(schedule, collective=collective, root=root)


class _Run:
    """One symbolic execution, step by step, all ranks in step.

    That ranks go in step is no loss: see `Schedule`, Order.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.contract = contract(schedule)
        more: list[Content | None] = [None] * (schedule.slots - schedule.chunks)
        self.state: State = [
            [piece and Content(*piece) for piece in self.contract.starts(rank)] + more
            for rank in range(schedule.size)
        ]
        self.written: dict[tuple[int, int], int] = {}
        self.broken: Fault | None = None
        self.race = first_race(schedule)

    def states(self) -> Iterator[State]:
        yield self.state
        yield from self.steps()

    def steps(self) -> Iterator[State]:
        step = self._tell if self.schedule.collective == "barrier" else self._step
        for number, part in enumerate(self.schedule.steps()):
            if self.race is not None and self.race.step == number:
                self._note(self._raced(self.race))
            step(part.tolist())
            yield self.state

    def _step(self, part: list[tuple[int, ...]]) -> None:
        state = self.state
        moved = [state[src][chunk] for _, src, _, _, chunk, _ in part]
        # Copies land while the step runs, reductions when it is over.
        for sent, (step, src, dst, op, chunk, into) in zip(moved, part, strict=True):
            if sent is None:
                self._note(self._unread(step, src, chunk, f"sends it to rank {dst}"))
            if op != REDUCE:
                state[dst][into] = sent
                self.written[dst, into] = step
        for sent, (step, _, dst, op, _, into) in zip(moved, part, strict=True):
            if op == REDUCE:
                state[dst][into] = self._sum(step, dst, into, sent)
                self.written[dst, into] = step

    def _tell(self, part: list[tuple[int, ...]]) -> None:
        """A barrier's messages carry no data; what matters is of whom the sender has heard."""
        before = [chunks[0] for chunks in self.state]
        for step, src, dst, *_ in part:
            told, knows = before[src], self.state[dst][0]
            assert told is not None
            assert knows is not None
            self.state[dst][0] = Content(0, knows.ranks | told.ranks)
            self.written[dst, 0] = step

    def _sum(self, step: int, rank: int, slot: int, sent: Content | None) -> Content | None:
        have = self.state[rank][slot]
        if have is None:
            self._note(self._unread(step, rank, slot, "adds to it"))
            return sent
        if sent is None:
            return have
        faults = [fault for fault in (have.fault, sent.fault) if fault is not None]
        twice = have.ranks & sent.ranks
        if have.chunk != sent.chunk:
            told = f"adds chunk {sent.chunk} to chunk {have.chunk}"
            faults.append(Fault(step, rank, slot, "mixed", told, have.ranks))
        elif twice:
            told = f"adds what {_names(twice)} contributed a second time"
            faults.append(Fault(step, rank, slot, "twice", told, have.ranks))
        return Content(have.chunk, have.ranks | sent.ranks, min(faults, default=None))

    def _note(self, fault: Fault) -> None:
        # A chunk that is sent before it was received is often in a race too; the first tells more.
        if self.broken is None or _order(fault) < _order(self.broken):
            self.broken = fault

    def _unread(self, step: int, rank: int, slot: int, told: str) -> Fault:
        return Fault(step, rank, slot, "unread", f"{told}, but has not received it yet", 0)

    def _raced(self, race: Race) -> Fault:
        have = self.state[race.rank][race.slot]
        held = have.ranks if have else 0
        return Fault(race.step, race.rank, race.slot, "race", race.told, held)

    def check_ends(self) -> None:
        """Raise for the chunk that went wrong first."""
        wrong: list[Fault] = []
        for rank in range(self.schedule.size):
            for chunk, goal in enumerate(self._goals(rank), self.schedule.output):
                have = self.state[rank][chunk]
                if goal is not None and have != Content(*goal):
                    wrong.append(self._end(rank, chunk, goal, have))
        if wrong:
            # A chunk that was never written is found wrong only at the end.
            raise self.error(min(wrong, key=lambda fault: (fault.step < 0, fault)))

    def _goals(self, rank: int) -> list[Piece | None]:
        if self.schedule.collective == "barrier":
            return [(0, self.contract.everyone)]
        return self.contract.goals(rank)

    def _end(self, rank: int, chunk: int, goal: Piece, have: Content | None) -> Fault:
        if have is not None and have.fault is not None:
            return have.fault
        held = 0 if have is None else have.ranks
        if have is None:
            told = "ends without having received it"
        elif have.chunk != goal[0]:
            told = f"ends with chunk {have.chunk} of the input in place of chunk {goal[0]}"
        else:
            told = f"ends with what {_names(held)} contributed"
        if missing := goal[1] & ~held:
            told += f"; {_names(missing)} {'is' if missing.bit_count() == 1 else 'are'} missing"
        if over := held & ~goal[1]:
            told += f"; {_names(over)} should not be in it"
        step = self.written.get((rank, chunk), -1)
        return Fault(step, rank, chunk, "unfinished", told, held)

    def error(self, fault: Fault) -> WrongSchedule:
        goal = self._goal(fault)
        if self.schedule.collective == "barrier":
            where = "a barrier must bring word of every rank to every rank: "
            where += f"rank {fault.rank} ends having heard of {_names(fault.held)} only"
        else:
            when = "never written" if fault.step < 0 else f"step {fault.step}"
            where = f"{_RULES[fault.kind]}: chunk {fault.slot} of rank {fault.rank}, {when}: "
            where += f"rank {fault.rank} {fault.told}"
            if fault.kind in {"twice", "mixed"}:
                where += f" (it held the sum of {_names(fault.held)})"
            if goal:
                where += f"; at the end it must hold what {_names(goal)} contributed"
        return WrongSchedule(
            f"{where}; look at what leads to it in table() and trace()",
            kind=fault.kind,
            step=None if fault.step < 0 else fault.step,
            rank=fault.rank,
            chunk=fault.slot,
            holds=_members(fault.held),
            wants=_members(goal),
        )

    def _goal(self, fault: Fault) -> int:
        goals = self._goals(fault.rank)
        at = fault.slot - self.schedule.output
        goal = goals[at] if 0 <= at < len(goals) else None
        return goal[1] if goal else 0


_RULES = {
    "unread": "a chunk must be received before it is used",
    "race": "a chunk must not be overwritten in the step that uses it",
    "twice": "every contribution must be added once",
    "mixed": "only chunks of the same number may be added",
    "unfinished": "every chunk must end with what the collective promises",
}


def _order(fault: Fault) -> tuple[int, bool, Fault]:
    return fault.step, fault.kind == "race", fault


def _members(mask: int) -> tuple[int, ...]:
    return tuple(rank for rank in range(mask.bit_length()) if mask >> rank & 1)


def _names(mask: int) -> str:
    return ranks_text(_members(mask))
