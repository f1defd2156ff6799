"""A cluster on this machine: real ranks, and real links of the speeds that were asked for."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import weakref
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from coursekit.ranks import Ranks
from coursekit.topology.machine import Topology, graph_of

from ._errors import FaultsError
from ._fabric import Fabric
from ._paced import Paced
from ._plan import Pair, Plan, check_pair, make_plan
from ._rate import parse_rate
from ._tun import Switched

Ints = npt.NDArray[np.int64]
WAYS = ("auto", "root", "user", "tun", "paced")
_WORDS = {
    "root": "a network namespace for each rank, made as root, joined by a bridge; htb shapes "
    "every pair",
    "user": "a network namespace for each rank, in a user namespace of their own, joined by a "
    "bridge; htb shapes every pair",
    "tun": "a network namespace for each rank, joined by a switch, a process of its own that holds "
    "every packet back",
    "paced": "paced sends: sends and receives, and so the course's own algorithms, take the time "
    "of the link; Gloo's own collectives do not",
}


class Cluster:
    """Ranks and the links between them; made by `cluster`.

    Attributes
    ----------
    ranks : Ranks
        As any other.
    size : int
    how : str
        Which way the links are real here, and why no better one.
    """

    def __init__(self, plan: Plan, way: str, timeout: float | None) -> None:
        self.size, self._plan = plan.size, plan
        self._site, self.how = _site(plan, way)
        self._end = weakref.finalize(self, self._site.close)
        try:
            self.ranks = Ranks(plan.size, "gloo", timeout=timeout, site=self._site)
        except BaseException:
            self._end()
            raise

    def bytes(self) -> Ints:
        """Bytes that rank i has sent to rank j since the start, at [i, j].

        They are counted where the pair's link begins, with acknowledgements and with the bytes
        that each packet has beside its payload (`headers`); paced sends count what messages carry.
        """
        return self._site.counts()[0]

    def packets(self) -> Ints:
        """Packets likewise; messages, where sends are paced."""
        return self._site.counts()[1]

    @property
    def headers(self) -> int:
        """Bytes of each packet that are not payload."""
        return self._site.headers

    @property
    def overhead(self) -> float:
        """Bytes on the wire for each byte of payload, in full packets."""
        return self._site.packet / (self._site.packet - self._site.headers)

    def topology(self) -> Topology:
        """The links as `coursekit.topology` has them, for `best_ring` and the simulator.

        Bandwidths are of what goes over the wire: more than the payload, by `overhead`.
        A blocked pair has a link of one byte a second, so that an order of ranks can be told.
        """
        names = tuple(f"GPU{r}" for r in range(self.size))
        edges = [
            (names[a], names[b], "network", 1, self._bandwidth((a, b)))
            for a, b in itertools.combinations(range(self.size), 2)
        ]
        graph = graph_of([(name, "gpu", "here") for name in names], edges)
        return Topology(f"{self.size} ranks, {self._plan}", graph, names)

    def _bandwidth(self, pair: Pair) -> float:
        return 1.0 if pair in self._plan.blocked else self._plan.bits(*pair) / 8

    def set_rate(self, a: int, b: int, rate: str) -> None:
        """Change the rate between two ranks, both ways, while they run."""
        pair = check_pair((a, b), self.size)
        self._plan.rates[pair] = parse_rate(rate)
        self._site.change(pair)

    def block(self, a: int, b: int) -> None:
        """Let nothing pass between two ranks any more."""
        self._plan.blocked.add(check_pair((a, b), self.size))
        self._site.joined()

    def unblock(self, a: int, b: int) -> None:
        """Let it pass again."""
        pair = check_pair((a, b), self.size)
        self._site.joining()
        self._plan.blocked.discard(pair)
        self._site.joined()

    def close(self) -> None:
        """End the ranks and take the network down; nothing of it is left."""
        self.ranks.close()
        self._end()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{self.size} ranks, {self._plan}\n({self.how})"


def cluster(
    size: int,
    rate: str = "1 Gbit/s",
    *,
    slow: Mapping[Pair, str] | None = None,
    blocked: Iterable[Pair] = (),
    late: Mapping[Pair, float] | None = None,
    lossy: Mapping[Pair, float] | None = None,
    way: str = "auto",
    timeout: float | None = 60.0,
) -> Cluster:
    """Start ranks whose links have the speeds that are asked for; use it in a ``with``.

    Parameters
    ----------
    size : int
        How many ranks, from 2 to 64.
    rate : str
        Of every pair of ranks, each way: ``"1 Gbit/s"``, ``"100 MB/s"``. What the machine's
        cores can move is the limit.
    slow : mapping of (rank, rank) to str
        Other rates, of single pairs.
    blocked : iterable of (rank, rank)
        Pairs that connect, and pass nothing from then on, as a link does that dies at work.
    late : mapping of (rank, rank) to seconds
        What a packet takes longer, each way. Not with paced sends.
    lossy : mapping of (rank, rank) to share
        Which part of the packets is lost, above 0, at most 1. Not with
        paced sends.
    way : {"auto", "root", "user", "tun", "paced"}
        ``auto`` takes the first of the others that works here; `Cluster.how` says which. The
        kernel's htb, and netem for late and lossy links, shape in ``root`` and ``user``
        (namespaces made as root, or in a user namespace); in ``tun`` a process does.
    timeout : float or None
        Of the ranks' calls, in seconds.

    Raises
    ------
    FaultsError
        A parameter breaks a rule, or the machine cannot do what was asked.
    RanksStartError
        A rank did not come up.

    Examples
    --------
    >>> with cluster(8, "200 Mbit/s", slow={(0, 7): "20 Mbit/s"}) as here:
    ...     here.ranks.run(ring, bytes)
    ...     here.bytes()
    """
    if way not in WAYS:
        raise FaultsError(f"way must be one of {', '.join(WAYS)}, got {way!r}; try 'auto'")
    return Cluster(make_plan(size, rate, slow, blocked, late, lossy), way, timeout)


def _site(plan: Plan, way: str) -> tuple[Fabric | Switched | Paced, str]:
    """The first way that works, and the words for it and for what did not work."""
    problems: list[str] = []
    for name in ("root", "user", "tun") if way == "auto" else (way,):
        if name == "paced":
            break
        try:
            return _network(plan, name), "; ".join([_WORDS[name], *problems])
        except FaultsError as error:
            problems.append(f"{name}: {error}")
    told = "; ".join(problems)
    if way not in ("auto", "paced"):
        raise FaultsError(f"no such network can be made here ({told}); try way='auto'")
    if plan.needs_packets:
        raise FaultsError(
            "late and lossy links need network namespaces, which are not to be had here "
            f"({told or 'paced sends were asked for'}); leave them out"
        )
    return Paced(plan), f"{_WORDS['paced']}" + (f" (no namespaces: {told})" if told else "")


def _network(plan: Plan, way: str) -> Fabric | Switched:
    """Make a network of namespaces in one way; FaultsError when it cannot be."""
    if sys.platform != "linux":
        raise FaultsError("network namespaces are Linux's")
    programs = ("ip",) if way == "tun" else ("ip", "tc")
    if missing := [p for p in programs if _find(p) is None]:
        raise FaultsError(f"{' and '.join(missing)} missing, apt-get install iproute2")
    if way != "tun":
        return Fabric(plan, user=way == "user")
    return Switched(plan, user=os.geteuid() != 0)


def _find(program: str) -> str | None:
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")
