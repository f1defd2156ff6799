"""What is wrong with a command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from coursekit.i18n import text

__all__ = ["Finding"]


@dataclass(frozen=True)
class Finding:
    """One mistake in a command or block.

    Attributes:
        id: such as `torchrun.endpoint_localhost`; its words stand in `data/text/launch.yaml`.
        line: where, from 1.
        written: the command as it was written, on one line.
        fixed: what to write instead; "" where that depends on what only the learner knows.
        values: what fills the places in the words.
    """

    id: str
    line: int
    written: str
    fixed: str
    values: Mapping[str, object] = field(default_factory=dict)

    @property
    def what(self) -> str:
        """What is wrong, in the current language (`coursekit.i18n`)."""
        return text(f"launch.{self._key}", **self.values)

    @property
    def effect(self) -> str:
        """What it does when it is run."""
        return text(f"launch.{self._key}_does", **self.values)

    @property
    def _key(self) -> str:
        return self.id.replace(".", "_")

    def __str__(self) -> str:
        lines = [f"{self.line}: {self.what}  [{self.id}]", f"   {self.effect}"]
        return "\n".join(lines + ([f"   -> {self.fixed}"] if self.fixed else []))
