"""Data parallelism: every rank has the whole model and a part of the batch.

Three ways to make the gradients the mean over ranks: `Naive`, `Flat`, `Bucketed`. The last is what
torch's DistributedDataParallel does (Li et al. 2020, arXiv:2006.15704), in Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from coursekit.measure import Clock

from ._errors import ParallelError
from ._group import group_of
from ._same import Unmoved, check_same, unique

MIB = 1 << 20


class DataParallel(nn.Module):
    """forward: the module's own; backward: its own, and `finish` makes the gradients the mean.

    Args:
        module: the same parameters on every rank; on the device where it stays.
        group: a process group or one axis of a mesh; all ranks by default.
        unused: True: a parameter may be without a gradient on some ranks or all. It costs one
            all-reduce of a byte for each parameter; one that no rank used keeps ``grad=None``.

    Raises:
        ParallelError: the ranks' parameters differ; later, the module was moved or cast, or a
            parameter has no gradient and `unused` is False.
    """

    def __init__(self, module: nn.Module, group: Any = None, *, unused: bool = False) -> None:
        super().__init__()
        self.module = module
        self.group = group_of(group)
        self.size = self.group.size()
        self.unused = unused
        self.parameters_to_sync = [p for p in unique(module.parameters()) if p.requires_grad]
        self._unmoved = Unmoved(module)
        check_same(module, self.group)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        self._unmoved.check(self.module)
        return self.module(*args, **kwargs)

    def finish(self) -> None:
        """Call it after the last backward of a step: then every gradient is the ranks' mean."""
        missing = [p for p in self.parameters_to_sync if p.grad is None]
        for p in missing:
            p.grad = torch.zeros_like(p)
        self._reduce()
        if self.unused:
            self._forget_unused(missing)
        elif missing:
            # Only now: the other ranks had to have their collectives.
            raise ParallelError(
                f"every parameter must get a gradient in a step, got none for "
                f"{self._name(missing[0])} ({len(missing)} in all) on rank {self.group.rank()}; "
                "give unused=True, or freeze what is never used before you wrap the module"
            )

    def _reduce(self) -> None:
        """Make every gradient the mean."""
        raise NotImplementedError

    def _forget_unused(self, missing: list[nn.Parameter]) -> None:
        if not self.parameters_to_sync:
            return
        absent = {id(p) for p in missing}
        told = [id(p) not in absent for p in self.parameters_to_sync]
        used = torch.tensor(told, dtype=torch.uint8, device=self.parameters_to_sync[0].device)
        dist.all_reduce(used, dist.ReduceOp.MAX, group=self.group)
        for p, somewhere in zip(self.parameters_to_sync, used.tolist(), strict=True):
            if not somewhere:
                p.grad = None

    def _name(self, parameter: nn.Parameter) -> str:
        return next(name for name, p in self.module.named_parameters() if p is parameter)


class Naive(DataParallel):
    """forward: nothing new; backward: nothing new; finish: one all-reduce for every parameter."""

    def _reduce(self) -> None:
        for p in self.parameters_to_sync:
            assert p.grad is not None
            dist.all_reduce(p.grad, group=self.group)
            p.grad /= self.size


class Flat(DataParallel):
    """forward: nothing new; backward: nothing new; finish: one all-reduce for all gradients."""

    def _reduce(self) -> None:
        grads = [p.grad for p in self.parameters_to_sync if p.grad is not None]
        for same in _by_dtype(grads):
            whole = torch.cat([g.flatten() for g in same])
            dist.all_reduce(whole, group=self.group)
            _spread(whole / self.size, same)


