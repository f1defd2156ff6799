"""What is wrong with a table, a machine or a question about it."""

from __future__ import annotations


class TopologyError(ValueError):
    """The message states the rule, what was got, and the next step."""
