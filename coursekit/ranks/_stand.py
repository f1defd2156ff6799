"""Where a rank stands, and what follows for the others.

A `Stand` is what a rank's side thread reports of its main thread.  `judge`
reads the stands of one moment together: who waits for whom, and which rank the
evidence names as the one that the others wait for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from ._tracebacks import Frame

IDLE, PYTHON, COLLECTIVE, P2P, STOPPED, SILENT, DEAD = (
    "finished",
    "running",
    "collective",
    "p2p",
    "stopped",
    "silent",
    "dead",
)
_WAITING = (COLLECTIVE, P2P)


@dataclass(frozen=True)
class Stand:
    """One rank at one moment.

    Attributes
    ----------
    state : str
        ``finished`` (not in the call any more), ``running`` (Python or other
        code), ``collective``, ``p2p``, ``stopped`` (by a signal), ``silent``
        (no answer) or ``dead``.
    op : str
        The function of torch.distributed or mpi4py that it is in.
    seq : int or None
        How many collectives the rank has issued on that process group, this one
        included; None where the library does not count them.
    what : str
        The buffer's dtype and shape, where it is known.
    members : tuple[int, ...]
        Ranks of the process group; empty where it is not known.
    peer : int or None
        The other rank of a send or receive.
    frames : tuple[Frame, ...]
        The stack, outermost first, without the frames of libraries.
    cut : tuple[int, ...]
        Ranks that do not acknowledge what this one has sent them over TCP.
    """

    rank: int
    state: str
    op: str = ""
    seq: int | None = None
    what: str = ""
    members: tuple[int, ...] = ()
    peer: int | None = None
    frames: tuple[Frame, ...] = ()
    note: str = ""
    cut: tuple[int, ...] = ()

    @property
    def where(self) -> str:
        """File and line of the innermost frame that is the learner's."""
        if not self.frames:
            return ""
        last = self.frames[-1]
        return f"{last.place}, line {last.line}"

    @property
    def doing(self) -> str:
        """One phrase: what the rank is in."""
        if self.state in _WAITING:
            number = f" #{self.seq}" if self.seq is not None else ""
            shape = f" of {self.what}" if self.what else ""
            return f"in {self.op}{number}{shape}"
        words = {
            IDLE: "finished the call",
            PYTHON: "running Python, in no collective",
            STOPPED: "stopped by a signal (SIGSTOP)",
            SILENT: "gives no answer: stopped, or busy in C code that holds the interpreter",
            DEAD: "its process has ended",
        }
        return words[self.state]


@dataclass(frozen=True)
class Verdict:
    """Who waits for whom, and the culprits where the evidence names them."""

    waits: dict[int, tuple[int, ...]] = field(default_factory=dict)
    culprits: tuple[int, ...] = ()
    reason: str = "no single rank can be named from the stacks alone"


def judge(stands: Sequence[Stand]) -> Verdict:
    """Read the stands of all ranks at one moment together."""
    by_rank = {s.rank: s for s in stands}
    waits = {s.rank: _waits_for(s, by_rank) for s in stands if s.state in _WAITING}
    for rule in (_halted, _severed, _cycle, _different, _absent, _elsewhere, _all_inside):
        found = rule(stands, waits)
        if found is not None:
            return Verdict(waits, *found)
    return Verdict(waits)


_Found = tuple[tuple[int, ...], str] | None


def _waits_for(stand: Stand, by_rank: dict[int, Stand]) -> tuple[int, ...]:
    if stand.state == P2P:
        return () if stand.peer is None else (stand.peer,)
    members = stand.members or tuple(by_rank)
    return tuple(
        r for r in members if r != stand.rank and r in by_rank and not _same(stand, by_rank[r])
    )


def _same(a: Stand, b: Stand) -> bool:
    if b.state != COLLECTIVE or b.op != a.op or set(b.members) != set(a.members):
        return False
    return a.seq is None or b.seq is None or a.seq == b.seq


def _halted(stands: Sequence[Stand], _: object) -> _Found:
    halted = tuple(s.rank for s in stands if s.state in (STOPPED, DEAD))
    if not halted:
        return None
    words = ", ".join(f"rank {s.rank}: {s.doing}" for s in stands if s.rank in halted)
    return halted, f"{words}; nothing that waits for it can go on"


def _severed(stands: Sequence[Stand], _: object) -> _Found:
    pairs = sorted({(min(s.rank, r), max(s.rank, r)) for s in stands for r in s.cut})
    if not pairs:
        return None
    told = ", ".join(f"rank {a} and rank {b}" for a, b in pairs)
    ends = tuple(sorted({r for pair in pairs for r in pair}))
    return ends, f"nothing passes between {told}: look at that link, not at the program"


