"""The fast way through a log: most lines cost a look-up, only telling ones are read in full.

A line's shape is the line without its digits. A shape that holds no key of any rule or reader is
left alone from then on, and of telling INFO lines of one process a few of each shape are enough.
Calls of collectives are all kept, as numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache

from coursekit.diagnose._calls import MOST, PAIRWISE, Series
from coursekit.diagnose._facts import Facts
from coursekit.diagnose._prefix import plain, strip
from coursekit.diagnose._read import KEYS, core, take
from coursekit.diagnose._rules import signs_by_key

DIGITS = b"0123456789"
INFO = b"NCCL INFO "
# How many lines of one shape are read in full: from one process, and of what is no INFO line.
ALIKE = 4
ALIKE_OTHERS = 20_000
SHAPES = 200_000
# A line this long is no log line; its head tells what there is to tell.
LONGEST = 65_536

_CALL = re.compile(
    rb"(\w+): opCount ([0-9a-fA-F]{1,16}) sendbuff \S+ recvbuff \S+ count (\d+) datatype (\d+) "
    rb"op (\d+) root (-?\d+) comm (\S+) \[nranks=(\d{1,7})\]"
)
_CALLS = frozenset(
    name[:7] for name in (b"AllReduce:", b"AllGather:", b"Broadcast:", b"ReduceScatter:",
                          b"Reduce: op", b"AlltoAll:", b"AllToAll:", b"Gather: op", b"Scatter: o",
                          b"Send: opCount", b"Recv: opCount")
)  # fmt: skip
_ALWAYS = frozenset((b"ncclCom", b"comm 0x", *(b"[Rank %d" % k for k in range(10))))


@cache
def _telling() -> Callable[[bytes], re.Match[bytes] | None]:
    keys = {key for key, _ in signs_by_key()} | set(KEYS)
    # What ends every search early stands first; the rest is in no order that matters.
    told = sorted((re.escape(key.encode()) for key in keys), key=len)
    return re.compile(b"|".join([*told, rb"(?:GPU|NIC|mlx5_)\d+(?:[\t ]|$)|NIC\d+: "])).search


def scan(source: str, blocks: Iterable[bytes], facts: Facts) -> None:
    """Read a source; a block ends where a line ends."""
    number = 0
    telling = _telling()
    seen: dict[object, int] = {}
    calls = _Calls(facts, source)
    for block in blocks:
        facts.bytes += len(block)
        lines = block.split(b"\n")
        if not lines[-1]:
            lines.pop()
        for line in lines:
            number += 1
            at = line.find(INFO)
            if at >= 0:
                who = line[:at]
                words = who.rsplit(None, 2)
                if len(words) > 1:
                    who = words[-2]
                word = line[at + 10 : at + 17]
                if word in _CALLS and calls.take(line, at + 10, who, number):
                    continue
                if word not in _ALWAYS:
                    key: object = (who, line[at:].translate(None, DIGITS))
                    count = seen.get(key, 0)
                    if count >= ALIKE:
                        continue
                    seen[key] = count + 1 if telling(line) else ALIKE
                    if seen[key] == ALIKE and count == 0:
                        calls.present(line, who, number)
                        continue
            else:
                key = line.translate(None, DIGITS)
                count = seen.get(key, 0)
                if count >= ALIKE_OTHERS:
                    continue
                if not telling(line):
                    seen[key] = ALIKE_OTHERS
                    continue
                seen[key] = count + 1
            take(plain(line[:LONGEST].decode("utf-8", "replace")), source, number, facts)
        if len(seen) > SHAPES:
            seen.clear()
    facts.lines += number


class _Calls:
    """Lines of one source about collectives."""

    def __init__(self, facts: Facts, source: str) -> None:
        self._facts = facts
        self._calls = facts.calls
        self._source = source
        self._series: dict[tuple[bytes, bytes], Series | None] = {}
        self._seen: set[bytes] = set()

    def take(self, line: bytes, at: int, who: bytes, number: int) -> bool:
        found = _CALL.match(line, at)
        if found is None:
            return False
        name, op_count, count, kind, op, root, comm, nranks = found.groups()
        key = (who, comm)
        if key not in self._series:
            self._series[key] = self._begin(line, comm, int(nranks), number)
        series = self._series[key]
        self._calls.seen += 1
        if series is None or name in _PAIRWISE or self._calls.seen > MOST:
            return True
        parts = (name, count, kind, op, root)
        known = self._calls.numbers.get(parts)
        series.signatures.append(self._calls.number(parts) if known is None else known)
        series.counts.append(int(op_count, 16))
        series.lines.append(number)
        return True

    def _begin(self, line: bytes, comm: bytes, nranks: int, number: int) -> Series | None:
        place = strip(plain(line[:LONGEST].decode("utf-8", "replace")))
        event = core(place, self._source, number)
        if event is None:
            return None
        if event.rank is not None:
            self._facts.knows(event.process, event.rank)
        self._facts.add(event)
        told = comm.decode("ascii", "replace")
        series = Series(event.process, told, nranks, event.rank, self._source)
        return self._calls.series.setdefault((event.process, told), series)

    def present(self, line: bytes, who: bytes, number: int) -> None:
        """A process that prints something is there, whatever it prints."""
        if who in self._seen or len(self._seen) > SHAPES:
            return
        self._seen.add(who)
        event = core(strip(plain(line[:LONGEST].decode("utf-8", "replace"))), self._source, number)
        if event is not None:
            self._facts.add(event)


_PAIRWISE = frozenset(name.encode() for name in PAIRWISE)
