"""The package's error."""

from __future__ import annotations


class MeasureError(ValueError):
    """What was asked to be measured breaks a rule; the message has the rule and the next step."""
