"""Memory, processes, ACS, sockets of Gloo and UCX, slow links; and what is missing to tell more."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from coursekit.diagnose import _check_calls, _check_recorder
from coursekit.diagnose._event import Event, Line
from coursekit.diagnose._facts import Facts
from coursekit.diagnose._found import Found, check, listed, proofs
from coursekit.diagnose._say import All, Say

# So many left files are no accident of one running job.
LEFT = 3
SLOWER = 4.0


@check("shm_leaked")
def leaked(facts: Facts) -> Iterator[Found]:
    """A full /dev/shm that is large, or a list of NCCL's files in it."""
    files = facts.of("shm.file")
    large = [e for e in facts.of("shm.full") if e.fields["unit"] in "GT"]
    trouble = facts.hits.get("shm.too_small") or facts.hits.get("shm.leaked_files")
    count = sum(len(e.fields.get("names", "x").split()) for e in files)
    if (count >= LEFT and (trouble or facts.of("shm.full"))) or (large and trouble):
        lines = [*(trouble.lines[:3] if trouble else []), *proofs([*large, *files])]
        yield Found(lines, [], {"files": count or "?"}, "high" if files else "medium")


def _shm_traces(facts: Facts) -> set[str]:
    return {e.process for e in facts.of("nccl.trace") if e.fields["file"].endswith("shm.cc")}


@check("cumem_fail")
def cumem(facts: Facts) -> Iterator[Found]:
    """A CUDA failure in the allocator that leads up to the shared-memory transport."""
    through = _shm_traces(facts)
    found = [e for e in facts.of("nccl.warn")
             if re.search(r"Cuda failure|CUMEM|cuMem", e.fields["message"])
             and ((re.search(r"alloc\.h|cudawrap|os/linux", e.fields["file"])
                  and e.process in through)
                  or re.search(r"CUMEM Host|cuMemCreate|cuMem host", e.fields["message"])
                  or "transport/shm.cc" in e.fields["file"])]  # fmt: skip
    if found:
        yield Found(proofs(found), facts.ranks(found))


@check("cumem_asymmetric")
def asymmetric(facts: Facts) -> Iterator[Found]:
    """On one host some fall back to /dev/shm and others do not, and attaching fails."""
    off, on = facts.of("nccl.cumem_off"), facts.of("nccl.cumem")
    lost = [e for e in facts.of("nccl.warn")
            if "shared memory segment" in e.fields["message"]
            and "No such file" in e.fields["message"]]  # fmt: skip
    hosts = {e.host for e in off} & {e.host for e in on}
    away = {e.process for e in off}
    mixed = bool(hosts) and any(e.process not in away for e in on)
    failed = lost or (mixed and facts.of("nccl.warn"))
    if failed and (mixed or off or on or lost):
        told = f"/dev/shm: {len(away)}, cuMem: {len({e.process for e in on} - away)}"
        sure = "high" if mixed else "medium"
        yield Found(
            proofs([*lost, *off, *on]), facts.ranks(lost or off), {"ranks_told": told}, sure
        )


@check("shm_register")
def register(facts: Facts) -> Iterator[Found]:
    """A CUDA failure while a shared-memory segment is made."""
    warned = facts.of("nccl.warn")
    found = [e for e in warned if "shmutils" in e.fields["file"]
             and "Cuda failure" in e.fields["message"]]  # fmt: skip
    if found:
        more = [e for e in warned if "shared memory segment" in e.fields["message"]]
        yield Found(proofs([*found, *more]), facts.ranks(found))


@check("acs")
def acs(facts: Facts) -> Iterator[Found]:
    """ACS on, told by lspci; sure where GPUs talk over PCIe and nothing ended."""
    found = facts.of("acs")
    if found:
        direct = [e for e in facts.of("nccl.channel") if e.fields["via"].startswith("P2P")]
        shown = [*found[:4], *direct[:4]]
        fields = {"acs": ", ".join(dict.fromkeys(e.fields["acs"] for e in found))}
        yield Found(proofs(shown), facts.ranks(direct), fields, "high" if direct else "medium")