class Bucketed(DataParallel):
    """forward: nothing new; backward: full buckets leave while the rest is computed; finish: waits.

    Args:
        bucket_mib: gradients that travel together, in MiB; the first bucket holds at most
            `first_mib`, so that something leaves early. torch's defaults.
        compress: a dtype such as ``torch.bfloat16``: buckets travel in it, half the bytes of fp32,
            and the sums are rounded to it.

    `clock` has a span for each bucket, from its launch to its end; `clock.clear()` forgets them.
    """

    def __init__(
        self,
        module: nn.Module,
        group: Any = None,
        *,
        bucket_mib: float = 25,
        first_mib: float = 1,
        compress: torch.dtype | None = None,
        unused: bool = False,
    ) -> None:
        super().__init__(module, group, unused=unused)
        if min(bucket_mib, first_mib) <= 0:
            raise ParallelError(
                f"buckets must be larger than 0 MiB, got {bucket_mib} and {first_mib}; try 25 and 1"
            )
        self.compress = compress
        # Backward comes to the last parameters first.
        backward = self.parameters_to_sync[::-1]
        self.buckets = [
            _Bucket(number, params, compress)
            for number, params in enumerate(_filled(backward, bucket_mib, first_mib))
        ]
        self.clock = Clock(self.group.rank())
        self._next = 0
        self._syncing = True
        for bucket in self.buckets:
            for p in bucket.params:
                p.register_post_accumulate_grad_hook(self._arrival(bucket))  # type: ignore[no-untyped-call]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self._next and self._syncing:
            raise _unfinished()
        return super().forward(*args, **kwargs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backwards in this block only add up; the next one outside sends the sum."""
        self._syncing, before = False, self._syncing
        try:
            yield
        finally:
            self._syncing = before

    def _arrival(self, bucket: _Bucket) -> Any:
        def hook(parameter: nn.Parameter) -> None:
            if self._syncing:
                if bucket.work is not None:
                    raise _unfinished()
                bucket.waits_for.discard(id(parameter))
                self._launch_ready()

        return hook

    def _launch_ready(self) -> None:
        """Launch full buckets in order: every rank must issue its collectives in the same order."""
        while self._next < len(self.buckets) and not self.buckets[self._next].waits_for:
            self.buckets[self._next].launch(self.group, self.clock)
            self._next += 1

    def _reduce(self) -> None:
        for bucket in self.buckets[self._next :]:
            bucket.waits_for.clear()
        self._launch_ready()
        for bucket in self.buckets:
            bucket.land()
        self._next = 0


def _unfinished() -> ParallelError:
    return ParallelError(
        "finish() must follow the backward whose gradients travel, got more work before it; call "
        "finish() before the next step, and run all but the last micro-batch inside no_sync()"
    )


class _Bucket:
    """Gradients that travel in one all-reduce."""

    def __init__(self, number: int, params: list[nn.Parameter], dtype: torch.dtype | None) -> None:
        self.number, self.params = number, params
        self.dtype = dtype or params[0].dtype
        self.waits_for = {id(p) for p in params}
        self.memory: Tensor | None = None
        self.work: Any = None

    def launch(self, group: dist.ProcessGroup, clock: Clock) -> None:
        grads = [p.grad for p in self.params if p.grad is not None]
        if self.memory is None:
            length = sum(p.numel() for p in self.params)
            self.memory = self.params[0].new_empty(length, dtype=self.dtype)
        torch.cat([g.flatten() for g in grads], out=self.memory)
        # Before the sum, so that a narrow dtype does not overflow.
        self.memory /= group.size()
        start = clock.now
        self.work = dist.all_reduce(self.memory, group=group, async_op=True)
        told = f"bucket {self.number}"
        self.work.get_future().add_done_callback(
            lambda _: clock.add("communicate", "all_reduce", start, clock.now, told)
        )

    def land(self) -> None:
        assert self.memory is not None
        self.work.wait()
        _spread(self.memory, [p.grad for p in self.params if p.grad is not None])
        self.waits_for = {id(p) for p in self.params}
        self.work = None


def _filled(
    params: list[nn.Parameter], bucket_mib: float, first_mib: float
) -> Iterator[list[nn.Parameter]]:
    """Cut a list of parameters into buckets: one ends where the next parameter has no room."""
    limit, held, bucket = first_mib * MIB, 0, list[nn.Parameter]()
    for p in params:
        if bucket and (held + p.nbytes > limit or p.dtype != bucket[0].dtype):
            yield bucket
            limit, held, bucket = bucket_mib * MIB, 0, []
        bucket.append(p)
        held += p.nbytes
    if bucket:
        yield bucket


def _by_dtype(grads: list[Tensor]) -> list[list[Tensor]]:
    kinds: dict[torch.dtype, list[Tensor]] = {}
    for grad in grads:
        kinds.setdefault(grad.dtype, []).append(grad)
    return list(kinds.values())


def _spread(whole: Tensor, grads: list[Tensor]) -> None:
    """Copy a flat tensor back into the tensors that it was made of."""
    pieces = torch.split(whole, [g.numel() for g in grads])
    torch._foreach_copy_(grads, [p.view_as(g) for p, g in zip(pieces, grads, strict=True)])
