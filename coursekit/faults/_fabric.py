"""Real links: a network namespace for each rank, veth pairs into a bridge, an htb class a pair."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coursekit.ranks import First

from ._errors import FaultsError
from ._plan import Pair, Plan

Ints = npt.NDArray[np.int64]
_SENT = re.compile(r"class htb 1:([0-9a-f]+) .*?\n\s*Sent (\d+) bytes (\d+) pkt")
_ALL: weakref.WeakSet[Keeper]


class Keeper:
    """This side of the process that holds the namespaces; FaultsError when it cannot be had."""

    def __init__(self, size: int, user: bool) -> None:
        script = str(Path(__file__).with_name("_keeper.py"))
        # Linux takes the end of the thread that started a process for the end of the parent.
        lasting = threading.current_thread() is threading.main_thread()
        own = str(os.getpid() if lasting else 0)
        kind = "user" if user else "root"
        command = [sys.executable, "-E", "-s", "-S", script, str(size), kind, own]
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._lock = threading.Lock()
        _ALL.add(self)
        started = self._answer()
        self.paths: list[list[str]] = started["paths"]
        self.pid: int = started["pid"]

    def run(self, jobs: list[dict[str, Any]]) -> list[str]:
        """Run programs in the namespaces and return what they printed."""
        with self._lock:
            assert self._child.stdin is not None
            try:
                self._child.stdin.write(json.dumps(jobs) + "\n")
                self._child.stdin.flush()
            except OSError:
                pass  # the answer, or its lack, tells why
            told: list[str] = self._answer()["told"]
        return told

    def _answer(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "the keeper has ended"}
        if "error" in answer:
            if not line or not hasattr(self, "paths"):
                self.close()
            raise FaultsError(answer["error"])
        return answer

    def close(self) -> None:
        """End the process; the kernel takes the namespaces back with it."""
        self.abandon()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(2)
        if self._child.poll() is None:
            self._child.kill()
            self._child.wait(5)

    def abandon(self) -> None:
        """Let go of the pipes; in a fork of this process the keeper is not ours."""
        for pipe in (self._child.stdin, self._child.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()


_ALL = weakref.WeakSet()


def _abandon_all() -> None:
    for keeper in list(_ALL):
        keeper.abandon()


os.register_at_fork(after_in_child=_abandon_all)


class Fabric:
    """A cluster's network as `Ranks` sees it: a `Site`.

    Traffic from rank a to rank b leaves a's interface through the class of b, which has the
    pair's rate. While the process group is made, blocked pairs pass traffic: without all its
    connections Gloo does not start at all.
    """

    def __init__(self, plan: Plan, user: bool) -> None:
        self.plan = plan
        self._keeper = Keeper(plan.size, user)
        self.pid = self._keeper.pid
        try:
            self._build()
        except BaseException:
            self.close()
            raise

    # -- the site of the ranks ----------------------------------------------

    def environment(self, rank: int) -> dict[str, str]:
        """Gloo takes the rank's own interface."""
        del rank
        return {"GLOO_SOCKET_IFNAME": "eth0"}

    def first(self, rank: int) -> First:
        """A rank enters its namespaces before it has a thread or a socket."""
        return First("coursekit.faults._keeper", "enter", (self._keeper.paths[rank],))

    def addresses(self) -> dict[str, int]:
        """One address a rank."""
        return {_address(r): r for r in range(self.plan.size)}

    def joining(self) -> None:
        """Open what is blocked."""
        self._tc({r: "\n".join(self._leaves(r, False)) for r in self._ends()})

    def joined(self) -> None:
        """Block it again."""
        self._tc({r: "\n".join(self._leaves(r, True)) for r in self._ends()})

    # -- the cluster ----------------------------------------------------------

    def change(self, pair: Pair) -> None:
        """Give a pair the rate that the plan now has for it."""
        self._tc({a: self._class(a, b, "change") for a, b in (pair, pair[::-1])})

    def counts(self) -> tuple[Ints, Ints]:
        """Bytes and packets that have left for each rank: size x size each."""
        size = self.plan.size
        both = np.zeros((2, size, size), dtype=np.int64)
        command = ["tc", "-s", "class", "show", "dev", "eth0"]
        told = self._keeper.run([{"rank": r, "command": command} for r in range(size)])
        for src, text in enumerate(told):
            for number, sent, packets in _SENT.findall(text):
                both[:, src, int(number, 16) - 2] = int(sent), int(packets)
        return both[0], both[1]

    def close(self) -> None:
        """End the keeper."""
        self._keeper.close()

    # -- inside ---------------------------------------------------------------

    def _build(self) -> None:
        size = self.plan.size
        one = {"command": ["ip", "-batch", "-"]}
        bridge = "link add joined type bridge\nlink set joined up\n"
        ends = "".join(f"link set r{r} master joined up\n" for r in range(size))
        self._keeper.run([{"rank": None, **one, "input": bridge}])
        self._keeper.run([{"rank": r, **one, "input": self._interface(r)} for r in range(size)])
        self._keeper.run([{"rank": None, **one, "input": ends}])
        self._tc({r: self._classes(r) for r in range(size)})
        # BBR, some kernels' default, probes for bandwidth and makes outliers of twice the time.
        reno = "route replace 10.77.0.0/24 dev eth0 src {} congctl reno".format
        self._keeper.run(
            [
                {"rank": r, "command": ["ip", *reno(_address(r)).split()], "may_fail": True}
                for r in range(size)
            ]
        )

    def _interface(self, rank: int) -> str:
        return (
            f"link add eth0 type veth peer name r{rank} netns {self.pid}\n"
            f"link set lo up\naddr add {_address(rank)}/24 dev eth0\nlink set eth0 up\n"
        )

    def _classes(self, rank: int) -> str:
        lines = ["qdisc add dev eth0 root handle 1: htb default 0"]
        for peer in self._peers(rank):
            lines.append(self._class(rank, peer, "add"))
            lines.append(
                "filter add dev eth0 parent 1: protocol ip prio 1 u32 "
                f"match ip dst {_address(peer)}/32 flowid 1:{peer + 2:x}"
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
        self._keeper.run([{"rank": r, "command": command, "input": t} for r, t in texts.items()])


def _leaf(peer: int, handles: int) -> str:
    return f"dev eth0 parent 1:{peer + 2:x} handle {handles + peer:x}:"


def _address(rank: int) -> str:
    return f"10.77.0.{rank + 1}"
