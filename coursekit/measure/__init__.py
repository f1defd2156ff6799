"""Collectives measured on real ranks: times in nccl-tests' columns, and bytes on the wire."""

from ._errors import MeasureError
from ._fit import Fit, fit
from ._issued import Issued, watch
from ._ledger import Ledger, Line
from ._mpi import mpi_algorithms, mpi_ranks
from ._own import record_own
from ._phase import phase
from ._published import published
from ._spans import Clock, Span, utilisation
from ._sweep import sizes, sweep
from ._table import Row, Sweep
from ._traffic import Traffic, traffic

__all__ = [
    "Clock",
    "Fit",
    "Issued",
    "Ledger",
    "Line",
    "MeasureError",
    "Row",
    "Span",
    "Sweep",
    "Traffic",
    "fit",
    "mpi_algorithms",
    "mpi_ranks",
    "phase",
    "published",
    "record_own",
    "sizes",
    "sweep",
    "traffic",
    "utilisation",
    "watch",
]
