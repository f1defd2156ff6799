"""Pipeline parallelism: the ranks work on different micro-batches at the same time.

What a rank does, and in which order, is a `coursekit.pipeline.PipelineSchedule`: this module only
does it. GPipe, arXiv:1811.06965; 1F1B and interleaving, arXiv:2104.04473; zero bubble,
arXiv:2401.10241.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from coursekit.comm import connect
from coursekit.comm._comm import Request
from coursekit.measure import Clock, phase
from coursekit.pipeline import Action, PipelineSchedule, Post, Step, steps

from ._errors import ParallelError
from ._later import Store, defer
from ._stages import Stages
from .gpt import GPT
from .tensor import TensorParallel

_KINDS = {"F": "forward", "B": "backward", "I": "backward", "W": "weight"}


class Pipeline(Stages):
    """forward: each micro-batch goes from stage to stage; backward: its gradient comes back; both
    in the schedule's order, and messages travel while the ranks compute.

    Args:
        module: a `GPT`, or one in `TensorParallel`, with the same parameters on every rank; it is
            cut in place, and what belongs to others is dropped.
        schedule: from `coursekit.pipeline.build`, or one of your own.
        group: a process group or one axis of a mesh; all ranks by default.

    Attributes:
        clock: when this rank computed and waited, since the last `clock.clear()`.
        peak: the most stage inputs and outputs held for backward at a time in the last step.

    Raises:
        ParallelError: the schedule is for another number of ranks, there are more stages than
            blocks, or the ranks' parameters differ.
        PipelineError: the schedule cannot run.
    """

    def __init__(
        self, module: GPT | TensorParallel, schedule: PipelineSchedule, group: Any = None
    ) -> None:
        planned = steps(schedule)
        super().__init__(module, group, schedule.chunks)
        if schedule.ranks != self.size:
            raise ParallelError(
                f"the schedule must be for the group's {self.size} ranks, got one for "
                f"{schedule.ranks}; build('{schedule.name}', {self.size}, ...)"
            )
        self.schedule = schedule
        self.plan = planned[self.rank]
        self.clock = Clock(self.rank)
        self.store = Store()
        self.puts_off = bool(schedule.splits)
        if self.puts_off:
            defer(self.module, self.store)
        self.peak = 0

    def forward_backward(self, ids: Tensor, targets: Tensor) -> Tensor | None:
        """One step's forward and backward; gradients are those of the mean over the whole batch.

        Args:
            ids, targets: the same on every rank, of shape (batch, sequence); the micro-batches are
                equal parts of the batch.

        Returns:
            The loss on the rank of the last stage, detached; None on the others.

        Raises:
            ParallelError: the micro-batches do not divide the batch.
        """
        m = self.schedule.micro_batches
        if len(ids) % m:
            raise ParallelError(
                f"{m} micro-batches must divide the batch, got {len(ids)} rows; give "
                f"{-(-len(ids) // m) * m}"
            )
        run = _Run(self, ids.chunk(m), targets.chunk(m))
        for step in self.plan:
            run.do(step)
        run.end()
        self.peak = run.peak
        return torch.stack(run.losses).mean() if run.losses else None


class _Run:
    """One step: what is on its way, and what is held for backward."""

    def __init__(
        self, pipe: Pipeline, ids: tuple[Tensor, ...], targets: tuple[Tensor, ...]
    ) -> None:
        self.pipe, self.ids, self.targets = pipe, ids, targets
        self.comm = connect(pipe.group)
        self.like = pipe.like(ids[0])
        self.came: dict[Action, tuple[Request, Tensor]] = {}
        self.sent: dict[Action, tuple[Request, Tensor]] = {}
        self.made: dict[Action, Tensor] = {}
        self.held: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        self.losses: list[Tensor] = []
        self.peak = 0

    def do(self, step: Step) -> None:
        """Begin the messages, do the action, begin what it sends."""
        action = step.action
        kind = _KINDS[action.phase]
        self._begin(step.before)
        {"F": self._forward, "B": self._backward, "I": self._backward, "W": self._weights}[
            action.phase
        ](action, kind)
        self._begin(step.after)

    def end(self) -> None:
        """Wait until all that was sent has left."""
        for request, _ in self.sent.values():
            request.wait()

    def _begin(self, posts: tuple[Post, ...]) -> None:
        for post in posts:
            with phase(_KINDS[post.source.phase]):
                self._post(post)

    def _post(self, post: Post) -> None:
        if post.kind == "send":
            what = self.made.pop(post.source)
            self.sent[post.source] = self.comm.isend(what, post.peer), what
        else:
            into = torch.empty_like(self.like)
            self.came[post.source] = self.comm.irecv(into, post.peer), into

    def _get(self, source: Action) -> Tensor:
        """What another stage has made: on this rank, or waited for."""
        if source not in self.came:
            return self.made.pop(source)
        request, into = self.came.pop(source)
        with self.pipe.clock.span("communicate", "wait", str(source)):
            request.wait()
        return into

    def _forward(self, action: Action, kind: str) -> None:
        stage, _, k = action
        first = stage == 0
        x = self.ids[k] if first else self._get(action._replace(stage=stage - 1)).requires_grad_()
        with self.pipe.clock.span("compute", kind, str(action)):
            out = self.pipe(stage, x, self.targets[k])
        self.held[stage, k] = x, out
        self.peak = max(self.peak, len(self.held))
        if stage == self.pipe.schedule.stages - 1:
            self.losses.append(out.detach())
        else:
            self.made[action] = out.detach().contiguous()

    def _backward(self, action: Action, kind: str) -> None:
        stage, split, k = action
        x, out = self.held[stage, k]
        if stage == self.pipe.schedule.stages - 1:
            grad = torch.full_like(out, 1 / self.pipe.schedule.micro_batches)
        else:
            (need,) = (n for n in self.pipe.schedule.needs(action) if n.stage != stage)
            grad = self._get(need)
        put_off = self.pipe.store.collecting((stage, k)) if split == "I" else nullcontext()
        with self.pipe.clock.span("compute", kind, str(action)), put_off:
            if out.requires_grad:
                out.backward(grad)  # type: ignore[no-untyped-call]
        if stage:
            self.made[action] = torch.zeros_like(x) if x.grad is None else x.grad.contiguous()
        if split == "B":
            self._drop(stage, k)

    def _weights(self, action: Action, kind: str) -> None:
        with self.pipe.clock.span("compute", kind, str(action)):
            self.pipe.store.run((action.stage, action.micro_batch))
        self._drop(action.stage, action.micro_batch)

    def _drop(self, stage: int, k: int) -> None:
        del self.held[stage, k]
        # Its gradient has come back, so what was sent has arrived: this does not wait.
        if gone := self.sent.pop(Action(stage, "F", k), None):
            gone[0].wait()
