"""ZeRO: data parallelism in which nobody keeps what others keep too.

Rajbhandari et al. 2020, arXiv:1910.02054. Stage 1 spreads the optimizer's states over the ranks,
stage 2 the gradients too, stage 3 the weights too. Units are the blocks of the model, and one for
all the rest; each is one flat tensor, as in PyTorch's first FSDP (Zhao et al. 2023,
arXiv:2304.11277).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from ._errors import ParallelError
from ._group import collectives as collectives_of
from ._group import group_of
from ._same import Unmoved, check_same, unique
from ._stages import Stages
from ._unit import Turns, Unit
from .tensor import TensorParallel


class Zero(nn.Module):
    """forward: the module's own, in stage 3 with each unit's weights gathered and freed again;
    backward: its own, from stage 2 on with each unit's gradients reduced to their owners; `step`:
    the optimizer on this rank's part, in stages 1 and 2 followed by an all-gather of the weights.

    Args:
        module: the same parameters on every rank; on the device where it stays.
        optimizer: makes an optimizer of the parameters that it is given, such as
            ``lambda p: torch.optim.AdamW(p, lr=1e-3)``. It must treat each element by itself: it
            sees a part of each parameter, flat.
        stage: 1, 2 or 3.
        group: a process group or one axis of a mesh; all ranks by default.
        collectives: ``own``: the course's ring reduce-scatter and all-gather; ``library``: the
            backend's. The library's are the faster ones on NCCL.
        unused: True: a parameter may be without a gradient on some ranks or all; see
            `DataParallel`.

    Raises:
        ParallelError: a choice does not exist, the ranks' parameters differ; later, the module was
            moved or cast, or a parameter has no gradient and `unused` is False.
    """

    def __init__(
        self,
        module: nn.Module,
        optimizer: Callable[[list[nn.Parameter]], Optimizer],
        *,
        stage: int = 1,
        group: Any = None,
        collectives: str = "own",
        unused: bool = False,
    ) -> None:
        super().__init__()
        if stage not in (1, 2, 3):
            raise ParallelError(
                f"stage must be 1, 2 or 3, got {stage!r}; stage 0 is plain data parallelism: "
                "Bucketed"
            )
        if any(isinstance(m, TensorParallel) and m.seam.sequence for m in module.modules()):
            raise ParallelError(
                "Zero must see whole gradients in backward, got sequence parallelism, which sums "
                "some of them afterwards; take Bucketed, or sequence=False"
            )
        pipe = next((m for m in module.modules() if isinstance(m, Stages)), None)
        # Autograd's hooks, on which stages 2 and 3 stand, do not see what a schedule puts off; and
        # stage 3 gathers in the order of one forward.
        if pipe is not None and stage > 1 and (stage == 3 or pipe.puts_off):
            raise ParallelError(
                f"stage {stage} needs one whole backward after each forward, got a "
                f"{type(pipe).__name__}; beside it take stage 1, with a pipeline's usual schedules "
                "also stage 2"
            )
        self.module, self.stage, self.unused = module, stage, unused
        self.group = group_of(group)
        self.wires = collectives_of(collectives, self.group)
        check_same(module, self.group)
        rank, size = self.group.rank(), self.group.size()
        owned = [
            (owner, [Unit(p, rank, size, stage) for p in params])
            for owner, params in _grouped(module)
        ]
        self.units = [unit for _, units in owned for unit in units]
        for place, (owner, units) in enumerate(owned):
            for unit in units:
                unit.place = place + (owner is not module and owned[0][0] is not module)
        rest = len(owned[0][1]) if owned and owned[0][0] is module else 0
        backward = self.units[:rest] + self.units[rest:][::-1]
        self._turns = (
            Turns(self.units, self.wires),
            Turns(backward, self.wires, self._reduce_behind),
        )
        if stage == 3:
            for owner, units in owned:
                self._gather_when_used(owner, units)
        self._unmoved = Unmoved(module)
        self.trained = [u for u in self.units if u.trained]
        pieces = [piece for u in self.trained for piece in u.pieces]
        self.optimizer = optimizer(pieces)
        self._used: set[int] = set()
        self._turn = 0
        self._in_backward = False
        for unit in self.trained:
            for p in unit.params:
                p.register_post_accumulate_grad_hook(self._arrival(unit))  # type: ignore[no-untyped-call]
        self._await_all()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        self._unmoved.check(self.module)
        out = self.module(*args, **kwargs)
        if self.stage == 3:
            self._turns[0].finish()
        return out

    def step(self) -> None:
        """After the backward, or several whose gradients add up: update the weights."""
        if self.stage == 1:
            for unit in self.trained:
                # What a pipeline's schedule puts off, autograd's hooks have not seen.
                self._used |= {id(p) for p in unit.params if p.grad is not None}
                unit.reduce(self.wires)
        problem = self._learn_who_was_used()
        for unit in self.trained:
            if unit.grads is not None:
                unit.give_gradients(self._used)
        self.optimizer.step()
        for unit in self.trained:
            unit.forget_gradients()
            if self.stage < 3:
                self.wires.all_gather(unit.full)
        self._used.clear()
        if problem:
            # Only now: the other ranks had to have their collectives.
            raise problem

    def full_state(self) -> dict[str, Tensor]:
        """All weights, whole, by the module's names: a copy. Every rank of the group calls it."""
        for unit in self.units:
            unit.open(self.wires)
        state = {name: p.detach().clone() for name, p in self.module.state_dict().items()}
        if self.stage == 3:
            for unit in self.units:
                unit.close()
        return state

    def memory(self) -> dict[str, int]:
        """Bytes that this rank holds now: ``weights``, ``gradients``, ``optimizer``.

        Counted from the tensors that exist; what an optimizer keeps in single numbers, such as
        Adam's step, and the activations are left out.
        """
        weights, gradients = zip(*(unit.nbytes() for unit in self.units), strict=True)
        states = [t for state in self.optimizer.state.values() for t in state.values()]
        tensors = [t.nbytes for t in states if isinstance(t, Tensor) and t.dim()]
        return {
            "weights": sum(weights),
            "gradients": sum(gradients),
            "optimizer": sum(tensors),
        }

    def _arrival(self, unit: Unit) -> Any:
        def hook(parameter: nn.Parameter) -> None:
            self._used.add(id(parameter))
            unit.waits_for.discard(id(parameter))
            if self.stage > 1:
                self._await_end()
                self._reduce_ready()

        return hook

    def _reduce_ready(self) -> None:
        """Reduce complete units in order: all ranks must call their collectives in one order."""
        while self._turn < len(self.trained) and not self._at(self._turn).waits_for:
            self._at(self._turn).reduce(self.wires)
            self._turn += 1

    def _reduce_behind(self, unit: Unit) -> None:
        """Reduce what backward has left behind, also where this rank did not use it."""
        for later in self.trained:
            if 0 < unit.place < later.place:
                later.waits_for.clear()
        self._reduce_ready()

    def _at(self, turn: int) -> Unit:
        return self.trained[len(self.trained) - 1 - turn]

    def _await_end(self) -> None:
        """Have the engine call us when this backward has ended, once."""
        if not self._in_backward:
            self._in_backward = True
            torch.autograd.Variable._execution_engine.queue_callback(self._end)

    def _end(self) -> None:
        """The backward has ended: reduce what unused parameters held up, free what is open."""
        if self.stage == 3:
            self._turns[1].finish()
        for unit in self.trained:
            unit.waits_for.clear()
        self._reduce_ready()
        for unit in self.trained:
            if any(p.grad is not None for p in unit.params):  # Used again after its turn.
                unit.reduce(self.wires)
        self._await_all()
        if self.stage == 3:
            for unit in self.units:
                unit.close()

    def _await_all(self) -> None:
        self._turn, self._in_backward = 0, False
        for unit in self.trained:
            unit.waits_for = {id(p) for p in unit.params}

    def _gather_when_used(self, owner: nn.Module, units: list[Unit]) -> None:
        """Stage 3: open before a module's forward and backward, close after."""

        def open_(way: int) -> None:
            for unit in units:
                self._turns[way].open(unit)

        def open_in_backward(_: Tensor) -> None:
            self._await_end()
            open_(1)

        def close(*_: Any) -> None:
            for unit in units:
                unit.close()

        def before(_: nn.Module, inputs: Any) -> None:
            open_(0)
            for tensor in _differentiable(inputs):
                tensor.register_hook(close)  # type: ignore[no-untyped-call]

        def after(_: nn.Module, inputs: Any, outputs: Any) -> None:
            close()
            came = {id(tensor) for tensor in _differentiable(inputs)}
            for tensor in _differentiable(outputs):
                if id(tensor) not in came:
                    tensor.register_hook(open_in_backward)  # type: ignore[no-untyped-call]

        owner.register_forward_pre_hook(before)
        owner.register_forward_hook(after)

    def _learn_who_was_used(self) -> ParallelError | None:
        """With `unused`, ask all ranks; without, a parameter that was not used is a mistake."""
        params = [p for unit in self.trained for p in unit.params]
        if self.unused and params:
            told = [id(p) in self._used for p in params]
            flags = torch.tensor(told, dtype=torch.uint8, device=self.trained[0].shard.device)
            dist.all_reduce(flags, dist.ReduceOp.MAX, group=self.group)
            self._used = {id(p) for p, used in zip(params, flags.tolist(), strict=True) if used}
            return None
        missing = [p for p in params if id(p) not in self._used]
        if not missing:
            return None
        self._used = {id(p) for p in params}
        name = next(n for n, p in self.module.named_parameters() if p is missing[0])
        return ParallelError(
            f"every parameter must get a gradient in a step, got none for {name} ({len(missing)} "
            f"in all) on rank {self.group.rank()}; give unused=True, or freeze what is never used "
            "before you wrap the module"
        )


def _grouped(module: nn.Module) -> Iterator[tuple[nn.Module, list[list[nn.Parameter]]]]:
    """Modules and their own parameters: the blocks of every ModuleList, and the rest before them.

    Trained and frozen parameters, and different dtypes, make flat tensors of their own.
    """
    # A module can be reached in two ways, as a pipeline's is.
    blocks = list({id(block): block for block in _blocks(module)}.values())
    inside = {id(p) for block in blocks for p in block.parameters()}
    rest = [p for p in unique(module.parameters()) if id(p) not in inside]
    for owner, params in [(module, rest), *((b, unique(b.parameters())) for b in blocks)]:
        kinds: dict[Any, list[nn.Parameter]] = {}
        for p in params:
            kinds.setdefault((p.requires_grad, p.dtype), []).append(p)
        if kinds:
            yield owner, list(kinds.values())


def _blocks(module: nn.Module) -> Iterator[nn.Module]:
    """The members of every ModuleList that is not inside another one."""
    for child in module.children():
        if isinstance(child, nn.ModuleList):
            yield from child
        else:
            yield from _blocks(child)


def _differentiable(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        if value.requires_grad:
            yield value
    elif isinstance(value, dict):
        yield from _differentiable(list(value.values()))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _differentiable(each)
