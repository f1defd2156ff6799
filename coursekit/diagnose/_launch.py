"""Launchers and hosts: torchrun's summaries, exit codes, Gloo's waits, UCX's retries, ACS."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from coursekit.diagnose._event import Event
from coursekit.diagnose._facts import Facts

KEYS = (
    "failed (exitcode", "Traceback (most recent", "Root Cause (first", "exitcode  :",
    "traceback :", "rank      :",
    "Timed out waiting", "Transport retry count", "wqe[", "ACSCtl:", "/dev/shm/nccl", "nccl-",
    "busbw", "Signal 9", "SIGKILL", "(UUID", "100%", "Out of bounds values", "Avg bus bandwidth",
)  # fmt: skip

_FAILED = re.compile(r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<local>\d+)")
_RANK = re.compile(r"\s*rank\s+: (?P<rank>\d{1,7})")
_CODE = re.compile(r"\s*exitcode\s+: (?P<code>-?\d{1,4})")
_WAIT = re.compile(r"Timed out waiting (?P<ms>\d+) ?ms for (?P<what>recv|send) operation")
_RETRY = re.compile(r"Transport retry count exceeded on (?P<device>\S+)(?: \(synd (?P<synd>\w+))?")
_ACS = re.compile(r"ACSCtl:.*?(?P<acs>(?:SrcValid|ReqRedir)\+)")
_FILES = re.compile(
    r"^[-rwx.+]{9,11}\s.*(?P<files>nccl-[\w-]+)\s*$"
    r"|^(?P<names>(?:(?:/dev/shm/)?nccl-[\w-]+\s*)+)$"
)
_FULL = re.compile(r"\s(?P<size>[\d.]+)(?P<unit>[KMGT])\s.*\s100%\s+/dev/shm")
_BUSBW = re.compile(
    r"nGpus (?P<gpus>\d{1,5})\b.*?(?P<bytes>\d+) bytes.*?busbw (?P<bw>\d+(?:\.\d+)?)"
)


def read(event: Event, facts: Facts) -> None:
    """Add what a line that is not NCCL's tells of a process, a wait or a host."""
    text = event.text
    for pattern, kind in _FORMS:
        if found := pattern.search(text):
            fields: dict[str, Any] = {k: v for k, v in found.groupdict().items() if v is not None}
            facts.add(replace(event, kind=kind, fields=fields))
    if "Root Cause (first" in text:
        facts.add(replace(event, kind="torchrun.root"))


_FORMS = (
    (_FAILED, "torchrun.failed"), (_RANK, "torchrun.rank"), (_CODE, "torchrun.code"),
    (re.compile(r"(?P<signal>Signal 9|SIGKILL)\b"), "torchrun.kill"),
    (_WAIT, "gloo.wait"), (_RETRY, "ucx.retry"), (re.compile(r"(?P<wqe>wqe\[\d+\])"), "ucx.wqe"),
    (_ACS, "acs"), (_FILES, "shm.file"), (_FULL, "shm.full"), (_BUSBW, "bench.gpus"),
    (re.compile(r"^GPU \d+: (?P<gpu>.*?) \(UUID"), "gpu.name"),
    (re.compile(r"Traceback \(most recent call last"), "traceback"),
    (re.compile(r"Avg bus bandwidth|Out of bounds values : 0"), "bench.done"),
)  # fmt: skip
