"""Real rank processes behind a notebook cell."""

from ._call import RanksInterrupted
from ._errors import (
    RankDied,
    RankFailed,
    RanksError,
    RanksHung,
    RanksStartError,
    RanksUsageError,
)
from ._prepare import prepare
from ._ranks import Ranks, current
from ._site import First, Site
from ._stand import Stand

__all__ = [
    "First",
    "RankDied",
    "RankFailed",
    "Ranks",
    "RanksError",
    "RanksHung",
    "RanksInterrupted",
    "RanksStartError",
    "RanksUsageError",
    "Site",
    "Stand",
    "current",
    "prepare",
]
