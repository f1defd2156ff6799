"""What the builders refuse."""

from __future__ import annotations

__all__ = ["LaunchError"]


class LaunchError(ValueError):
    """A command that cannot be written as asked; the message says why and what to try."""
