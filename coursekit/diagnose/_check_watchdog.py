"""Time-outs that PyTorch reports: who waits for what, and who is not among those that wait."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from coursekit.diagnose._event import Event
from coursekit.diagnose._facts import Facts
from coursekit.diagnose._found import Found, check, listed, proofs
from coursekit.diagnose._say import Say

# Sizes of these differ between ranks by right.
UNEVEN = ("SEND", "RECV", "ALLTOALL", "ALLTOALL_BASE", "GATHER", "SCATTER", "COALESCED", "UNKNOWN")
# Far beyond a time-out that is looked at once a second.
LATE = 2.0


@dataclass
class Wait:
    """The ranks of one group that timed out first at one number, and the last state of others."""

    group: str
    default: bool
    events: list[Event] = field(default_factory=list)
    status: dict[int, Event] = field(default_factory=dict)

    @property
    def seq(self) -> int:
        return int(Counter(e.fields["seq"] for e in self.events).most_common(1)[0][0])

    @property
    def barrier(self) -> bool:
        return all(is_barrier(e) for e in self.events)


def is_barrier(event: Event) -> bool:
    """A barrier is an all-reduce of one element."""
    op = event.fields["op"]
    return bool(op == "BARRIER" or (op == "ALLREDUCE" and event.fields["n_in"] == 1))


def waits(facts: Facts) -> list[Wait]:
    """By group; where the group is not printed, the status line of the same rank tells it."""
    firsts: dict[tuple[str, str, int | None], Event] = {}
    status: dict[tuple[int | None, int | None], Event] = {}
    for event in facts.of("watchdog.status"):
        status.setdefault((event.rank, event.fields["at"]), event)
    for event in facts.of("watchdog.timeout"):
        told = status.get((event.rank, event.fields["seq"]))
        group = event.fields["pg"] or (told.fields["pg"] if told else "")
        firsts.setdefault((group, event.process, event.rank), event)
    # A rank whose status line is cut off belongs to the one group that the others name.
    named = {g for g, _, _ in firsts if g}
    only = named.pop() if len(named) == 1 else ""
    found: dict[str, Wait] = {}
    for (group, _, _), event in firsts.items():
        group = group or only
        wait = found.setdefault(group, Wait(group, group in ("", "0")))
        wait.default |= bool(event.fields.get("default"))
        wait.events.append(event)
    for event in facts.of("watchdog.status"):
        other = found.get(event.fields["pg"] or only) or found.get("")
        if other and event.rank is not None:
            other.status[event.rank] = event
            other.default |= bool(event.fields.get("default"))
    return list(found.values())


def mismatches(facts: Facts, kind: str) -> Iterator[Found]:
    """Ranks that timed out at one number in different calls."""
    for wait in waits(facts):
        at = [e for e in wait.events if e.fields["seq"] == wait.seq]
        ops = {e.fields["op"] for e in at}
        sizes = {(e.fields["n_in"], e.fields["n_out"]) for e in at}
        if len(ops) > 1:
            some = [e for e in at if is_barrier(e)]
            told = "barrier" if some and len(some) < len(at) else "order"
        elif len(sizes) > 1 and not ops & set(UNEVEN):
            some = [e for e in at if is_barrier(e)]
            told = "barrier" if some and len(some) < len(at) else "size"
        else:
            continue
        if told == kind:
            yield _mismatch(facts, at)


def _mismatch(facts: Facts, at: list[Event]) -> Found:
    calls: dict[str, list[Event]] = defaultdict(list)
    for event in at:
        size = event.fields["n_in"]
        calls[f"{event.fields['op']} of {size}" if size is not None else event.fields["op"]].append(
            event
        )
    least = min(calls.values(), key=len)
    told = "; ".join(f"ranks {listed(facts.ranks(e))} {call}" for call, e in calls.items())
    # With two of each nobody can be blamed.
    tie = sum(len(e) == len(least) for e in calls.values()) > 1
    ranks = [] if tie else facts.ranks(least)
    return Found(proofs(e for events in calls.values() for e in events[:4]), ranks,
                 {"difference": f"#{at[0].fields['seq']}: {told}"}, "high")  # fmt: skip


def _silent(facts: Facts, wait: Wait) -> tuple[list[int], bool]:
    """Ranks that are not among those that wait, and whether the job's size is known."""
    there = set(facts.ranks(wait.events)) | set(wait.status)
    if not wait.default or not there:
        return [], False
    world = facts.world
    size = world if world and world > max(there) else max(there) + 1
    if size > 1 << 20:
        return [], False
    return sorted(set(range(size)) - there), bool(world)


