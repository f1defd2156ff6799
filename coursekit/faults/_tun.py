"""Real links without the kernel's queues: a TUN device for each rank, and a switch between them."""

from __future__ import annotations

from ._namespaces import Namespaces, address
from ._plan import Pair
from ._switch import MTU
from ._table import Table


class Switched(Namespaces):
    """Links that a process shapes: rates, delays and losses, whatever the kernel was built with."""

    # IP, TCP and its timestamps: 20 + 20 + 12.
    headers, packet = 52, MTU

    def build(self) -> None:
        """A device in each namespace, and the switch that holds the other ends."""
        self._table = Table(self.plan)
        try:
            self.pids.append(self.keeper.switch(str(self._table.path)))
        finally:
            # Both have it open: with no name, nothing is left of it when they are gone.
            self._table.close()
        command = ["ip", "-batch", "-"]
        jobs = [
            {"rank": r, "command": command, "input": self._interface(r)}
            for r in range(self.plan.size)
        ]
        self.keeper.run(jobs)
        # As in the other fabric: BBR makes outliers.
        routes = [
            f"ip route replace 10.77.0.0/24 dev eth0 src {address(r)} congctl reno"
            for r in range(self.plan.size)
        ]
        self.keeper.run(
            [{"rank": r, "command": t.split(), "may_fail": True} for r, t in enumerate(routes)]
        )
        self.counts = self._table.counts

    def joining(self) -> None:
        """Open what is blocked."""
        self._table.write(blocked=False)

    def joined(self) -> None:
        """Block it again."""
        self._table.write(blocked=True)

    def change(self, pair: Pair) -> None:
        """Take over what the plan now has."""
        del pair
        self._table.write(blocked=True)

    def _interface(self, rank: int) -> str:
        return (
            f"link set lo up\naddr add {address(rank)}/24 dev eth0\n"
            f"link set eth0 mtu {MTU} txqueuelen 1000 up\n"
        )
