"""What launchers and log collectors put in front of a line, in any order."""

from __future__ import annotations

import re
from typing import NamedTuple

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\].*?(?:\x07|\x1b\\)")
_TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
# NCCL's own host:pid:tid must stay, so a bare name is a prefix only in front of that.
_CORE = r"(?=[\w.-]+:\d+:\d+ \[)"
_FORMS = re.compile(
    rf"\s*(?:\[\d+,(?P<mpi>\d+)\]<(?:stdout|stderr|stddiag)>:\s?"
    rf"|(?P<srun>\d{{1,6}}):\s+"
    rf"|\[(?:rank|RANK|Rank)\s*(?P<torch>\d+)\]:?\s?(?!Watchdog|Timeout|Caught|is running)"
    rf"|\[default\d+\]:\s?"
    rf"|rank\s?(?P<pipe>\d+)\s*(?:\||:)\s?"
    rf"|\((?:[\w.\[\]-]+\s)?pid=\d+(?:,\s*ip=(?P<ray>[\d.a-fA-F:]+))?\)\s?"
    rf"|\[?(?P<time>{_TIME})\]?:?\s+"
    rf"|\[?(?P<clock>\d\d:\d\d:\d\d[.,]\d+)\]?\s+"
    rf"|(?P<ip>\d+\.\d+\.\d+\.\d+):\s"
    rf"|(?P<pdsh>[\w.-]+):\s+{_CORE}"
    rf"|[\w./-]+\s*\|\s+"
    rf"|\|\s)"
)


class Place(NamedTuple):
    """Who printed a line, and when, as its prefixes tell."""

    rest: str
    time: str = ""
    host: str = ""
    rank: int | None = None


def plain(line: str) -> str:
    """Without colours and control characters at the ends."""
    line = _ANSI.sub("", line) if "\x1b" in line else line
    line = line.strip("\r\n\x00")
    # A progress bar rewrites its line; what came after it counts.
    return line.rpartition("\r")[2] if "\r" in line else line


def strip(line: str) -> Place:
    """Take prefixes off until none is left."""
    at, time, host = 0, "", ""
    rank: int | None = None
    # Ten are more than anybody nests; the bound keeps rubbish cheap.
    for _ in range(10):
        found = _FORMS.match(line, at)
        if found is None or found.end() == at:
            break
        at = found.end()
        told = found["torch"] or found["mpi"] or found["srun"] or found["pipe"]
        if told is not None and rank is None and len(told) < 8:
            rank = int(told)
        time = time or found["time"] or found["clock"] or ""
        host = host or found["ray"] or found["ip"] or found["pdsh"] or ""
    return Place(line[at:], time, host, rank)