def behind(facts: Facts, wait: Wait) -> tuple[list[int], str, str]:
    """Ranks that never reached what the others wait for: who, why, how sure."""
    seq = wait.seq
    late = [r for r, e in wait.status.items()
            if e.fields["enqueued"] is not None and 0 <= e.fields["enqueued"] < seq]  # fmt: skip
    late += [r for e in wait.events if e.fields["seq"] < seq and wait.group
             and (r := facts.rank_of(e)) is not None]  # fmt: skip
    if late:
        return sorted(set(late)), "behind", "high"
    silent, known = _silent(facts, wait)
    there = len(wait.events) + len(set(wait.status) - set(facts.ranks(wait.events)))
    few = len(silent) * 2 <= there if known else len(silent) * 3 <= there
    if silent and (few or (known and len(silent) <= there) or wait.barrier):
        return silent, "silent", "high" if known else "medium"
    return [], "", ""


def _missing(facts: Facts, wait: Wait) -> Found | None:
    ranks, why, sure = behind(facts, wait)
    if not ranks:
        return None
    told = wait.events[0].fields
    text = Say(why, ranks=listed(ranks), seq=wait.seq, op=told["op"])
    shown = [*(wait.status[r] for r in ranks if r in wait.status), *wait.events]
    fields = {"missing": text, "timeout": told["timeout"] // 1000}
    return Found(proofs(shown), ranks, fields, sure)


def _rank0_only(found: Found, wait: Wait) -> bool:
    return wait.barrier and found.ranks == [0]


@check("rank0_only_work")
def rank0_only(facts: Facts) -> Iterator[Found]:
    """All but rank 0 in a barrier."""
    from coursekit.diagnose import _check_recorder

    for wait in waits(facts):
        found = _missing(facts, wait)
        if found and _rank0_only(found, wait):
            yield found
    yield from _check_recorder.missing(facts, alone=True)


@check("missing_rank")
def missing(facts: Facts) -> Iterator[Found]:
    """A rank that others wait for."""
    from coursekit.diagnose import _check_recorder, _check_rest

    for event in facts.of("desync.missing"):
        ranks = event.fields["ranks"]
        text = Say("desync", ranks=listed(ranks), how=event.fields["how"])
        yield Found(proofs([event, *facts.of("desync.joined")]), ranks, {"missing": text})
    for wait in waits(facts):
        found = _missing(facts, wait)
        if found and not _rank0_only(found, wait):
            yield found
    yield from _check_recorder.missing(facts, alone=False)
    yield from _check_rest.missing(facts)


@check("all_joined_stall")
def stall(facts: Facts) -> Iterator[Found]:
    """Everybody that reports is in the same call, and nobody is known to be missing."""
    from coursekit.diagnose import _check_recorder

    yield from _check_recorder.stalls(facts)
    for wait in waits(facts):
        if behind(facts, wait)[0]:
            continue
        silent, _ = _silent(facts, wait)
        # One rank alone cannot say that all are there.
        if len(set(facts.ranks(wait.events)) | set(wait.status)) == 1:
            continue
        told = wait.events[0].fields
        size = f" of {told['n_in']}" if told["n_in"] is not None else ""
        fields = {"collective": f"#{wait.seq} {told['op']}{size}"}
        yield Found(proofs([*wait.events, *wait.status.values()]), facts.ranks(wait.events), fields,
                    "low" if silent else "medium")  # fmt: skip
    joined = facts.of("desync.joined")
    if joined and not facts.of("desync.missing"):
        ranks = [r for e in joined for r in e.fields["ranks"]]
        fields = {"collective": joined[0].fields["how"]}
        yield Found(proofs(joined), sorted(ranks), fields, "medium")


@check("ran_for_exceeds")
def late(facts: Facts) -> Iterator[Found]:
    """The time that passed is far more than what was allowed."""
    found = [e for e in facts.of("watchdog.timeout")
             if e.fields["timeout"] > 0 and e.fields["ran"] > LATE * e.fields["timeout"]
             and e.fields["ran"] - e.fields["timeout"] > 60_000]  # fmt: skip
    if found:
        worst = max(found, key=lambda e: e.fields["ran"] / e.fields["timeout"]).fields
        fields = {"ran": worst["ran"] // 1000, "timeout": worst["timeout"] // 1000}
        yield Found(proofs(found), facts.ranks(found), fields)


def desync(facts: Facts) -> Iterator[Found]:
    """A desync report whose snapshot shows two operations under one number."""
    rows = sorted(facts.of("desync.number", "desync.started"), key=lambda e: (e.source, e.line))
    at: dict[str, dict[str, list[Event]]] = defaultdict(lambda: defaultdict(list))
    number = ""
    for event in rows:
        if event.kind == "desync.number":
            number = event.fields["seq"]
        elif number:
            at[number][event.fields["op"]].append(event)
    for number, ops in at.items():
        if len(ops) > 1:
            who = {op: [r for e in events for r in e.fields["ranks"]] for op, events in ops.items()}
            told = "; ".join(f"ranks {listed(ranks)} {op}" for op, ranks in who.items())
            fewest = min(who.values(), key=len)
            ranks = [] if sum(len(r) == len(fewest) for r in who.values()) > 1 else sorted(fewest)
            lines = proofs(e for events in ops.values() for e in events)
            yield Found(lines, ranks, {"difference": f"#{number}: {told}"})


# -- the heartbeat


def _stuck_groups(facts: Facts) -> set[str]:
    return {e.fields["pg"] for e in facts.of("watchdog.stuck")}


def _ending(facts: Facts) -> bool:
    """Whether the ranks were already taking things down."""
    return any(e.fields["state"].startswith(("Destroy", "Abort")) for e in facts.of("nccl.init"))


@check("teardown")
def teardown(facts: Facts) -> Iterator[Found]:
    """Stuck in several groups, none of them in a collective that timed out."""
    found = facts.of("watchdog.stuck")
    if not found or facts.of("watchdog.timeout"):
        return
    if len(_stuck_groups(facts)) > 1 or _ending(facts):
        yield Found(proofs(found), facts.ranks(found), {}, "medium")


@check("uneven_inputs")
def uneven(facts: Facts) -> Iterator[Found]:
    """Stuck in training's own group while some rank says nothing."""
    found = facts.of("watchdog.stuck")
    ranks = facts.ranks(found)
    if not ranks or facts.of("watchdog.timeout") or len(_stuck_groups(facts)) > 1:
        return
    world = facts.world or 0
    size = max(world, max(ranks) + 1)
    silent = sorted(set(range(size)) - set(ranks)) if size <= 1 << 20 else []
    default = all(e.fields.get("default", True) for e in found)
    if default and silent and len(silent) <= len(ranks):
        fields = {"silent": f"rank {listed(silent)}"}
        yield Found(proofs(found), silent, fields, "low")


@check("stuck")
def stuck(facts: Facts) -> Iterator[Found]:
    """The watchdog itself stands still."""
    found = facts.of("watchdog.stuck", "watchdog.monitor")
    if found:
        seconds = next((e.fields["seconds"] for e in found if "seconds" in e.fields), "?")
        pending = [e for e in found if "pending" in e.fields]
        least = min((e.fields["pending"] for e in pending), default=0)
        differ = len({e.fields["pending"] for e in pending}) > 1
        low = [e for e in pending if e.fields["pending"] == least] if differ else found
        yield Found(proofs(found), facts.ranks(low), {"seconds": seconds}, "medium")
