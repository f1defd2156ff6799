"""Set-up: versions, environment, communicators that do not come up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from coursekit.diagnose._event import Event
from coursekit.diagnose._facts import Facts
from coursekit.diagnose._found import Found, check, listed, proofs
from coursekit.diagnose._say import All, Say

# Settings that must agree, else ranks cut or send differently, or do not meet.
AGREE = (
    "NCCL_ALGO", "NCCL_PROTO", "NCCL_BUFFSIZE", "NCCL_NTHREADS", "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_NCHANNELS", "NCCL_MAX_CTAS", "NCCL_MIN_CTAS", "NCCL_NET", "NCCL_IB_DISABLE",
    "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE", "NCCL_NVLS_ENABLE",
    "NCCL_COLLNET_ENABLE", "NCCL_CUMEM_ENABLE", "NCCL_SOCKET_FAMILY", "NCCL_CROSS_NIC",
    "NCCL_NET_GDR_LEVEL", "NCCL_LL128_BUFFSIZE", "NCCL_P2P_NET_CHUNKSIZE", "NCCL_COMM_BLOCKING",
    "NCCL_IB_GID_INDEX", "NCCL_MNNVL_ENABLE",
)  # fmt: skip
# Names of interfaces may differ from host to host, but must be given everywhere or nowhere.
GIVEN = (*AGREE, "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_COMM_ID")


@check("versions_differ")
def versions(facts: Facts) -> Iterator[Found]:
    """Different version lines in one job."""
    told: dict[str, Event] = {}
    for event in facts.of("nccl.version"):
        told.setdefault(event.fields["version"], event)
    if len(told) > 1:
        fields = {"versions": ", ".join(sorted(told))}
        yield Found(proofs(told.values()), facts.ranks(told.values()), fields, "medium")


@check("env_not_uniform")
def environment(facts: Facts) -> Iterator[Found]:
    """A setting on some processes only, or with other values, among those that print any set-up."""
    there = _printing(facts)
    values: dict[str, dict[str, Event]] = defaultdict(dict)
    for event in facts.of("nccl.env"):
        if event.fields["name"] in GIVEN:
            values[event.fields["name"]][event.process] = event
    for name, by_process in sorted(values.items()):
        told = {e.fields["value"] for e in by_process.values()}
        lacking = [p for p in there if p not in by_process]
        differs = len(told) > 1 and name in AGREE
        if not differs and not (lacking and len(there) > 1):
            continue
        yield _differs(facts, name, by_process, lacking, there, differs)


def _differs(
    facts: Facts, name: str, by_process: dict[str, Event], lacking: list[str],
    there: dict[str, Event], differs: bool,
) -> Found:  # fmt: skip
    groups: dict[str, list[str]] = defaultdict(list)
    for process, event in by_process.items():
        groups[event.fields["value"]].append(process)
    if lacking:
        groups[""] = lacking
    told = All([
        Say("setting", value=value or Say("not_set"), who=_who(facts, who))
        for value, who in groups.items()
    ])  # fmt: skip
    least = min(groups.values(), key=len)
    ranks = [r for p in least if (r := facts.rank_of_process(p)) is not None]
    shown = [next(iter(by_process.values()))] if not differs else list(by_process.values())[:6]
    shown += [there[p] for p in lacking[:4]]
    return Found(proofs(shown), sorted(ranks), {"name": name, "values": told},
                 "high" if differs else "medium")  # fmt: skip


def _printing(facts: Facts) -> dict[str, Event]:
    """Processes that print their set-up: only where such a line is missing does that say anything.

    A process that logs calls only may have been told to.
    """
    there: dict[str, Event] = {}
    for event in facts.of("nccl.using", "nccl.env"):
        if event.fields.get("process"):
            there.setdefault(event.process, event)
    return there


def _who(facts: Facts, processes: list[str]) -> str:
    ranks = [facts.rank_of_process(p) for p in processes]
    known = [r for r in ranks if r is not None]
    if len(known) == len(processes):
        return f"ranks {listed(known)}" if len(known) > 1 else f"rank {known[0]}"
    return ", ".join(processes[:4]) + (f" and {len(processes) - 4} more" if processes[4:] else "")


@check("init_incomplete")
def incomplete(facts: Facts) -> Iterator[Found]:
    """Ranks without START or COMPLETE, per communicator."""
    comms: dict[str, list[Event]] = defaultdict(list)
    for event in facts.of("nccl.init"):
        if event.fields["id"]:
            comms[event.fields["id"]].append(event)
    for name, events in comms.items():
        size = max(e.fields["nranks"] for e in events)
        begun = {e.fields["member"] for e in events if e.fields["state"] == "Init START"}
        done = {e.fields["member"] for e in events if e.fields["state"] != "Init START"}
        if not begun or done:
            waiting = sorted(begun - done)
            # Some came through: the others' end may only not have been collected.
            if not begun or not waiting or len(done) >= size - len(waiting):
                continue
        yield _incomplete(name, size, begun | done, done, events)


def _incomplete(
    name: str, size: int, begun: set[int], done: set[int], events: list[Event]
) -> Found:
    absent = sorted(set(range(size)) - begun) if size <= 1 << 20 else []
    parts: list[Any] = []
    if absent:
        parts.append(Say("no_start", ranks=listed(absent)))
    if begun - done:
        parts.append(Say("no_complete", ranks=listed(begun - done)))
    ranks = absent or sorted(begun - done)
    fields = {"comm": name, "size": size, "missing": All(parts)}
    # With one rank's log alone, the others may just not have been collected.
    sure = "high" if absent and len(begun) > 1 else "medium" if absent else "low"
    return Found(proofs(e for e in events if e.fields["member"] not in done), ranks, fields, sure)
