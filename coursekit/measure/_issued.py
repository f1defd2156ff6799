"""What ranks ask torch to communicate, by group and phase.

Two witnesses. The dispatcher shows every call as it was asked for, send and receive, DTensor's and
DDP's among them. The flight recorder is the backend's own book: it shows what the backend made of
a call (Gloo runs reduce_scatter as all_reduce), and on Gloo it leaves send and receive out.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from ._phase import Phases, current_phase, group_of_call


class Issued(NamedTuple):
    """Calls of one kind that a rank made.

    `bytes` is what one call handles on this rank: its whole input or output, whichever is larger,
    as nccl-tests counts sizes. `count` is how many calls there were. `group` is the axis of a mesh,
    or ``world``, and `ranks` its size; `phase` is ``backward`` while autograd runs, ``forward``
    while a module does, else ``step``. Where calls are summed up without them, they are empty.
    """

    op: str
    bytes: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs here
    group: str = ""
    ranks: int = 0
    phase: str = ""


class Call(NamedTuple):
    """One call, as it was seen."""

    op: str
    bytes: int
    group: str = ""
    ranks: int = 0
    phase: str = ""


# Names that say the same: the dispatcher's, functional ones' and the flight recorder's.
_NAMES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "allgather_base": "all_gather",
    "allgather_into_tensor": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "all_gather_single": "all_gather",
    "all_gather_base": "all_gather",
    "reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "all_to_all_single": "all_to_all",
    "isend": "send",
    "irecv": "recv",
    "recv_any_source": "recv",
    "monitored_barrier": "barrier",
}
_SILENT = ("wait_tensor", "wrap_tensor_autograd", "check_for_nan")
_NAMESPACES = ("c10d", "_c10d_functional", "_c10d_functional_autograd")
_ITEM = {
    "Byte": 1, "Char": 1, "Bool": 1, "Short": 2, "Half": 2, "BFloat16": 2, "Int": 4, "Float": 4,
    "Long": 8, "Double": 8, "ComplexFloat": 8, "ComplexDouble": 16,
}  # fmt: skip
_watch: tuple[watch, int] | None = None


class watch:  # noqa: N801  # used like a function
    """In one process: collect the calls made in a with block, as `Issued` by group and phase.

    For a script under torchrun, or for torch's fake process group; in a notebook, `traffic` does
    the same for all ranks at once.

    Examples
    --------
    >>> with measure.watch() as seen:
    ...     model(x).sum().backward()
    >>> seen.issued
    """

    def __init__(self) -> None:
        self._calls: list[Call] = []
        self._mode = _mode(self._calls)
        self._phases = Phases()

    def __enter__(self) -> watch:
        self._phases.__enter__()
        self._mode.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._mode.__exit__(None, None, None)
        self._phases.__exit__(None, None, None)

    @property
    def issued(self) -> list[Issued]:
        """Equal calls together, in the order in which each was first made."""
        return summary(self._calls)


def start() -> None:
    """On a rank: watch from now on, over as many calls as come; `stop` ends it."""
    global _watch
    if _watch is not None:
        _watch[0].__exit__()
    _watch = (watch().__enter__(), _book_length())


def stop() -> tuple[list[Issued], list[Issued], bool] | None:
    """On a rank: what was issued, what the flight recorder has, and whether its book overflowed.

    None when nobody watches here: the rank was started anew.
    """
    global _watch
    if _watch is None:
        return None
    watching, begin = _watch
    watching.__exit__()
    _watch = None
    entries = [entry for entry in _book() if entry["record_id"] >= begin]
    lost = bool(entries) and entries[0]["record_id"] > begin
    return watching.issued, summary(map(recorded, entries)), lost


def summary(calls: Iterable[Call]) -> list[Issued]:
    """Equal calls together, in the order in which each was first made."""
    return [Issued(c.op, c.bytes, n, *c[2:]) for c, n in Counter(calls).items()]


def merged(issued: Iterable[Issued]) -> list[Issued]:
    """The same without group and phase."""
    total: Counter[tuple[str, int]] = Counter()
    for each in issued:
        total[each.op, each.bytes] += each.count
    return [Issued(op, size, count) for (op, size), count in total.items()]


def plain(name: str) -> str:
    """The course's name of an operation of torch: ``allreduce_`` is all_reduce."""
    short = name.strip("_").removesuffix("_coalesced").removesuffix("_out")
    return _NAMES.get(short, short)


def _mode(calls: list[Call]) -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # as in `coursekit.comm`'s: no import of torch's compiler

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            out = func(*args, **(kwargs or {}))
            op = plain(func.overloadpacket.__name__)
            if func.namespace in _NAMESPACES and op not in _SILENT:
                given = [*args, *(kwargs or {}).values()]
                size = 0 if op == "barrier" else max(map(_nbytes, [*given, out]))
                calls.append(Call(op, size, *group_of_call(given), current_phase()))
            return out

    return Watch()  # type: ignore[no-untyped-call]


def _nbytes(value: Any) -> int:
    import torch

    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    return sum(map(_nbytes, value)) if isinstance(value, list | tuple) else 0


def recorded(entry: dict[str, Any]) -> Call:
    """An entry of the flight recorder: ``gloo:all_reduce`` with its sizes and dtypes."""
    name = entry["profiling_name"].split(":")[-1].split(" ")[0]
    amounts = [
        sum(math.prod(s) * _ITEM.get(d, 1) for s, d in zip(sizes, dtypes, strict=True))
        for sizes, dtypes in (
            (entry["input_sizes"], entry["input_dtypes"]),
            (entry["output_sizes"], entry["output_dtypes"]),
        )
    ]
    op = plain(name)
    return Call(op, 0 if op == "barrier" else max(amounts))


def _book() -> list[dict[str, Any]]:
    """The flight recorder's entries, oldest first; none where torch has no such book."""
    try:
        from torch._C import _distributed_c10d

        told = _distributed_c10d._dump_fr_trace_json()  # type: ignore[attr-defined]
    except (ImportError, AttributeError):
        return []
    entries: list[dict[str, Any]] = json.loads(told).get("entries", [])
    return sorted(entries, key=lambda entry: int(entry["record_id"]))


def _book_length() -> int:
    entries = _book()
    return int(entries[-1]["record_id"]) + 1 if entries else 0
