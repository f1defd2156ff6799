"""NCCL's own lines, versions 2.4 to 2.32."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from coursekit.diagnose._event import Event
from coursekit.diagnose._facts import Facts

KEYS = (
    "NCCL version ", "NCCL WARN", "nNodes", "set by environment", ": Using ", ":Using ",
    "Using interface", "Using network", "No device found", "Could not find:", "No plugin found",
    " via ", "GPU Direct RDMA", " -> ", "Connected all rings", "coll channels", "onnect to ",
    "connect returned", "Call to connect", "socketPollConnect", "CUMEM allocated", "NET plugin",
)  # fmt: skip

_INIT = re.compile(
    r"(?P<call>ncclComm\w+ )?comm (?P<comm>\S+) rank (?P<rank>\d{1,7}) nranks (?P<nranks>\d{1,7})"
    r" cudaDev -?\d+(?: nvmlDev -?\d+)? busId \w+(?P<rest>.*?)\s*-\s*"
    r"(?P<state>Init START|Init COMPLETE|Destroy COMPLETE|Abort COMPLETE)"
)
_SIZE = re.compile(r"rank (?P<rank>\d{1,7}) nRanks (?P<nranks>\d{1,7}) nNodes (?P<nodes>\d{1,7})")
_OLD = re.compile(r"comm \S+ rank (?P<rank>\d{1,7}) nranks (?P<nranks>\d{1,7})")
_ENV = re.compile(r"(?P<name>[A-Z][A-Z0-9_]+) set by environment to (?P<value>.*?)\.?\s*$")
_USING = re.compile(r"(?P<what>Bootstrap|NET/\w+|NET) ?: ?Using (?P<list>.*)")
_ADDRESS = re.compile(
    r"(?:^|[\s\]])(?P<name>[\w.-]+?):(?P<address>\d+\.\d+\.\d+\.\d+|[0-9a-fA-F:]*:[0-9a-fA-F:.]+"
    r"(?:%[\w.-]+)?)<\d+>"
)
_EDGE = re.compile(
    r"(?:Channel|Ring) (?P<channel>\d+)(?:/\d+)? : (?P<src>\d+)(?:\[\w+\])? -> (?P<dst>\d+)"
    r"(?:\[\w+\])? (?:\[(?P<way>send|receive)\] )?via (?P<via>.*)"
)
_GDR = re.compile(
    r"GPU Direct RDMA (?P<state>Enabled|Disabled) for (?:HCA \d+ '(?P<card>[^']*)'|(?P<pair>.*))"
)
_TRACE = re.compile(r"(?P<file>[\w/]+\.\w+):\d+ -> (?P<code>\d+)")
_CONNECT = re.compile(
    r"(?:[Cc]onnect to |socketPollConnect to )(?P<address>\S+) "
    r"(?:failed(?: with error)? ?:? ?|returned )(?P<error>.*)"
)
_RETRY = re.compile(
    r"connect returned (?P<error>[^,]*), (?:retrying|exceeded)|Call to connect \w+ : (?P<other>.*)"
)
_VERSION = re.compile(r"NCCL version (?P<version>\d+\.\d+(?:\.\d+)?)")


def read(event: Event, facts: Facts) -> None:
    """Add what an INFO or WARN line tells."""
    text = event.fields["message"]
    if event.fields["level"] == "WARN":
        _tell(event, facts, "nccl.warn", {})
    if found := _INIT.search(text):
        _init(event, facts, found)
    elif found := _SIZE.search(text):
        _tell(event, facts, "nccl.size", {"nodes": int(found["nodes"])})
    elif (found := _OLD.search(text)) and event.fields["process"]:
        facts.knows(event.fields["process"], int(found["rank"]))
    elif found := _ENV.search(text):
        _tell(event, facts, "nccl.env", found.groupdict())
    elif found := _EDGE.search(text):
        _edge(event, facts, found)
    elif found := _USING.search(text):
        _using(event, facts, found)
    elif found := _GDR.search(text):
        _tell(event, facts, "nccl.gdr", found.groupdict())
    elif found := _CONNECT.search(text) or _RETRY.search(text):
        _connect(event, facts, found)
    else:
        _plain(event, facts, text)


def version(event: Event, facts: Facts) -> None:
    """Add the version that rank 0 prints without a head."""
    if found := _VERSION.match(event.text):
        facts.add(replace(event, kind="nccl.version", fields=found.groupdict()))


def _tell(event: Event, facts: Facts, kind: str, fields: dict[str, Any]) -> None:
    facts.add(replace(event, kind=kind, fields={**event.fields, **fields}))


def _init(event: Event, facts: Facts, found: re.Match[str]) -> None:
    comm_id = re.search(r"commId (\w+)", found["rest"])
    member = int(found["rank"])
    fields = {
        "comm": found["comm"], "id": comm_id[1] if comm_id else "", "nranks": int(found["nranks"]),
        "member": member, "state": found["state"],
        "split": "parent" in found["rest"] or "Split" in (found["call"] or ""),
    }  # fmt: skip
    if not fields["split"] and event.fields["process"]:
        facts.knows(event.fields["process"], member)
    _tell(event, facts, "nccl.init", fields)


def _edge(event: Event, facts: Facts, found: re.Match[str]) -> None:
    fields = {
        "channel": int(found["channel"][:6]), "src": int(found["src"][:7]),
        "dst": int(found["dst"][:7]), "way": found["way"] or "", "via": found["via"],
    }  # fmt: skip
    _tell(event, facts, "nccl.channel", fields)


def _using(event: Event, facts: Facts, found: re.Match[str]) -> None:
    listed = found["list"].removeprefix("interface ")
    # What serves only to exchange addresses stands behind OOB.
    main, _, other = listed.partition("OOB ")
    names = [(m["name"], m["address"]) for m in _ADDRESS.finditer(f" {other or main}")]
    _tell(event, facts, "nccl.using", {"what": found["what"], "names": names})


def _connect(event: Event, facts: Facts, found: re.Match[str]) -> None:
    named = found.groupdict()
    error = named["error"] or named.get("other") or ""
    if "retrying" in event.text and event.fields["level"] == "INFO":
        _tell(event, facts, "nccl.retry", {"error": error})
        return
    fields = {"address": named.get("address") or "", "error": error}
    _tell(event, facts, "nccl.connect", fields)


_PLAIN = (
    ("Using network ", "nccl.network"), ("NET/IB : No device found", "nccl.no_ib"),
    ("Could not find: libnccl-net", "nccl.no_plugin"), ("No plugin found", "nccl.no_plugin"),
    ("Connected all rings", "nccl.connected"), ("coll channels", "nccl.channels"),
    ("CUMEM allocated shareable", "nccl.cumem"), ("cuMem host allocations do", "nccl.cumem_off"),
)  # fmt: skip


def _plain(event: Event, facts: Facts, text: str) -> None:
    if found := _TRACE.match(text):
        _tell(event, facts, "nccl.trace", found.groupdict())
        return
    for key, kind in _PLAIN:
        if key in text:
            _tell(event, facts, kind, {"told": text.partition(key)[2].strip()})
            return
