"""Real links: veth pairs of the ranks' namespaces into a bridge, and an htb class for each pair."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from ._errors import FaultsError
from ._namespaces import Namespaces, address
from ._plan import Pair

Ints = npt.NDArray[np.int64]
_SENT = re.compile(r"class htb 1:([0-9a-f]+) .*?\n\s*Sent (\d+) bytes (\d+) pkt")


class Fabric(Namespaces):
    """Links that the kernel shapes.

    Traffic from rank a to rank b leaves a's interface through the class of b, which has the
    pair's rate. While the process group is made, blocked pairs pass traffic: without all its
    connections Gloo does not start at all.
    """

    # Ethernet, IP, TCP and its timestamps: 14 + 20 + 20 + 12.
    headers, packet = 66, 1514

    def joining(self) -> None:
        """Open what is blocked."""
        self._tc({r: "\n".join(self._leaves(r, False)) for r in self._ends()})

    def joined(self) -> None:
        """Block it again."""
        self._tc({r: "\n".join(self._leaves(r, True)) for r in self._ends()})

    def change(self, pair: Pair) -> None:
        """Give a pair the rate that the plan now has for it."""
        self._tc({a: self._class(a, b, "change") for a, b in (pair, pair[::-1])})

    def counts(self) -> tuple[Ints, Ints]:
        """Bytes and packets that have left for each rank: size x size each."""
        size = self.plan.size
        both = np.zeros((2, size, size), dtype=np.int64)
        command = ["tc", "-s", "class", "show", "dev", "eth0"]
        told = self.keeper.run([{"rank": r, "command": command} for r in range(size)])
        for src, text in enumerate(told):
            for number, sent, packets in _SENT.findall(text):
                both[:, src, int(number, 16) - 2] = int(sent), int(packets)
        return both[0], both[1]

    def build(self) -> None:
        """A bridge, an interface and a class for each pair."""
        size = self.plan.size
        one = {"command": ["ip", "-batch", "-"]}
        bridge = "link add joined type bridge\nlink set joined up\n"
        ends = "".join(f"link set r{r} master joined up\n" for r in range(size))
        self.keeper.run([{"rank": None, **one, "input": bridge}])
        self.keeper.run([{"rank": r, **one, "input": self._interface(r)} for r in range(size)])
        self.keeper.run([{"rank": None, **one, "input": ends}])
        self._tc({r: self._classes(r) for r in range(size)})
        # BBR, some kernels' default, probes for bandwidth and makes outliers of twice the time.
        reno = "route replace 10.77.0.0/24 dev eth0 src {} congctl reno".format
        self.keeper.run(
            [
                {"rank": r, "command": ["ip", *reno(address(r)).split()], "may_fail": True}
                for r in range(size)
            ]
        )

    def _interface(self, rank: int) -> str:
        return (
            f"link add eth0 type veth peer name r{rank} netns {self.keeper.pid}\n"
            f"link set lo up\naddr add {address(rank)}/24 dev eth0\nlink set eth0 up\n"
        )

    def _classes(self, rank: int) -> str:
        lines = ["qdisc add dev eth0 root handle 1: htb default 0"]
        for peer in self._peers(rank):
            lines.append(self._class(rank, peer, "add"))
            lines.append(
                "filter add dev eth0 parent 1: protocol ip prio 1 u32 "
                f"match ip dst {address(peer)}/32 flowid 1:{peer + 2:x}"
            )
            if (held := self._held(rank, peer)) is not None:
                lines.append(f"qdisc add {_leaf(peer, 0x200)} {held}")
        return "\n".join(lines)

    def _class(self, rank: int, peer: int, verb: str) -> str:
        bits = self.plan.bits(rank, peer)
        # A burst of one packet keeps to the rate; a fast link needs what its timer's tick lets by.
        burst = max(1600, bits // 8 // 20_000)
        return (
            f"class {verb} dev eth0 parent 1: classid 1:{peer + 2:x} htb rate {bits}bit "
            f"burst {burst} cburst {burst} quantum 60000"
        )

    def _held(self, rank: int, peer: int) -> str | None:
        pair = (min(rank, peer), max(rank, peer))
        delay, loss = self.plan.delays.get(pair), self.plan.losses.get(pair)
        if delay is None and loss is None:
            return None
        late = f" delay {delay * 1e6:.0f}us" if delay else ""
        return f"netem limit 10000{late}" + (f" loss {loss * 100:g}%" if loss else "")

    def _ends(self) -> set[int]:
        return {r for pair in self.plan.blocked for r in pair}

    def _leaves(self, rank: int, blocked: bool) -> Iterable[str]:
        for peer in self._peers(rank):
            if (min(rank, peer), max(rank, peer)) not in self.plan.blocked:
                continue
            if blocked:
                yield f"qdisc replace {_leaf(peer, 0x100)} blackhole"
            else:
                kind = self._held(rank, peer) or "pfifo limit 1000"
                yield f"qdisc replace {_leaf(peer, 0x200)} {kind}"

    def _peers(self, rank: int) -> list[int]:
        return [r for r in range(self.plan.size) if r != rank]

    def _tc(self, texts: dict[int, str]) -> None:
        command = ["tc", "-batch", "-"]
        jobs = [{"rank": r, "command": command, "input": t} for r, t in texts.items()]
        try:
            self.keeper.run(jobs)
        except FaultsError as error:
            if "kind is unknown" not in str(error):
                raise
            module = "htb or netem" if self.plan.needs_packets else "htb"
            raise FaultsError(f"this kernel lacks {module}") from None


def _leaf(peer: int, handles: int) -> str:
    return f"dev eth0 parent 1:{peer + 2:x} handle {handles + peer:x}:"
