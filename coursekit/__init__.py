"""Hands-on multi-GPU communication: real ranks behind a notebook cell."""

from .i18n import language
from .ranks import Ranks
from .ranks import prepare as _prepare

__all__ = ["Ranks", "language"]

_prepare()
