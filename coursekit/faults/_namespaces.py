"""Ranks in network namespaces of their own, however those are joined."""

from __future__ import annotations

from coursekit.ranks import First

from ._keeping import Keeper
from ._plan import Plan


class Namespaces:
    """What a network for ranks in namespaces of their own has as their `Site`."""

    def __init__(self, plan: Plan, user: bool) -> None:
        self.plan = plan
        self.keeper = Keeper(plan.size, user)
        self.pids = [self.keeper.pid]
        try:
            self.build()
        except BaseException:
            self.close()
            raise

    def environment(self, rank: int) -> dict[str, str]:
        """Gloo takes the rank's own interface."""
        del rank
        return {"GLOO_SOCKET_IFNAME": "eth0"}

    def first(self, rank: int) -> First:
        """A rank enters its namespaces before it has a thread or a socket."""
        return First("coursekit.faults._keeper", "enter", (self.keeper.paths[rank],))

    def addresses(self) -> dict[str, int]:
        """One address a rank."""
        return {address(r): r for r in range(self.plan.size)}

    def build(self) -> None:
        """Make the links; a subclass says how."""
        raise NotImplementedError

    def close(self) -> None:
        """End the keeper, and with it the network."""
        self.keeper.close()


def address(rank: int) -> str:
    """The address of a rank's interface."""
    return f"10.77.0.{rank + 1}"