def _cycle(stands: Sequence[Stand], waits: dict[int, tuple[int, ...]]) -> _Found:
    point = {s.rank: s.peer for s in stands if s.state == P2P and s.peer is not None}
    for start in point:
        path = [start]
        while path[-1] in point:
            following = point[path[-1]]
            if following in path:
                ring = path[path.index(following) :]
                chain = " -> ".join(str(r) for r in [*ring, ring[0]])
                ops = ", ".join(f"rank {s.rank} {s.doing}" for s in stands if s.rank in ring)
                return tuple(ring), f"deadlock: {chain}, each waits for the next ({ops})"
            path.append(following)
    return None


def _different(stands: Sequence[Stand], _: object) -> _Found:
    inside = [s for s in stands if s.state == COLLECTIVE]
    calls = Counter((s.op, s.seq) for s in inside)
    if len(calls) < 2 or len({frozenset(s.members) for s in inside}) > 1:
        return None
    (common, votes), *others = calls.most_common()
    told = "; ".join(
        f"rank{'s' if n > 1 else ''} "
        f"{', '.join(str(s.rank) for s in inside if (s.op, s.seq) == c)} in {_name(c)}"
        for c, n in [(common, votes), *others]
    )
    if any(n == votes for _, n in others):
        return (), f"the ranks are in different collectives: {told}"
    odd = tuple(s.rank for s in inside if (s.op, s.seq) != common)
    return odd, f"the ranks are in different collectives: {told}"


def _name(call: tuple[str, int | None]) -> str:
    op, seq = call
    return op if seq is None else f"{op} #{seq}"


def _absent(stands: Sequence[Stand], waits: dict[int, tuple[int, ...]]) -> _Found:
    by_rank = {s.rank: s for s in stands}
    awaited = {r for targets in waits.values() for r in targets}
    absent = [by_rank[r] for r in sorted(awaited) if r in by_rank and r not in waits]
    if not absent:
        return None
    return tuple(s.rank for s in absent), "; ".join(_absence(s, stands) for s in absent)


def _absence(stand: Stand, stands: Sequence[Stand]) -> str:
    waiting = [s for s in stands if s.state in _WAITING]
    ops = " and ".join(sorted({_name((s.op, s.seq)) for s in waiting}))
    if stand.state == IDLE:
        return f"rank {stand.rank} finished the call and never entered {ops}"
    if stand.state == SILENT:
        return f"rank {stand.rank} {stand.doing}; the others wait for it in {ops}"
    return f"rank {stand.rank} is at {stand.where or 'its own code'} and has not entered {ops}"


def _elsewhere(stands: Sequence[Stand], _: object) -> _Found:
    """Ranks in a collective of another group than most, which waits for them."""
    inside = [s for s in stands if s.state == COLLECTIVE and s.members]
    groups = Counter(frozenset(s.members) for s in inside).most_common(2)
    if len(groups) < 2 or groups[0][1] == groups[1][1]:
        return None
    common = groups[0][0]
    odd = [s for s in inside if s.rank in common and frozenset(s.members) != common]
    if not odd:
        return None
    told = "; ".join(
        f"rank {s.rank} is in {s.op} of the group {sorted(s.members)}, and the ranks of "
        f"{sorted(common)} wait for it in theirs"
        for s in odd
    )
    return tuple(s.rank for s in odd), told


def _all_inside(stands: Sequence[Stand], waits: dict[int, tuple[int, ...]]) -> _Found:
    running = tuple(s.rank for s in stands if s.state in (PYTHON, SILENT))
    if running and not waits:
        ranks = ", ".join(str(r) for r in running)
        return running, f"nobody waits for anybody: rank {ranks} is still computing"
    inside = [s for s in stands if s.state == COLLECTIVE]
    shapes = {s.what for s in inside}
    if len(inside) > 1 and len(shapes) > 1:
        told = ", ".join(f"rank {s.rank}: {s.what}" for s in inside)
        return (), f"all are in the same collective, with different buffers: {told}"
    if inside and len(inside) == len(stands):
        return (), "all ranks are inside the same collective: look at the links, not the program"
    return None


def table(stands: Sequence[Stand], verdict: Verdict) -> str:
    """The stands as text, one rank a line and the source line under it."""
    lines = []
    for s in sorted(stands, key=lambda s: s.rank):
        place = f"  at {s.where}" if s.where and s.state != IDLE else ""
        targets = verdict.waits.get(s.rank, ())
        wait = f"  [waits for rank {', '.join(map(str, targets))}]" if targets else ""
        lines.append(f"  rank {s.rank}  {s.doing}{place}{wait}")
        if s.frames and s.state != IDLE and s.frames[-1].text():
            lines.append(f"          {s.frames[-1].text()}")
        if s.note:
            lines.append(f"          {s.note}")
    return "\n".join(lines)
