"""Any schedule on any topology: links that several messages use at once are shared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from coursekit.cost._fair import fair_seconds
from coursekit.cost._model import CostError, seconds
from coursekit.cost._rounds import Round, rounds_of
from coursekit.schedule import Schedule
from coursekit.topology import Topology

__all__ = ["Simulated", "simulate"]

Hop = tuple[str, str]
_SHARING = ("bottleneck", "fair")
_FORWARDING = ("cut", "store")


@dataclass(frozen=True)
class Simulated:
    """What became of a schedule on a topology.

    Attributes:
        seconds: from the start to the last rank's end.
        steps: seconds of each round and how often it came; empty where ranks have own clocks.
        ends: when each rank was done.
        load: bytes that went over each link, each way by itself.
        busiest: the link that the slowest steps waited for, each way by itself; None without bytes.
    """

    seconds: float
    steps: tuple[tuple[float, int], ...]
    ends: tuple[float, ...]
    load: Mapping[Hop, int] = field(repr=False)
    busiest: Hop | None = None

    def busbw(self, collective: str, size: int, nbytes: int) -> float:
        """Bus bandwidth in GB/s, as `coursekit.cost.busbw` defines it."""
        from coursekit.cost._bandwidth import busbw

        return busbw(collective, size, nbytes, self.seconds)


def simulate(
    schedule: Schedule | Iterable[Round],
    topology: Topology,
    nbytes: int = 0,
    *,
    alpha: float = 0.0,
    gamma: float = 0.0,
    sharing: str = "bottleneck",
    forwarding: str = "cut",
    late: Mapping[int, float] | None = None,
) -> Simulated:
    """How long a schedule takes where messages meet on links.

    A step takes alpha for each message of the busiest rank, then as long as its bytes need, then
    gamma for each byte that the busiest rank adds. Steps that are alike are worked out once. On
    ranks that all hang on one switch by equal links this is the closed form.

    Args:
        schedule: a schedule, or rounds from `rounds`.
        topology: rank r is its r-th GPU.
        nbytes: bytes of the whole buffer, for a schedule.
        alpha: seconds a message; gamma: seconds a byte added.
        sharing: ``bottleneck``: a step's bytes take as long as its fullest link; ``fair``: messages
            share links max-min fairly and free them when they end.
        forwarding: ``cut``: a message passes its links at the same time; ``store``: one after the
            other, each device keeping it whole.
        late: ranks that begin so many seconds later. Then every rank has a clock of its own: a
            message begins when both its ends are there.

    Raises:
        CostError: a number or a choice is wrong, or the topology has another number of GPUs.
        TopologyError: nothing joins two ranks that talk.
    """
    for name, value, allowed in (("sharing", sharing, _SHARING), ("forwarding", forwarding,
                                 _FORWARDING)):  # fmt: skip
        if value not in allowed:
            raise CostError(f"{name} must be {' or '.join(allowed)}, got {value!r}")
    if sharing == "fair" and forwarding == "store":
        raise CostError(
            "fair sharing is of messages that pass all links at once; use forwarding='cut'"
        )
    size = topology.size
    if isinstance(schedule, Schedule):
        if schedule.size != size:
            raise CostError(
                f"the topology must have as many GPUs as the schedule has ranks, got {size} for "
                f"{schedule.size}; build the schedule with size={size}"
            )
        schedule = rounds_of(schedule, nbytes)
    run = _Run(topology, seconds(alpha, "alpha"), seconds(gamma, "gamma"), sharing, forwarding)
    clocks = None
    if late is not None:
        clocks = np.zeros(size)
        for rank, delay in late.items():
            if not 0 <= rank < size:
                raise CostError(f"a late rank must be from 0 to {size - 1}, got {rank}")
            clocks[rank] = seconds(delay, "alpha")
    return run.all(schedule, clocks)


class _Run:
    def __init__(
        self, topology: Topology, alpha: float, gamma: float, sharing: str, forwarding: str
    ) -> None:
        self.topology, self.alpha, self.gamma = topology, alpha, gamma
        self.sharing, self.forwarding = sharing, forwarding
        self.links: dict[Hop, int] = {}
        self.capacity: list[float] = []
        self.load: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self.waits: dict[int, float] = {}
        self.known: dict[bytes, tuple[float, npt.NDArray[np.float64]]] = {}

    def all(self, every: Iterable[Round], clocks: npt.NDArray[np.float64] | None) -> Simulated:
        told: list[tuple[float, int]] = []
        for one in every:
            took, messages = self._round(one)
            if clocks is None:
                told.append((took, one.times))
            else:
                for _ in range(one.times):
                    _advance(clocks, one, messages)
        total = sum(took * times for took, times in told)
        ends = [total] * self.topology.size if clocks is None else clocks.tolist()
        busiest = max(self.waits, key=lambda k: self.waits[k]) if self.waits else None
        names = list(self.links)
        load = {hop: int(self.load[k]) for hop, k in self.links.items() if self.load[k]}
        return Simulated(
            max(ends, default=0.0), tuple(told), tuple(ends), load,
            None if busiest is None else names[busiest],
        )  # fmt: skip

    def _round(self, one: Round) -> tuple[float, npt.NDArray[np.float64]]:
        """Seconds of a round, and of each of its messages."""
        if (one.src >= self.topology.size).any() or (one.dst >= self.topology.size).any():
            raise CostError(
                f"ranks must be below the topology's {self.topology.size} GPUs, got "
                f"{max(one.src.max(), one.dst.max())}; make rounds for that many ranks"
            )
        flow, link = self._routes(one)
        capacity = np.array(self.capacity)
        load = np.zeros(len(capacity), np.int64)
        np.add.at(load, link, one.nbytes[flow])
        if len(self.load) < len(load):
            self.load = np.pad(self.load, (0, len(load) - len(self.load)))
        self.load += load * one.times
        found = self.known.get(one.key)
        if found is None:
            found = self.known[one.key] = self._time(one, flow, link, capacity, load)
        slow = load / capacity
        if len(slow) and slow.max() > 0:
            worst = int(slow.argmax())
            self.waits[worst] = self.waits.get(worst, 0.0) + slow[worst] * one.times
        return found

    def _time(
        self, one: Round, flow: npt.NDArray[np.int64], link: npt.NDArray[np.int64],
        capacity: npt.NDArray[np.float64], load: npt.NDArray[np.int64],
    ) -> tuple[float, npt.NDArray[np.float64]]:  # fmt: skip
        if self.sharing == "fair":
            bytes_ = fair_seconds(flow, link, capacity, one.nbytes.astype(float))
        else:
            bytes_ = np.zeros(len(one.src))
            slow = load[link] / capacity[link]
            if self.forwarding == "store":
                np.add.at(bytes_, flow, slow)
            else:
                np.maximum.at(bytes_, flow, slow)
        posted = np.bincount(one.src, minlength=self.topology.size)
        taken = np.bincount(one.dst, minlength=self.topology.size)
        added = np.bincount(one.dst, weights=one.adds, minlength=self.topology.size)
        most = int(max(posted.max(), taken.max()))
        whole = self.alpha * most + bytes_.max() + self.gamma * added.max()
        alone = self.alpha * np.maximum(posted[one.src], taken[one.dst])
        return float(whole), alone + bytes_ + self.gamma * added[one.dst]

    def _routes(self, one: Round) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        flow: list[int] = []
        link: list[int] = []
        ranks = self.topology.ranks
        for k, (a, b) in enumerate(zip(one.src.tolist(), one.dst.tolist(), strict=True)):
            for hop in self.topology.route(ranks[a], ranks[b]):
                if hop not in self.links:
                    self.links[hop] = len(self.links)
                    self.capacity.append(self.topology.capacity(hop))
                flow.append(k)
                link.append(self.links[hop])
        return np.array(flow, np.int64), np.array(link, np.int64)


def _advance(
    clocks: npt.NDArray[np.float64], one: Round, messages: npt.NDArray[np.float64]
) -> None:
    """Own clocks: a message begins when both ends are there, and both go on when it is done."""
    done = np.maximum(clocks[one.src], clocks[one.dst]) + messages
    before = clocks.copy()
    np.maximum.at(clocks, one.src, done)
    np.maximum.at(clocks, one.dst, done)
    assert (clocks >= before).all()
