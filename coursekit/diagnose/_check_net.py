"""Interfaces, connections, sockets instead of InfiniBand, GPUDirect RDMA."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from coursekit.diagnose._event import Event, Line
from coursekit.diagnose._facts import Facts
from coursekit.diagnose._found import Found, check, proofs

_LOCAL = re.compile(r"127\.|::1\b")
_LINK = re.compile(r"(?:fe80:|169\.254\.)", re.IGNORECASE)
_BRIDGE = re.compile(r"(?:docker|virbr|veth_|cni|flannel|br-|lxc|ip6tnl|tunl|sit)\w*$")


@check("loopback_selected")
def loopback(facts: Facts) -> Iterator[Found]:
    """127.x between hosts; on one host it is as good as any."""
    several = facts.nodes > 1 or _across(facts)
    if not (several or facts.of("nccl.connect")):
        return
    for event in facts.of("nccl.using"):
        for name, address in event.fields["names"][:1]:
            if _LOCAL.match(address):
                shown = [event, *facts.of("nccl.connect")]
                fields = {"address": f"{name} {address}"}
                yield Found(proofs(shown), facts.ranks([event]), fields)
                return


@check("wrong_interface")
def wrong_interface(facts: Facts) -> Iterator[Found]:
    """What is used first is a tunnel, a bridge, or has a link-local address."""
    bad = [(e, f"{name} {address}") for e in facts.of("nccl.using")
           for name, address in e.fields["names"][:1]
           if _LINK.match(address) or (_BRIDGE.match(name) and facts.nodes > 1)
           or (_BRIDGE.match(name) and facts.of("nccl.connect"))]  # fmt: skip
    if bad:
        told = sorted({address for _, address in bad})
        events = [e for e, _ in bad] + facts.of("nccl.connect")
        fields = {"address": ", ".join(told[:4])}
        yield Found(proofs(events), facts.ranks(e for e, _ in bad), fields)


def _refused(facts: Facts) -> list[Event]:
    words = ("refused", "connection abort", "timed out", "timeout")
    return [e for e in facts.of("nccl.connect") if any(w in e.fields["error"] for w in words)
            and "retrying" not in e.fields["error"]]  # fmt: skip


def _known(facts: Facts) -> set[str]:
    return {a for e in facts.of("nccl.using") for _, a in e.fields["names"]}


def _host(address: str) -> str:
    return address.partition("<")[0].strip("[]")


@check("stale_rendezvous")
def stale(facts: Facts) -> Iterator[Found]:
    """During set-up, an address that no host has is refused."""
    known = _known(facts)
    for event in _refused(facts):
        host = _host(event.fields["address"])
        if "refused" not in event.fields["error"] or not host or host in known:
            continue
        # Where no host's address is printed, only set-up against the root speaks for it.
        if known or _during_bootstrap(facts, event):
            sure = "high" if known else "medium"
            fields = {"address": event.fields["address"]}
            yield Found(_all(facts, event), facts.ranks([event]), fields, sure)
            return


def _during_bootstrap(facts: Facts, event: Event) -> bool:
    traces = [e for e in facts.of("nccl.trace") if e.process == event.process]
    retried = any(e.process == event.process for e in facts.of("nccl.retry"))
    return retried and any("bootstrap" in e.fields["file"] for e in traces)


def _all(facts: Facts, event: Event) -> list[Line]:
    return proofs([event, *(e for e in facts.of("nccl.retry", "nccl.trace")
                            if e.process == event.process)])  # fmt: skip


@check("connection_refused")
def refused(facts: Facts) -> Iterator[Found]:
    """A connection that is refused; an abort before 2.24 hides the same."""
    for event in _refused(facts):
        fields = {"address": event.fields["address"] or "?"}
        old = facts.version < (2, 24) if facts.version else "abort" in event.fields["error"]
        sure = "high" if "refused" in event.fields["error"] or old else "medium"
        yield Found(_all(facts, event), facts.ranks([event]), fields, sure)
        return


def _across(facts: Facts) -> list[Event]:
    """Channels between hosts."""
    return [e for e in facts.of("nccl.channel") if "NET/" in e.fields["via"]]


@check("socket_fallback")
def socket(facts: Facts) -> Iterator[Found]:
    """Sockets between hosts, with a reason other than somebody's wish."""
    wished = [e for e in facts.of("nccl.env")
              if (e.fields["name"], e.fields["value"].lower()) in _WISHES]  # fmt: skip
    used = [e for e in _across(facts) if "NET/Socket" in e.fields["via"]]
    named = [e for e in facts.of("nccl.network") if e.fields["told"] == "Socket"]
    if wished or not (used or (named and facts.nodes > 1)):
        return
    reasons = facts.of("nccl.no_plugin", "nccl.no_ib")
    if reasons:
        told = " / ".join(dict.fromkeys(e.fields["message"][:60] for e in reasons))
        yield Found(proofs([*reasons[:4], *named[:2], *used[:4]]), facts.ranks(used or named),
                    {"reason": told})  # fmt: skip


