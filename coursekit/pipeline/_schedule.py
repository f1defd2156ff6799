"""A schedule: for every rank its actions in order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ._action import Action
from ._errors import PipelineError


@dataclass(frozen=True, repr=False)
class PipelineSchedule:
    """For every rank its actions, in the order in which it does them.

    Stage s lies on rank ``s % ranks``: with two chunks a rank, rank 0 of 4 has stages 0 and 4.

    Attributes:
        orders: one tuple of actions a rank.
        stages: the stages of the whole pipeline, a multiple of the ranks.
        micro_batches: into how many a batch is cut.
        name: such as ``1f1b``, for titles.
    """

    orders: tuple[tuple[Action, ...], ...]
    stages: int
    micro_batches: int
    name: str = "own"

    @classmethod
    def of(
        cls,
        orders: Iterable[Iterable[Action | str | tuple[int, str, int]]],
        *,
        stages: int | None = None,
        name: str = "own",
    ) -> PipelineSchedule:
        """A schedule of your own.

        Args:
            orders: for every rank its actions: ``Action``, tuples ``(stage, phase, micro-batch)``,
                or written, such as ``"2F5"``.
            stages: all stages; as many as ranks when None.
            name: what figures call it.

        Raises:
            PipelineError: an action is none, or the ranks do not divide the stages. Whether the
                schedule can run, `check` tells.
        """
        told = tuple(tuple(_action(a) for a in order) for order in orders)
        count = len(told) if stages is None else stages
        if not told or count < 1 or count % len(told):
            raise PipelineError(
                f"the ranks must divide the stages, got {len(told)} ranks and {count} stages; give "
                "one order a rank, and as many stages on each"
            )
        last = max((a.micro_batch for order in told for a in order), default=-1)
        return cls(told, count, last + 1, name)

    @property
    def ranks(self) -> int:
        """How many ranks share the stages."""
        return len(self.orders)

    @property
    def chunks(self) -> int:
        """Stages on one rank."""
        return self.stages // self.ranks

    @property
    def splits(self) -> frozenset[tuple[int, int]]:
        """The pairs (stage, micro-batch) whose backward comes in two halves."""
        return frozenset(
            (a.stage, a.micro_batch) for order in self.orders for a in order if a.phase in "IW"
        )

    def place(self, stage: int) -> int:
        """The rank that has a stage."""
        return stage % self.ranks

    def needs(self, action: Action) -> list[Action]:
        """What must be done before an action, here or on a neighbour."""
        after = (action.stage + (action.phase in "BI"), action.micro_batch)
        return action.needs(self.stages, after in self.splits)

    def __str__(self) -> str:
        lines = [" ".join(map(str, order)) for order in self.orders]
        return "\n".join(f"rank {rank}: {line}" for rank, line in enumerate(lines))

    def __repr__(self) -> str:
        return (
            f"PipelineSchedule({self.name}: {self.ranks} ranks, {self.stages} stages, "
            f"{self.micro_batches} micro-batches)"
        )


def _action(told: Action | str | Sequence[object]) -> Action:
    try:
        made = Action.parse(told) if isinstance(told, str) else Action(*told)  # type: ignore[arg-type]
        return Action.parse(str(made))
    except (TypeError, ValueError) as error:
        tuples = f"an action is (stage, phase, micro-batch) such as (2, 'F', 5), got {told!r}"
        raise PipelineError(str(error) if isinstance(told, str) else tuples) from None
