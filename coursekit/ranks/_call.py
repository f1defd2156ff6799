"""One call on the ranks: watched from its start to its results or its error."""

from __future__ import annotations

import re
import time
from collections import Counter
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ._errors import RankDied, RankFailed, RanksError, RanksHung
from ._member import describe_end, signal_of
from ._output import Screen, Transcript
from ._session import Session
from ._stand import Stand, judge, table
from ._tracebacks import Failure, crash_frames

_TICK = 0.05
_GRACE_RAISE = 1.0
_GRACE_DEATH = 0.15
_INTERRUPT_WAIT = 0.25

# Errors that follow from another rank's failure and hide it.
_CONSEQUENCE = re.compile(
    r"Connection (?:closed|reset) by peer|Broken pipe|Socket closed|Connection refused"
    r"|not run: an earlier call|NCCL communicator was aborted|remote process exited"
)


class RanksInterrupted(KeyboardInterrupt):
    """The cell was interrupted; the ranks stopped and can be used again."""

    def _render_traceback_(self) -> list[str]:
        return f"KeyboardInterrupt: {self}".splitlines()


@dataclass(frozen=True)
class _End:
    rank: int
    failure: Failure | None = None
    stand: Stand | None = None
    status: int | None = None
    crash: str = ""

    @property
    def weight(self) -> int:
        """0 for a death, 1 for an error of its own, 2 for a consequence of another's."""
        if self.failure is None:
            return 0 if self.status is not None else 1
        return 2 if _CONSEQUENCE.search(self.failure.says) else 1

    def like(self, other: _End) -> bool:
        """Whether two ranks raised the same thing at the same place."""
        mine, theirs = self.failure, other.failure
        if mine is None or theirs is None:
            return self is other
        return (mine.says, mine.frames) == (theirs.says, theirs.frames)


class Call:
    """What was asked of some ranks, and what came back."""

    def __init__(self, session: Session, ranks: list[int]) -> None:
        self.session, self.ranks = session, ranks
        self.id = session.next_id()
        self.transcript = Transcript(ranks)
        self.futures: dict[int, Future[Any]] = {r: Future() for r in ranks}
        self._values: dict[int, Any] = {}
        self._seqs: dict[int, Any] = {}
        self._ends: list[_End] = []
        self._first_end: float | None = None
        self._closed = False

    # -- called by the session, its lock held --------------------------------

    def answered(self, rank: int, message: dict[str, Any]) -> None:
        """A rank has finished the call, well or badly."""
        self._seqs[rank] = message["seq"]
        if message["ok"]:
            self._values[rank] = message["value"]
        else:
            self._add_end(_End(rank, failure=message["error"], stand=message.get("stand")))

    def died(self, rank: int, status: int | None, crash: str) -> None:
        """A rank's process ended before it answered."""
        self._add_end(_End(rank, status=status, crash=crash))

    def closed(self) -> None:
        """The ranks were closed under the call."""
        self._closed = True

    def _add_end(self, end: _End) -> None:
        if self._first_end is None:
            self._first_end = time.monotonic()
        self._ends.append(end)

    # -- called by whoever waits ---------------------------------------------

    def wait(self, timeout: float | None) -> list[Any]:
        """Return one value a rank, or raise what happened."""
        screen = Screen(self.transcript)
        try:
            complete = self._watch(screen, timeout)
            values = self._conclude(complete, timeout)
        except KeyboardInterrupt:
            screen.finish()
            raise self._interrupted() from None
        except RanksError:
            screen.finish()
            raise
        self._show_values(values)
        screen.finish()
        return values

    def _show_values(self, values: list[Any]) -> None:
        """Overridden for cells, whose values are shown instead of returned."""

    def _watch(self, screen: Screen, timeout: float | None) -> bool:
        began = time.monotonic()
        until = None if timeout is None else began + timeout
        while True:
            with self.session.changed:
                self.session.changed.wait_for(self._complete, _TICK)
                if self._complete():
                    return True
            screen.refresh()
            now = time.monotonic()
            if self._first_end is not None and now - self._first_end > self._grace():
                return False
            if until is not None and now >= until:
                return False

    def _complete(self) -> bool:
        return self._closed or len(self._values) + len(self._ends) == len(self.ranks)

    def _grace(self) -> float:
        return _GRACE_DEATH if any(e.failure is None for e in self._ends) else _GRACE_RAISE

    def _conclude(self, complete: bool, timeout: float | None) -> list[Any]:
        if self._closed:
            raise RanksError("the ranks were closed while the call ran; make them again: Ranks(4)")
        if complete and not self._ends:
            return [self._values[r] for r in self.ranks]
        unfinished = [m.rank for m in self.session.busy() if self in m.calls]
        stands = self.session.stands() if unfinished else []
        if not self._ends:
            raise self._hung(stands, timeout)
        self._note_deaths_outside()
        ends = sorted(self._ends, key=lambda e: e.weight)
        disturbed = bool(unfinished) or len(set(self._seqs.values())) > 1
        disturbed = disturbed or any(e.weight != 1 for e in ends)
        cost = self.session.recover(renew=disturbed) if disturbed else ""
        raise self._failed(ends, [s for s in stands if s.rank in unfinished], cost)

    def _note_deaths_outside(self) -> None:
        """A rank that this call did not use can be the reason why it failed."""
        for m in self.session.dead():
            if m.rank not in self.ranks:
                self._ends.append(_End(m.rank, status=m.status, crash=m.crash))

    def _interrupted(self) -> RanksInterrupted:
        session = self.session
        with suppress(KeyboardInterrupt):
            session.tell(session.busy(), "interrupt")
            session.wait_until(lambda: not session.busy(), _INTERRUPT_WAIT)
        return RanksInterrupted(f"the ranks stopped; {session.recover()}")

    # -- errors -----------------------------------------------------------

    def _hung(self, stands: list[Stand], timeout: float | None) -> RanksHung:
        verdict = judge(stands)
        cost = self.session.recover()
        named = ", ".join(map(str, verdict.culprits))
        lines = [
            f"no end after {timeout:g} s. Where every rank stands:",
            table(stands, verdict),
            f"Verdict: {verdict.reason}." + (f" Look at rank {named} first." if named else ""),
            f"Now: {cost}.",
            "More time, if it only needs that: timeout=... in seconds.",
        ]
        return RanksHung("\n".join(lines), stands, list(verdict.culprits))

    def _failed(self, ends: list[_End], stands: list[Stand], cost: str) -> RanksError:
        # Which of several equal failures comes first is chance: the lowest rank tells it.
        same = sorted((e for e in ends if e.like(ends[0])), key=lambda e: e.rank)
        root, more = same[0], [e for e in ends if e not in same]
        told = [(e.rank, _line(e)) for e in more] + [(s.rank, _standing(s)) for s in stands]
        tail = [_same(same[1:]), *(line for _, line in sorted(told))]
        tail += [_mismatch([e.stand for e in ends if e.stand is not None] + stands)]
        tail += [f"Now: {cost}." if cost else ""]
        if root.failure is None:
            return self._death(root, tail)
        head = f"rank {root.rank} raised {root.failure.type_name}\n\n{root.failure.render()}\n"
        failures = {e.rank: e.failure.render() for e in ends if e.failure is not None}
        message = "\n".join([head, *filter(None, tail)]).rstrip()
        return RankFailed(message, root.rank, root.failure.type_name, failures)

    def _death(self, root: _End, tail: list[str]) -> RankDied:
        name = signal_of(root.status)
        lines = [f"rank {root.rank}: its process {_ended_how(root.status)}"]
        for f in crash_frames(root.crash):
            lines += [f"  at {f.place}, line {f.line}, in {f.function}", f"    {f.text()}".rstrip()]
        lines += [f"  {line}" for line in self.transcript.last_errors(root.rank)]
        hint = _HINTS.get(name or "")
        lines += [hint] if hint else []
        code = None
        if root.status is not None and name is None:
            code = root.status >> 8
        message = "\n".join([*lines, *filter(None, tail)])
        return RankDied(message, root.rank, name, code)


