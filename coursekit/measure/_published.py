"""Tables that others measured and published, as sweeps."""

from __future__ import annotations

from typing import Any

from coursekit import _data
from coursekit.cost import algbw, busbw

from ._errors import MeasureError
from ._table import Row, Sweep

_FILE = "measured/nccl_tests.yaml"


def published(name: str) -> Sweep:
    """A published nccl-tests table: ``h100-8``, ``a100-8``, ``h100-16`` or ``gb200-128``.

    All are all_reduce_perf of float32 sums, out of place, default algorithm. The percentiles are
    the time itself: the tables have one number a size. Machine and source stand in
    ``data/measured/nccl_tests.yaml``.

    Raises
    ------
    MeasureError
        No table has that name.
    """
    tables = _data.load(_FILE)
    if name not in tables:
        raise MeasureError(
            f"a published table must be one of {', '.join(tables)}, got {name!r}; try 'h100-8'"
        )
    table = tables[name]
    rows = tuple(_row(table, size, time_us) for size, time_us in table["rows"])
    return Sweep(table["collective"], table["ranks"], "nccl", rows)


def _row(table: dict[str, Any], size: int, time_us: float) -> Row:
    seconds = time_us / 1e6
    return Row(
        size=size,
        count=size // 4,
        dtype="float32",
        redop="sum",
        algorithm="library",
        time_us=time_us,
        low_us=time_us,
        high_us=time_us,
        algbw=algbw(size, seconds),
        busbw=busbw(table["collective"], table["ranks"], size, seconds),
        wrong=0,
    )
