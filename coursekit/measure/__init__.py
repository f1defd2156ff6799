"""Collectives measured on real ranks, in the columns that nccl-tests prints."""

from ._fit import Fit, fit
from ._sweep import MeasureError, Row, Sweep, sizes, sweep

__all__ = ["Fit", "MeasureError", "Row", "Sweep", "fit", "sizes", "sweep"]
