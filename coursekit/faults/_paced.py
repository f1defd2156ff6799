"""Links without namespaces: every rank holds its messages back for the time that a link takes."""

from __future__ import annotations

from coursekit.ranks import First

from ._plan import Pair, Plan
from ._table import Table


class Paced:
    """The `Site` of ranks whose sends are paced."""

    # A message carries nothing beside its data.
    headers, packet = 0, 1

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._table = Table(plan)
        self.path = self._table.path
        self.pids: list[int] = []
        self.counts, self.close = self._table.counts, self._table.close

    def environment(self, rank: int) -> dict[str, str]:
        """Nothing beside what every local rank has."""
        del rank
        return {}

    def first(self, rank: int) -> First:
        """A rank puts the pacing below torch's sends."""
        arguments = (str(self.path), self.plan.size, rank)
        return First("coursekit.faults._pacing", "install", arguments)

    def addresses(self) -> dict[str, int]:
        """All ranks have the same."""
        return {}

    def joining(self) -> None:
        """Gloo's own messages are not held back, so nothing has to be opened."""

    def joined(self) -> None:
        """Block what is to be blocked."""
        self._table.write(blocked=True)

    def change(self, pair: Pair) -> None:
        """Take over what the plan now has."""
        del pair
        self._table.write(blocked=True)
