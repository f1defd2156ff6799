"""What is wrong with a question to the tool, as against what is wrong in a log."""

from __future__ import annotations


class DiagnoseError(ValueError):
    """The message states the rule, what was got, and the next step."""
