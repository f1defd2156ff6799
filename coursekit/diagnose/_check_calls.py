"""What NCCL logged of collectives, compared across ranks; fingerprints, RAS, torchfrtrace."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from coursekit.diagnose._calls import Series, Signature
from coursekit.diagnose._event import Event, Line
from coursekit.diagnose._facts import Facts
from coursekit.diagnose._found import Found, check, listed, proofs
from coursekit.diagnose._say import All, Say

# Sizes of datatypes in bytes, by NCCL's number: int8, uint8, int32, uint32, int64, uint64, half,
# float, double, bfloat16, and two of 8 bits.
WIDTHS = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1)


class Step(NamedTuple):
    """Where ranks part: what each calls at one count."""

    kind: str
    difference: str
    ranks: list[int]
    lines: list[Line]


def groups(facts: Facts) -> list[list[Series]]:
    """Series of one communicator each: by commId, else by size and order of appearance."""
    ids = {(e.process, e.fields["comm"]): e.fields["id"] for e in facts.of("nccl.init")
           if e.fields["id"]}  # fmt: skip
    found: dict[object, list[Series]] = defaultdict(list)
    turn: Counter[tuple[str, int]] = Counter()
    for (process, comm), series in facts.calls.series.items():
        if series.rank is None:
            series.rank = facts.rank_of_process(process)
        if (process, comm) in ids:
            found[ids[process, comm]].append(series)
        else:
            turn[process, series.nranks] += 1
            found[series.nranks, turn[process, series.nranks]].append(series)
    # More members than ranks: several communicators of one size, which nothing tells apart.
    return [g for g in found.values() if 1 < len(g) <= g[0].nranks]


def parting(facts: Facts) -> Step | None:
    """The first place where members of a communicator call different things."""
    for group in groups(facts):
        first = group[0]
        if all(s.signatures == first.signatures and s.counts == first.counts for s in group):
            continue
        step = _part(facts, group)
        if step:
            return step
    return None


def _part(facts: Facts, group: list[Series]) -> Step | None:
    at: dict[int, list[tuple[Series, int]]] = defaultdict(list)
    start = _common(group)
    for series in group:
        for index in range(start, len(series.counts)):
            at[series.counts[index]].append((series, index))
    for count in sorted(at):
        # Within a group of calls several share a count; the first of each rank is compared.
        by_series = {id(s): (s, i) for s, i in reversed(at[count])}
        told = list(by_series.values())
        kinds = {s.signatures[i] for s, i in told}
        if len(kinds) > 1 and (step := _step(facts, count, told)):
            return step
    return None


def _common(group: list[Series]) -> int:
    """How many calls are surely alike at the front, found by halving."""
    low, high = 0, min(len(s.counts) for s in group)
    first = group[0]
    while low < high:
        middle = (low + high + 1) // 2
        same = all(
            s.signatures[:middle] == first.signatures[:middle]
            and s.counts[:middle] == first.counts[:middle]
            for s in group[1:]
        )
        low, high = (middle, high) if same else (low, middle - 1)
    return low


def _step(facts: Facts, count: int, told: list[tuple[Series, int]]) -> Step | None:
    known = facts.calls.known
    by_call: dict[Signature, list[tuple[Series, int]]] = defaultdict(list)
    for series, index in told:
        by_call[known[series.signatures[index]]].append((series, index))
    calls = list(by_call)
    if len({c[0] for c in calls}) > 1 or len({c[3:] for c in calls}) > 1:
        kind = "order"
    elif len({c[1] * _width(c[2]) for c in calls}) > 1 or len({c[2] for c in calls}) > 1:
        kind = "size"
    else:
        return None
    least = min(by_call.values(), key=len)
    lines = [Line(s.source, s.lines[i], facts.calls.text(s, i))
             for members in by_call.values() for s, i in members[:3]]  # fmt: skip
    said = "; ".join(f"{_who(members)} {call[0]} of {call[1]}" for call, members in by_call.items())
    ranks = sorted(s.rank for s, _ in least if s.rank is not None)
    return Step(kind, f"opCount {count:x}: {said}", ranks, lines)


def _width(kind: int) -> int:
    return WIDTHS[kind] if 0 <= kind < len(WIDTHS) else 1


def _who(members: list[tuple[Series, int]]) -> str:
    ranks = [s.rank for s, _ in members if s.rank is not None]
    if len(ranks) == len(members):
        return ("rank " if len(ranks) == 1 else "ranks ") + listed(ranks)
    return ", ".join(s.process for s, _ in members[:4])


# -- DETAIL's fingerprints


def fingerprints(facts: Facts) -> Iterator[tuple[str, Found]]:
    """What differs between the two ranks that each message names."""
    for event in facts.of("torch.fingerprint"):
        prints = event.fields["prints"]
        if len(prints) < 2:
            continue
        a, b = prints[0], prints[1]
        kind = (
            "order" if a["op"] != b["op"]
            else "size" if (a["shape"], a["dtype"]) != (b["shape"], b["dtype"])
            else "count" if a["seq"] != b["seq"] else "size"
        )  # fmt: skip
        told = "; ".join(f"rank {p['rank']} {p['op']} [{p['shape']}] {p['dtype']}".strip()
                         for p in (a, b))  # fmt: skip
        if kind == "count":
            told = "; ".join(f"rank {p['rank']} at sequence number {p['seq']}" for p in (a, b))
        yield kind, Found(proofs([event]), [a["rank"]], {"difference": told})


# -- RAS and torchfrtrace


def ras(facts: Facts) -> Iterator[Found]:
    """Different counts of one operation: the lower is behind, however few the others are."""
    told = facts.of("ras.group")
    if not facts.of("ras.differ") or len({e.fields["at"] for e in told}) < 2:
        return
    behind = min(told, key=lambda e: e.fields["at"])
    ahead = max(told, key=lambda e: e.fields["at"])
    named = facts.of("ras.rank")
    # RAS lists the smaller group only.
    fewer = min(told, key=lambda e: e.fields["n"])
    ranks = sorted({e.fields["rank"] for e in named}) if fewer is behind else []
    counts = Say("ras_counts", few=behind.fields["n"], low=behind.fields["at"],
                 many=ahead.fields["n"], high=ahead.fields["at"])  # fmt: skip
    said: list[Any] = [counts]
    if named and not ranks:
        said.append(Say("are_ahead", ranks=listed(e.fields["rank"] for e in named)))
    shown = [*facts.of("ras.differ")[:1], *told, *named]
    gap = ahead.fields["at"] - behind.fields["at"]
    yield Found(proofs(shown), ranks, {"difference": All(said)}, "medium" if gap == 1 else "high")


TRACE = {"COLLECTIVE_TYPE_MISMATCH": "order", "SIZE_OR_SYNTAX_MISMATCH": "size",
         "COLLECTIVE_DTYPE_MISMATCH": "size"}  # fmt: skip


def trace(facts: Facts, kind: str) -> Iterator[Found]:
    """What torchfrtrace says; its culprit only differs from the first rank: nobody is blamed."""
    found = [e for e in facts.of("trace.error") if TRACE.get(e.fields["error"]) == kind]
    if found:
        yield Found(proofs(found), [], {"difference": _votes(found)}, "medium")


def _votes(found: list[Event]) -> str:
    got = Counter(str(e.fields.get("got") or e.fields["error"]) for e in found)
    want = next((e.fields.get("want") for e in found if e.fields.get("want")), "")
    told = "; ".join(f"{n} rank{'s' * (n > 1)} {value}" for value, n in got.most_common(4))
    return f"{told}; the first rank {want}" if want else told


# -- the checks


@check("order_mismatch")
def order(facts: Facts) -> Iterator[Found]:
    """Different operations at one place."""
    yield from _all(facts, "order")


@check("size_mismatch")
def size(facts: Facts) -> Iterator[Found]:
    """The same operation with different sizes."""
    yield from _all(facts, "size")


@check("count_mismatch")
def count(facts: Facts) -> Iterator[Found]:
    """Ranks that have made different numbers of calls."""
    yield from _all(facts, "count")
    yield from ras(facts)


def _all(facts: Facts, kind: str) -> Iterator[Found]:
    from coursekit.diagnose import _check_recorder, _check_watchdog

    if facts.calls.series and (step := parting(facts)) and step.kind == kind:
        yield Found(step.lines, step.ranks, {"difference": step.difference})
    yield from (found for told, found in fingerprints(facts) if told == kind)
    yield from _check_watchdog.mismatches(facts, kind)
    if kind == "order":
        yield from _check_watchdog.desync(facts)
    yield from _check_recorder.mismatches(facts, kind)
    yield from trace(facts, kind)


@check("early_barrier")
def early_barrier(facts: Facts) -> Iterator[Found]:
    """Some in a barrier, others in a collective with data, at one number."""
    from coursekit.diagnose import _check_recorder, _check_watchdog

    yield from _check_watchdog.mismatches(facts, "barrier")
    yield from _check_recorder.mismatches(facts, "barrier")
