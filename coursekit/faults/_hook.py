"""On a rank: the one place that all of Python's calls to a process group go through."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ._errors import InjectedError
from ._fault import LASTING, Fault
from ._put import Nothing, Other, before_the_call

# Methods of torch's ProcessGroup, old and new names, and what programs call them.
_NAMES = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce_coalesced",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "allgather": "all_gather",
    "_allgather_base": "all_gather_into_tensor",
    "all_gather_single": "all_gather_into_tensor",
    "allgather_coalesced": "all_gather_coalesced",
    "allgather_into_tensor_coalesced": "all_gather_coalesced",
    "all_gather_single_coalesced": "all_gather_coalesced",
    "gather": "gather",
    "scatter": "scatter",
    "reduce_scatter": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "reduce_scatter_single": "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_coalesced",
    "reduce_scatter_single_coalesced": "reduce_scatter_coalesced",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all_single",
    "all_to_all_single": "all_to_all_single",
    "barrier": "barrier",
    "send": "send",
    "recv": "recv",
    "recv_anysource": "recv",
}
_TO_A_PEER = ("send", "recv")


def rank_here() -> int:
    """This process's rank in the default group."""
    import torch.distributed as dist

    return int(dist.get_rank())


def install(faults: tuple[Fault, ...]) -> None:
    """Put faults below torch's names; every rank calls it, for some need a group."""
    global _installed
    import torch.distributed as dist

    rank = rank_here()
    elsewhere = None
    for fault in faults:
        if fault.kind == "wrong_group":
            pair = dist.new_group([fault.rank, (fault.rank + 1) % dist.get_world_size()])
            elsewhere = pair if fault.rank == rank else elsewhere
    mine = [f for f in faults if f.rank == rank and f.kind != "full_shared_memory"]
    if mine:
        _installed = _Hook(mine, elsewhere)
        _installed.put()


def remove() -> None:
    """Take everything back."""
    global _installed
    if _installed is not None:
        _installed.take_back()
    _installed = None


@dataclass
class _Issue:
    """A call on its way: what the program asked of which group."""

    name: str
    call: Callable[..., Any]
    group: Any
    args: tuple[Any, ...]
    options: dict[str, Any]

    def make(self) -> Any:
        return self.call(self.group, *self.args, **self.options)

    def other(self, args: tuple[Any, ...] | None = None, group: Any = None) -> Other:
        """Make it with other arguments or in another group."""
        self.args, self.group = args or self.args, group or self.group
        tensors = _tensors(self.args)
        return Other(self.make(), self.name, self.group, next(iter(tensors), None), self._peer())

    def _peer(self) -> int | None:
        import torch.distributed as dist

        if self.name not in _TO_A_PEER or len(self.args) < 3:
            return None
        return int(dist.get_global_rank(self.group, self.args[1]))


@dataclass
class _Both:
    """Two calls that were made in each other's place."""

    works: tuple[Any, ...]

    def wait(self, *timeout: Any) -> bool:
        for work in self.works:
            work.wait(*timeout)
        return True

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self.works)


@dataclass
class _Hook:
    faults: list[Fault]
    elsewhere: Any
    counts: dict[int, int] = field(default_factory=dict)
    held: _Issue | None = None
    originals: dict[str, Any] = field(default_factory=dict)
    thread: int = field(default_factory=threading.get_ident)

    def put(self) -> None:
        import torch.distributed as dist

        group: Any = dist.ProcessGroup
        for method, name in _NAMES.items():
            if method in vars(group):
                # The raw attribute: what getattr gives no longer binds when it is set back.
                self.originals[method] = vars(group)[method]
                setattr(group, method, self._hooked(getattr(group, method), name))

    def take_back(self) -> None:
        import torch.distributed as dist

        for method, original in self.originals.items():
            setattr(dist.ProcessGroup, method, original)

    def _hooked(self, call: Callable[..., Any], name: str) -> Callable[..., Any]:
        def issued(group: Any, *args: Any, **options: Any) -> Any:
            if threading.get_ident() != self.thread:
                return call(group, *args, **options)
            return self._pass(_Issue(name, call, group, args, options))

        return issued

    def _pass(self, issue: _Issue) -> Any:
        if self.held is not None:
            return self._swap(issue)
        for number, fault in enumerate(self.faults):
            if fault.op is not None and fault.op != issue.name:
                continue
            at = self.counts[number] = self.counts.get(number, 0) + 1
            if at == fault.nth or (at > fault.nth and fault.kind in LASTING):
                return getattr(self, f"_{fault.kind}")(issue, fault)
        return issue.make()

    # -- one method for each kind of fault ------------------------------------

    def _skip(self, issue: _Issue, fault: Fault) -> Any:
        return Nothing()

    _uneven_data = _skip

    def _wrong_order(self, issue: _Issue, fault: Fault) -> Any:
        self.held = issue
        return Nothing()

    def _swap(self, issue: _Issue) -> Any:
        late, self.held = self.held, None
        assert late is not None
        early = issue.other()
        return _Both((early, late.other()))

    def _wrong_size(self, issue: _Issue, fault: Fault) -> Any:
        return issue.other(_each(issue.args, lambda t: t.new_zeros(2 * t.numel())))

    def _wrong_dtype(self, issue: _Issue, fault: Fault) -> Any:
        import torch

        dtype = getattr(torch, fault.dtype)
        return issue.other(_each(issue.args, lambda t: t.to(dtype)))

    def _wrong_group(self, issue: _Issue, fault: Fault) -> Any:
        return issue.other(group=self.elsewhere)

    def _crash(self, issue: _Issue, fault: Fault) -> Any:
        raise InjectedError(f"rank {fault.rank} crashes in its {issue.name}, as it was asked to")

    def _kill(self, issue: _Issue, fault: Fault) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)
        return Nothing()

    def _stop(self, issue: _Issue, fault: Fault) -> Any:
        os.kill(os.getpid(), signal.SIGSTOP)
        return issue.make()

    def _straggler(self, issue: _Issue, fault: Fault) -> Any:
        before_the_call(fault.seconds)
        return issue.make()


_installed: _Hook | None = None


def _each(value: Any, change: Callable[[Any], Any]) -> Any:
    """The same nested lists with every tensor changed."""
    if hasattr(value, "numel"):
        return change(value)
    if isinstance(value, list | tuple):
        return type(value)(_each(v, change) for v in value)
    return value


def _tensors(value: Any) -> list[Any]:
    if hasattr(value, "numel"):
        return [value]
    if isinstance(value, list | tuple):
        return [t for v in value for t in _tensors(v)]
    return []