_WISHES = {("NCCL_IB_DISABLE", "1"), ("NCCL_NET", "socket")}


def _one_host(facts: Facts) -> bool:
    """Whether the log says that all ranks share a host, where RDMA does not matter."""
    told = [e.fields["nodes"] for e in facts.of("nccl.size")]
    return bool(told) and max(told) == 1


@check("gdr_disabled_module")
def module(facts: Facts) -> Iterator[Found]:
    """Disabled for every card and never enabled."""
    told = [e for e in facts.of("nccl.gdr") if e.fields["card"]]
    off = [e for e in told if e.fields["state"] == "Disabled"]
    if _one_host(facts) or not off or len(off) < len(told) or _direct(facts):
        return
    cards = ", ".join(dict.fromkeys(e.fields["card"] for e in off))
    yield Found(proofs(off), facts.ranks(off), {"cards": cards})


def _direct(facts: Facts) -> list[Event]:
    return [e for e in _across(facts) if "GDRDMA" in e.fields["via"]]


@check("gdr_one_node_only")
def one_node(facts: Facts) -> Iterator[Found]:
    """Hosts whose channels carry /GDRDMA, and hosts whose do not."""
    hosts: dict[str, dict[bool, Event]] = defaultdict(dict)
    for event in _across(facts):
        if "NET/Socket" not in event.fields["via"] and event.host:
            hosts[event.host].setdefault("GDRDMA" in event.fields["via"], event)
    used = sorted(h for h, told in hosts.items() if set(told) == {True})
    unused = sorted(h for h, told in hosts.items() if set(told) == {False})
    if used and unused:
        shown = [hosts[used[0]][True], *(hosts[h][False] for h in unused)]
        ranks = facts.ranks(e for e in _across(facts) if e.host in unused)
        fields = {"used": ", ".join(used[:6]), "unused": ", ".join(unused[:6])}
        yield Found(proofs(shown), ranks, fields)


@check("gdr_disabled_distance")
def distance(facts: Facts) -> Iterator[Found]:
    """Too far for all that a process asked about; far cards beside a near one are normal."""
    asked: dict[str, list[Event]] = defaultdict(list)
    for event in facts.of("nccl.gdr"):
        if event.fields["pair"]:
            asked[event.process].append(event)
    direct = {e.process for e in _direct(facts)}
    far = [
        e
        for process, events in asked.items()
        for e in events
        if process not in direct and all(x.fields["state"] == "Disabled" for x in events)
    ]
    if far and not _one_host(facts):
        told = re.search(r"distance [^)]*", far[0].fields["pair"])
        fields = {"distance": told[0] if told else far[0].fields["pair"][:80]}
        yield Found(proofs(far), facts.ranks(far), fields, "medium")
