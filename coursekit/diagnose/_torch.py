"""PyTorch's lines about NCCL: watchdog, status, heartbeat, desync report, DETAIL fingerprints.

torch 2.0 to 2.14; what a version does not print stays empty.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from coursekit.diagnose._event import Event
from coursekit.diagnose._facts import Facts

KEYS = (
    "collective operation timeout", "last enqueued", "watchdog got stuck", "workMetaList_",
    "Detected mismatch between collectives", "lagging ranks", "joined but didn't finish",
    "but didn't join collective", "NCCL error in:", "started ranks:", "] started ",
    "world_size", "WORLD_SIZE",
)  # fmt: skip

_GROUP = re.compile(
    r"\[PG (?:ID )?(?P<pg>\d+)(?: PG GUID (?P<guid>\w+)(?:\((?P<name>[^)]*)\))?)? "
    r"Rank (?P<rank>\d+)\]"
)
_RANK = re.compile(r"\[Rank (?P<rank>\d{1,7})\]")
_WORK = re.compile(
    r"WorkNCCL\(SeqNum=(?P<seq>\d+), OpType=(?P<op>\w+)(?:, NumelIn=(?P<n_in>\d+))?"
    r"(?:, NumelOut=(?P<n_out>\d+))?, Timeout\(ms\)=(?P<timeout>\d+)\) ran for (?P<ran>\d+)"
)
_AT = re.compile(r"(?:at work(?: sequence id)?|Timeout at NCCL work): (?P<at>\d+)")
_LAST = {
    name: re.compile(rf"last {name}(?: NCCL)? work: (-?\d+)")
    for name in ("enqueued", "started", "completed")
}
_STUCK = re.compile(r"watchdog got stuck for (?P<seconds>\d+) ?seconds")
_META = re.compile(r"workMetaList_\.size\(\) ?= ?(?P<pending>\d+)")
_PRINT = re.compile(
    r"Rank (?P<rank>\d{1,7}) is running collective: CollectiveFingerPrint\("
    r"(?:SequenceNumber=(?P<seq>\d+),? ?)?OpType=(?P<op>\w+)"
    r"(?:, TensorShape=\[(?P<shape>[^\]]*)\])?(?:, TensorDtypes=(?P<dtype>[\w, ]*?), Tensor)?"
)
_LEFT = re.compile(r"\[(?P<ranks>[\d, ]+)\] finished collective #(?P<done>\d+).*?didn't join")
_JOINED = re.compile(r"\[(?P<ranks>[\d, ]+)\] joined but didn't finish collective #(?P<seq>\d+)")
_NUMBER = re.compile(r"#(?P<seq>\d{1,18}) started ranks:")
_STARTED = re.compile(r"\[(?P<ranks>[\d, ]+)\] started (?P<op>[A-Z_]+)")
_WORLD = re.compile(r"(?:world_size|WORLD_SIZE)['\"]?\s?[=:]\s?(?P<world>\d{1,7})\b")


def read(event: Event, facts: Facts) -> None:
    """Add what a line of PyTorch tells."""
    text = event.text
    if "SeqNum=" in text and (found := _WORK.search(text)):
        _add(event, facts, "watchdog.timeout", _numbers(found.groupdict()))
    elif "last enqueued" in text:
        _status(event, facts)
    elif found := _STUCK.search(text):
        _add(event, facts, "watchdog.stuck", {"seconds": int(found["seconds"][:9])})
    elif "workMetaList_" in text and (found := _META.search(text)):
        _add(event, facts, "watchdog.monitor", {"pending": int(found["pending"][:9])})
    elif "is running collective" in text:
        _prints(event, facts)
    elif "ranks" in text or "didn't" in text or "] started " in text:
        _desync(event, facts)
    if found := _WORLD.search(text):
        facts.add(replace(event, kind="torch.world", fields={"world": int(found["world"])}))
    if "NCCL error in:" in text:
        _add(event, facts, "torch.nccl_error", {})


def _numbers(named: dict[str, str | None]) -> dict[str, Any]:
    return {
        k: (v if k == "op" else int(v[:18]) if v is not None else None) for k, v in named.items()
    }


def _add(event: Event, facts: Facts, kind: str, fields: dict[str, Any]) -> None:
    """With the group, and the rank: the launcher's prefix is the global one."""
    group = _GROUP.search(event.text)
    rank = event.rank
    found = group or _RANK.search(event.text)
    if rank is None and found:
        rank = int(found["rank"][:7])
    name = ""
    if group:
        name = group["guid"] or group["pg"]
        default = group["name"] in ("default_pg", "default") or group["pg"] == "0"
        fields = {**fields, "default": default, "label": group["name"] or f"PG {group['pg']}"}
    facts.add(replace(event, rank=rank, kind=kind, fields={**fields, "pg": name}))


def _status(event: Event, facts: Facts) -> None:
    at = _AT.search(event.text)
    fields: dict[str, Any] = {"at": int(at["at"][:18]) if at else None}
    for name, pattern in _LAST.items():
        found = pattern.search(event.text)
        fields[name] = int(found[1][:18]) if found else None
    _add(event, facts, "watchdog.status", fields)


def _prints(event: Event, facts: Facts) -> None:
    found = [
        {"rank": int(m["rank"]), "seq": m["seq"] or "", "op": m["op"].partition("Tensor")[0],
         "shape": m["shape"] or "", "dtype": m["dtype"] or ""}
        for m in _PRINT.finditer(event.text)
    ]  # fmt: skip
    if found:
        facts.add(replace(event, kind="torch.fingerprint", fields={"prints": found}))


def _desync(event: Event, facts: Facts) -> None:
    text = event.text
    if "lagging ranks" in text:
        ranks = re.search(r"\[([\d, ]+)\]", text)
        fields = {"ranks": _list(ranks[1]) if ranks else [], "how": "lagging"}
        facts.add(replace(event, kind="desync.missing", fields=fields))
    elif found := _LEFT.search(text):
        fields = {"ranks": _list(found["ranks"]), "how": f"#{int(found['done'][:9]) + 1}"}
        facts.add(replace(event, kind="desync.missing", fields=fields))
    elif found := _NUMBER.search(text):
        facts.add(replace(event, kind="desync.number", fields={"seq": found["seq"]}))
    elif found := _STARTED.search(text):
        fields = {"ranks": _list(found["ranks"]), "op": found["op"]}
        facts.add(replace(event, kind="desync.started", fields=fields))
    elif found := _JOINED.search(text):
        fields = {"ranks": _list(found["ranks"]), "how": f"#{found['seq'][:9]}"}
        facts.add(replace(event, kind="desync.joined", fields=fields))


def _list(text: str) -> list[int]:
    return [int(p) for p in re.findall(r"\d{1,7}", text)]
