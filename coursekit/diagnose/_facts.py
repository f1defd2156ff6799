"""All that was read, as the checks take it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from coursekit.diagnose._calls import Calls
from coursekit.diagnose._event import Event, Line

if TYPE_CHECKING:
    from coursekit.diagnose._recorder import Dump

# Lines of proof that are kept for one verdict, and events of one kind from one process.
PROOFS = 12
EVENTS = 400


@dataclass
class Hit:
    """A verdict that lines gave."""

    lines: list[Line] = field(default_factory=list)
    ranks: set[int] = field(default_factory=set)
    processes: set[str] = field(default_factory=set)
    fields: dict[str, Any] = field(default_factory=dict)
    count: int = 0


@dataclass
class Facts:
    """What all sources say together.

    Parameters
    ----------
    events : dict
        Events by kind, in the order of reading.
    hits : dict
        What rules found in single lines, by verdict.
    calls : Calls
        The collectives that NCCL logged, per process and communicator.
    dumps : list
        Flight recorders' dumps.
    tables : dict
        Lines of topology tables, by source.
    """

    gpu: str = ""
    lines: int = 0
    bytes: int = 0
    sources: list[str] = field(default_factory=list)
    events: dict[str, list[Event]] = field(default_factory=lambda: defaultdict(list))
    hits: dict[str, Hit] = field(default_factory=dict)
    calls: Calls = field(default_factory=Calls)
    dumps: list[Dump] = field(default_factory=list)
    tables: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    refused: list[Line] = field(default_factory=list)
    _ranks: dict[str, int] = field(default_factory=dict)
    _kept: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))

    def add(self, event: Event) -> None:
        key = (event.kind, event.process)
        self._kept[key] += 1
        if self._kept[key] <= EVENTS:
            self.events[event.kind].append(event)

    def hit(self, rule: str, event: Event, fields: dict[str, Any]) -> None:
        hit = self.hits.setdefault(rule, Hit())
        hit.count += 1
        if len(hit.lines) < PROOFS:
            hit.lines.append(event.proof)
        if event.rank is not None:
            hit.ranks.add(event.rank)
        elif len(hit.processes) < 100_000:
            hit.processes.add(event.process)
        for name, value in fields.items():
            hit.fields.setdefault(name, value)

    def of(self, *kinds: str) -> list[Event]:
        """Events of these kinds, kind after kind."""
        return [event for kind in kinds for event in self.events.get(kind, ())]

    # -- who is who

    def knows(self, process: str, rank: int) -> None:
        """A process's rank, as its first and largest communicator tells."""
        self._ranks.setdefault(process, rank)

    def rank_of(self, event: Event) -> int | None:
        return event.rank if event.rank is not None else self._ranks.get(event.process)

    def rank_of_process(self, process: str) -> int | None:
        return self._ranks.get(process)

    def ranks(self, events: Iterable[Event]) -> list[int]:
        return sorted({r for e in events if (r := self.rank_of(e)) is not None})

    @property
    def hosts(self) -> list[str]:
        """Hosts that NCCL's lines name."""
        return sorted({e.host for e in self.of("nccl.init", "nccl.using", "nccl.channel", "nccl")
                       if e.host})  # fmt: skip

    @property
    def world(self) -> int | None:
        """How many ranks the job has, where something says so."""
        sizes = [e.fields["nranks"] for e in self.of("nccl.init")]
        sizes += [e.fields["world"] for e in self.of("torch.world")]
        sizes += [d.world for d in self.dumps if d.world]
        return max(sizes, default=None)

    @property
    def nodes(self) -> int:
        """How many hosts the job has, at least."""
        told: list[int] = [e.fields["nodes"] for e in self.of("nccl.size")]
        return max([*told, len(self.hosts), 1])

    @property
    def version(self) -> tuple[int, ...]:
        """NCCL's version, empty where it is not printed."""
        for event in self.of("nccl.version"):
            return tuple(int(p) for p in event.fields["version"].split(".")[:3])
        return ()