@check("p2p_disabled")
def p2p_disabled(facts: Facts) -> Iterator[Found]:
    """Somebody turned it off."""
    off = {("NCCL_P2P_DISABLE", "1"), ("NCCL_P2P_LEVEL", "LOC"), ("NCCL_P2P_LEVEL", "0")}
    found = [e for e in facts.of("nccl.env") if (e.fields["name"], e.fields["value"]) in off]
    if found:
        told = found[0].fields
        yield Found(proofs(found), facts.ranks(found),
                    {"name": told["name"], "value": told["value"]})  # fmt: skip


@check("ucx_retry")
def ucx_retry(facts: Facts) -> Iterator[Found]:
    """UCX's retries, with the request and the GID index of the line below."""
    found, below = facts.of("ucx.retry"), facts.of("ucx.wqe")
    if found:
        told = re.findall(r"wqe\[\d+\]|sgix \d+|dgid [\w:.]+", below[0].text if below else "")
        hint = ", ".join(told) or found[0].fields["device"]
        yield Found(proofs([*found, *below]), facts.ranks(found), {"hint": hint})


@check("sigkill")
def sigkill(facts: Facts) -> Iterator[Found]:
    """Signal 9, unless torchrun names another first failure."""
    first = first_failure(facts)
    if first and first[1] not in (-9, 137):
        return
    codes = [e for e in facts.of("torchrun.failed", "torchrun.code") if e.fields["code"] == "-9"]
    found = [*codes, *(e for e in facts.of("torchrun.kill") if "received by PID" in e.text)]
    if found:
        ranks = [first[0]] if first and first[0] is not None else facts.ranks(found)
        yield Found(proofs(found), ranks, {}, "medium")


def first_failure(facts: Facts) -> tuple[int | None, int, Event] | None:
    """Rank, exit code and line of torchrun's root cause."""
    for root in facts.of("torchrun.root"):
        codes = [e for e in facts.of("torchrun.code")
                 if e.source == root.source and e.line > root.line]  # fmt: skip
        ranks = [e for e in facts.of("torchrun.rank")
                 if e.source == root.source and e.line > root.line]  # fmt: skip
        if codes:
            rank = int(ranks[0].fields["rank"]) if ranks else None
            return rank, int(codes[0].fields["code"]), codes[0]
    return None


@check("ring_crosses_pcie")
def crosses(facts: Facts) -> Iterator[Found]:
    """A benchmark that falls with more GPUs, or edges of the ring between NVLink islands."""
    by_size: dict[str, list[Event]] = defaultdict(list)
    for event in facts.of("bench.gpus"):
        by_size[event.fields["bytes"]].append(event)
    for events in by_size.values():
        ordered = sorted(events, key=lambda e: int(e.fields["gpus"]))
        for few, many in pairwise(ordered):
            if float(few.fields["bw"]) > SLOWER * float(many.fields["bw"]) > 0:
                said = " -> ".join(f"{e.fields['gpus']} GPUs {e.fields['bw']} GB/s"
                                   for e in (few, many))  # fmt: skip
                yield Found(proofs([few, many]), [], {"difference": said})
                return
    yield from _edges(facts)


def _edges(facts: Facts) -> Iterator[Found]:
    from coursekit.diagnose._tables import tables

    for table in tables(facts):
        islands = table.islands
        home = {gpu: k for k, island in enumerate(islands) for gpu in island}
        local = [e for e in facts.of("nccl.channel") if e.fields["via"].startswith(("P2P", "SHM"))]
        ends = [(e, f"GPU{e.fields['src']}", f"GPU{e.fields['dst']}") for e in local if islands]
        over = [e for e, a, b in ends if {a, b} <= set(table.gpus)
                and home.get(a, -1) != home.get(b, -2)]  # fmt: skip
        if over:
            told = over[0].fields
            said = f"{told['src']} -> {told['dst']} ({told['via']})"
            yield Found(proofs(over), [], {"difference": said})
            return


