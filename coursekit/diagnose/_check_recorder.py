"""Flight recorders' dumps of several ranks, laid side by side by sequence number."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from coursekit.diagnose._event import Line
from coursekit.diagnose._facts import PROOFS, Facts
from coursekit.diagnose._found import Found, listed
from coursekit.diagnose._recorder import Entry
from coursekit.diagnose._say import Say

DONE = "completed"
# Their inputs differ between ranks by right.
UNEVEN = ("all_to_all", "alltoall", "gather", "scatter", "send", "recv")


@dataclass
class Group:
    """One process group: each rank's entries, and who ought to be there."""

    name: str
    ranks: dict[int, dict[int, Entry]]
    sources: dict[int, str]
    members: list[int]

    def line(self, rank: int, seq: int) -> Line:
        entry = self.ranks[rank][seq]
        return Line(self.sources[rank], entry.number, f"rank {rank} {entry.text}")

    def at(self, seq: int) -> dict[int, Entry]:
        return {r: e[seq] for r, e in self.ranks.items() if seq in e}


def groups(facts: Facts) -> list[Group]:
    """Groups that any dump names; a dump without a rank is counted in the order of reading."""
    found: dict[str, Group] = {}
    for number, dump in enumerate(facts.dumps):
        rank = dump.rank if dump.rank is not None else number
        for name, entries in dump.groups.items():
            group = found.setdefault(name, Group(dump.names.get(name, name), {}, {}, []))
            group.ranks[rank] = entries
            group.sources[rank] = dump.source
            group.members = group.members or dump.members.get(name, [])
    return list(found.values())


def _common(group: Group) -> range:
    """Numbers that no rank's ring buffer has overwritten."""
    first = max(min(e) for e in group.ranks.values())
    return range(first, max(max(e) for e in group.ranks.values()) + 1)


def _barrier(entry: Entry) -> bool:
    return "barrier" in entry.op or ("all_reduce" in entry.op and entry.elements == 1)


def mismatches(facts: Facts, kind: str) -> Iterator[Found]:
    """The first number at which ranks recorded different calls."""
    for group in groups(facts):
        if len(group.ranks) < 2:
            continue
        for seq in _numbers(group):
            told = _differ(list(group.at(seq).values()))
            if told:
                if told == kind:
                    yield _mismatch(group, seq)
                break


def _numbers(group: Group) -> list[int]:
    seen = {seq for e in group.ranks.values() for seq in e}
    first = _common(group).start
    return sorted(seq for seq in seen if seq >= first)


def _differ(entries: list[Entry]) -> str:
    barriers = sum(_barrier(e) for e in entries)
    ops = {e.op for e in entries}
    same_size = len({(e.sizes, e.dtype) for e in entries}) <= 1
    if len(ops) == 1 and (same_size or any(word in next(iter(ops)) for word in UNEVEN)):
        return ""
    if 0 < barriers < len(entries):
        return "barrier"
    return "order" if len(ops) > 1 else "size"


def _mismatch(group: Group, seq: int) -> Found:
    calls: dict[str, list[int]] = defaultdict(list)
    for rank, entry in group.at(seq).items():
        calls[f"{entry.op} {entry.sizes} {entry.dtype}".strip()].append(rank)
    fewest = min(len(r) for r in calls.values())
    fewer = [ranks for ranks in calls.values() if len(ranks) == fewest]
    told = "; ".join(f"rank {listed(ranks)} {call}" for call, ranks in calls.items())
    lines = [group.line(r, seq) for ranks in calls.values() for r in sorted(ranks)[:4]]
    # With equally many on both sides nobody can be blamed.
    ranks = sorted(fewer[0]) if len(fewer) == 1 else []
    return Found(lines[:PROOFS], ranks, {"difference": f"{group.name} #{seq}: {told}"})


def _first_open(group: Group) -> int | None:
    """The first number that some rank has not completed."""
    open_ = [seq for e in group.ranks.values() for seq, entry in e.items() if entry.state != DONE]
    return min(open_, default=None)


def absent(group: Group) -> tuple[int, list[int], list[int]] | None:
    """The number that is waited for, ranks without it, ranks without a dump."""
    seq = _first_open(group)
    if seq is None:
        return None
    # A rank whose buffer begins later has passed it.
    lacking = [r for r, e in group.ranks.items() if seq not in e and max(e) < seq]
    silent = sorted(set(group.members) - set(group.ranks))
    return seq, sorted(lacking), silent


def missing(facts: Facts, *, alone: bool) -> Iterator[Found]:
    """Ranks that did not join; `alone` asks for rank 0 that keeps a barrier waiting."""
    for group in groups(facts):
        told = absent(group)
        if told is None:
            continue
        seq, lacking, silent = told
        who = lacking or silent
        waiting = group.at(seq)
        # Without most of the dumps, an absent one says nothing.
        if not who or not waiting or (not lacking and len(silent) > len(group.ranks)):
            continue
        barrier = all(_barrier(e) for e in waiting.values())
        if (barrier and who == [0]) is not alone:
            continue
        entry = next(iter(waiting.values()))
        why = "not_enqueued" if lacking else "no_dump"
        lines = [group.line(r, max(group.ranks[r])) for r in lacking[:4]]
        lines += [group.line(r, seq) for r in sorted(waiting)[:6]]
        fields = {
            "missing": Say(why, ranks=listed(who), group=group.name, seq=seq, op=entry.op),
            "timeout": entry.timeout_ms // 1000,
        }
        yield Found(lines, who, fields, "high" if lacking else "medium")


def stalls(facts: Facts) -> Iterator[Found]:
    """All are in the same call and it does not end."""
    for group in groups(facts):
        told = absent(group)
        if told is None or told[1] or told[2]:
            continue
        seq = told[0]
        waiting = {r: e for r, e in group.at(seq).items() if e.state != DONE}
        entry = next(iter(waiting.values()))
        if len(group.ranks) > 1 and not _differ(list(group.at(seq).values())):
            lines = [group.line(r, seq) for r in sorted(waiting)[:PROOFS]]
            fields = {"collective": f"{group.name} #{seq} {entry.op} {entry.sizes}"}
            yield Found(lines, sorted(waiting), fields, "medium")


def complete(facts: Facts) -> bool:
    """Whether all that was recorded has ended."""
    return bool(facts.dumps) and all(_first_open(g) is None for g in groups(facts))
