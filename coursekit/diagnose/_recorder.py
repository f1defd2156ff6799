"""Flight recorders' dumps, from JSON or from pickles that may only hold plain containers."""

from __future__ import annotations

import io
import json
import pickle
import re
from dataclasses import dataclass, field
from typing import Any

from coursekit.diagnose._errors import DiagnoseError

# What torch's own writer may name besides containers; each is a list.
_LISTS = {"build_intlist", "build_tensorlist", "build_doublelist", "build_boollist"}
# Entries that are kept of one group: what matters is at the end.
KEPT = 512
LARGEST = 1 << 29


@dataclass(frozen=True, slots=True)
class Entry:
    """One collective that a rank enqueued; `number` is its place in the dump."""

    number: int
    seq: int
    op: str
    sizes: str
    elements: int
    dtype: str
    state: str
    timeout_ms: int

    @property
    def text(self) -> str:
        return f"#{self.seq} {self.op} {self.sizes} {self.dtype} {self.state}"


@dataclass
class Dump:
    """What one rank recorded: entries by group and sequence number, and who is in a group."""

    source: str
    rank: int | None
    groups: dict[str, dict[int, Entry]] = field(default_factory=dict)
    members: dict[str, list[int]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    @property
    def world(self) -> int:
        """The size of the largest group, 0 where none is told."""
        return max((len(m) for m in self.members.values()), default=0)


# The one written in Python: the faster one grows its memo to any index that a file names.
_Plain = pickle._Unpickler


class _Unpickler(_Plain):
    """Refuses every class and function."""

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch.jit._pickle" and name in _LISTS:
            return list
        raise pickle.UnpicklingError(f"it names {module}.{name}")


def unpickle(data: bytes, source: str) -> Any:
    """What a pickle of plain containers holds; nothing in it is run.

    Raises
    ------
    DiagnoseError
        It names a class or a function, or is no pickle.
    """
    try:
        return _Unpickler(io.BytesIO(data)).load()
    # A broken pickle may raise anything at all.
    except Exception as error:
        told = str(error)[:100] or type(error).__name__
        raise DiagnoseError(
            f"a dump must be a pickle of lists, dicts, strings and numbers, got {source} ({told}); "
            "nothing of it was run"
        ) from None


def is_pickle(head: bytes) -> bool:
    return len(head) > 1 and head[0] == 0x80 and 1 < head[1] <= 5


def load(data: bytes, source: str) -> list[Dump]:
    """The dumps in a file: one, a list of them, or a dict of them by rank.

    Raises
    ------
    DiagnoseError
        It is no dump.
    """
    if is_pickle(data[:2]):
        told = unpickle(data, source)
    else:
        try:
            told = json.loads(data)
        except (ValueError, RecursionError):
            raise DiagnoseError(
                f"a dump must be a pickle or JSON, got {source}; give the files that "
                "TORCH_FR_DUMP_TEMP_FILE names"
            ) from None
    return dumps(told, source)


def dumps(told: Any, source: str) -> list[Dump]:
    """Dumps from what was loaded; what is no dump is left out."""
    if isinstance(told, list):
        return [d for k, one in enumerate(told) for d in _one(one, source, k)]
    if isinstance(told, dict) and "entries" not in told:
        return [d for k, one in told.items() for d in _one(one, source, _number(str(k)))]
    return _one(told, source, None)


def _one(told: Any, source: str, rank: int | None) -> list[Dump]:
    if not isinstance(told, dict) or not isinstance(told.get("entries"), list):
        return []
    named = told.get("rank")
    rank = named if isinstance(named, int) and not isinstance(named, bool) else rank
    dump = Dump(source, rank if rank is not None else _number(source))
    for number, entry in enumerate(told["entries"], start=1):
        if isinstance(entry, dict):
            _take(dump, entry, number)
    config = told.get("pg_config")
    for name, group in config.items() if isinstance(config, dict) else ():
        if isinstance(group, dict):
            ranks = [int(r) for r in re.findall(r"\d{1,7}", str(group.get("ranks"))[:10_000_000])]
            dump.members[str(name)[:100]] = ranks
            dump.names[str(name)[:100]] = str(group.get("desc") or name)[:100]
    return [dump]


def _number(name: str) -> int | None:
    found = re.search(r"(\d{1,7})(?:\.\w+)?$", name)
    return int(found[1]) if found else None


def _take(dump: Dump, told: dict[Any, Any], number: int) -> None:
    seq = told.get("collective_seq_id", told.get("seq_id"))
    if told.get("is_p2p") or not isinstance(seq, int):
        return
    names = told.get("process_group")
    first = names[0] if isinstance(names, (list, tuple)) and names else names
    name = str(first if isinstance(first, (str, int)) else told.get("pg_id", 0))[:100]
    sizes, elements = _sizes(told.get("input_sizes"))
    kinds = told.get("input_dtypes")
    kind = kinds[0] if isinstance(kinds, (list, tuple)) and kinds else kinds
    timeout = told.get("timeout_ms")
    entry = Entry(
        number, seq, _name(told), sizes, elements,
        kind[:20] if isinstance(kind, str) else "", str(told.get("state", ""))[:20],
        timeout if isinstance(timeout, int) else 0,
    )  # fmt: skip
    group = dump.groups.setdefault(name, {})
    group[seq] = entry
    if len(group) > KEPT:
        del group[next(iter(group))]


def _name(told: dict[Any, Any]) -> str:
    return str(told.get("profiling_name", ""))[:80].removeprefix("nccl:")


def _sizes(told: Any) -> tuple[str, int]:
    """Sizes as text, and how many elements; only numbers in two levels are looked at."""
    if not isinstance(told, (list, tuple)):
        return "", 0
    shapes = []
    elements = 0
    for shape in told[:8]:
        numbers = [n for n in shape[:8] if isinstance(n, int)] if isinstance(shape, (list, tuple)) \
            else [shape] if isinstance(shape, int) else []  # fmt: skip
        count = 1
        for n in numbers:
            count *= min(abs(n), 1 << 50)
        elements += count
        shapes.append(numbers)
    return str(shapes), elements
