"""Collectives measured on real ranks: times in nccl-tests' columns, and bytes on the wire."""

from ._errors import MeasureError
from ._fit import Fit, fit
from ._issued import Issued
from ._own import record_own
from ._published import published
from ._sweep import sizes, sweep
from ._table import Row, Sweep
from ._traffic import Traffic, traffic

__all__ = [
    "Fit",
    "Issued",
    "MeasureError",
    "Row",
    "Sweep",
    "Traffic",
    "fit",
    "published",
    "record_own",
    "sizes",
    "sweep",
    "traffic",
]