_HINTS = {
    "SIGKILL": "SIGKILL often comes from the kernel's out-of-memory killer: "
    "see `dmesg | tail`, and the memory limit of the container.",
    "SIGABRT": "SIGABRT comes from a library's own check. In a Gloo collective it mostly means "
    "that the ranks brought buffers of different sizes.",
    "SIGSEGV": "SIGSEGV: C or C++ code touched memory that it must not.",
}


def _ended_how(status: int | None) -> str:
    how = describe_end(status)
    return f"was {how}" if how.startswith("killed") else how


def _same(ends: list[_End]) -> str:
    if not ends:
        return ""
    ranks = ", ".join(str(e.rank) for e in ends)
    return f"rank{'s' if len(ends) > 1 else ''} {ranks} raised the same"


def _line(end: _End) -> str:
    if end.failure is None:
        return f"rank {end.rank} {describe_end(end.status)}"
    place = f" at {end.stand.where}" if end.stand is not None and end.stand.where else ""
    if end.weight == 2:
        doing = f" while {end.stand.doing}" if end.stand is not None else ""
        return f"rank {end.rank} lost its connections{doing}{place}, as a consequence"
    return f"rank {end.rank} raised too{place}: {end.failure.says.splitlines()[-1][:160]}"


def _mismatch(stands: list[Stand]) -> str:
    """Say it when ranks brought different buffers to what should be one collective."""
    inside = [s for s in stands if s.state == "collective" and s.what]
    if len({s.what for s in inside}) < 2:
        return ""
    told = ", ".join(f"rank {s.rank} {s.op} of {s.what}" for s in sorted(inside, key=_rank))
    (_, most), *others = Counter(s.what for s in inside).most_common()
    alone = [s.rank for s in inside for what, n in others if (s.what, n) == (what, 1) and most > 1]
    look = f" Look at rank {alone[0]} first." if len(alone) == 1 else ""
    return f"The ranks brought different buffers: {told}.{look}"


def _rank(stand: Stand) -> int:
    return stand.rank


def _standing(stand: Stand) -> str:
    if stand.state == "finished":
        return f"rank {stand.rank} had finished"
    where = f" at {stand.where}" if stand.where else ""
    return f"rank {stand.rank} was {stand.doing}{where}"