def missing(facts: Facts) -> Iterator[Found]:
    """Ranks that other tools, Gloo, or the counts of calls say are missing."""
    for event in facts.of("trace.missing"):
        ranks = event.fields["ranks"]
        yield Found(proofs([event]), ranks, {"missing": Say("trace_missing", ranks=listed(ranks))})
    for event in facts.of("ras.gone"):
        told = Say("ras_gone", n=event.fields["n"])
        yield Found(proofs([event]), [], {"missing": told}, "medium")
    # A peer that closed its connection explains the wait.
    waits = [e for e in facts.of("gloo.wait") if e.fields["what"] == "recv"]
    if waits and "secondary.peer_closed" not in facts.hits:
        told = Say("never_received", seconds=int(waits[0].fields["ms"][:12]) // 1000)
        yield Found(proofs(waits), [], {"missing": told}, "medium")
    yield from _fewer(facts)


def _fewer(facts: Facts) -> Iterator[Found]:
    """Most ranks of a communicator end at one count, and some before."""
    ending = any(e.fields["state"] != "Init START" and "Init" not in e.fields["state"]
                 for e in facts.of("nccl.init"))  # fmt: skip
    for group in [] if ending else _check_calls.groups(facts):
        last = {id(s): s.counts[-1] for s in group if s.counts}
        most = max(last.values(), default=0)
        late = [s for s in group if s.counts and s.counts[-1] < most]
        same = [s for s in group if s.counts and s.counts[-1] == most]
        if len(group) < 3 or not late or len(late) * 2 >= len(same):
            continue
        lines = [Line(s.source, s.lines[-1], facts.calls.text(s, len(s.counts) - 1))
                 for s in [*late[:6], *same[:3]]]  # fmt: skip
        ranks = sorted(s.rank for s in late if s.rank is not None)
        told = Say("fewer_calls", ranks=listed(ranks) if ranks else late[0].process,
                   last=f"{late[0].counts[-1]:x}", most=f"{most:x}")  # fmt: skip
        yield Found(lines, ranks, {"missing": told}, "low")


# -- nothing wrong, or not enough


@check("healthy")
def healthy(facts: Facts) -> Iterator[Found]:
    """Something ended well, and nothing that is unknown went wrong."""
    done = [e for e in facts.of("nccl.init") if e.fields["state"] != "Init START"]
    good = [*facts.of("nccl.connected"), *done, *facts.of("bench.done"), *facts.of("nccl.channels")]
    bad = facts.of(
        "nccl.warn",
        "torch.nccl_error",
        "torchrun.failed",
        "torchrun.root",
        "traceback",
        "watchdog.timeout",
        "watchdog.status",
    )
    if (good or facts.calls.series or _check_recorder.complete(facts)) and not bad:
        yield Found(proofs(good), [], {}, "high" if good else "medium")


@check("insufficient")
def insufficient(facts: Facts) -> Iterator[Found]:
    """What is not there: subsystems, ranks, the first failure."""
    parts: list[Any] = []
    shown: list[Event] = []
    if first := first_failure(facts):
        rank = listed([first[0]]) if first[0] is not None else "?"
        parts.append(Say("failed_first", ranks=rank, code=first[1]))
        shown.append(first[2])
    if facts.of("torch.nccl_error") and not facts.of("nccl.warn"):
        parts.append(Say("no_last_error"))
        shown += facts.of("torch.nccl_error")
    if facts.of("nccl.warn"):
        parts.append(Say("unknown_warning"))
        shown += facts.of("nccl.warn")
    if (late := facts.of("watchdog.timeout")) and len(facts.ranks(late)) == 1:
        parts.append(Say("one_reporter", ranks=listed(facts.ranks(late))))
        shown += late
    if facts.of("nccl") and not facts.of("nccl.init", "nccl.connected", "nccl.warn"):
        parts.append(Say("not_complete"))
    parts += _unlogged(facts)
    for line in facts.refused:
        parts.append(Say("refused", why=line.text))
    fields = {"missing": All(parts or [Say("nobody")])}
    yield Found([*facts.refused[:3], *proofs(shown)], [], fields)


def _unlogged(facts: Facts) -> Iterator[Any]:
    """Not logged is not off."""
    there = {
        "INIT": facts.of("nccl.init"), "ENV": facts.of("nccl.env"),
        "NET": facts.of("nccl.using"), "GRAPH": facts.of("nccl.channel", "nccl.channels"),
        "COLL": facts.calls.series,
    }  # fmt: skip
    if facts.of("nccl", "nccl.version"):
        yield Say("not_logged", what=", ".join(n for n, told in there.items() if not told) or "-")
    world = facts.world
    ranks = set(facts.ranks(facts.of("nccl", "nccl.init", "watchdog.timeout", "line")))
    if world and ranks and world <= 1 << 20 and (absent := set(range(world)) - ranks):
        yield Say("no_lines_from", ranks=listed(absent))
