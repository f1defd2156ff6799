"""The package's errors."""

from __future__ import annotations


class FaultsError(ValueError):
    """A fault or a link that cannot be had; the message has the rule and the next step."""


class InjectedError(RuntimeError):
    """What `crash` raises on its rank."""
