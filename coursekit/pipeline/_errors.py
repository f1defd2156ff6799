"""What is wrong with a schedule."""

from __future__ import annotations

from ._action import Action


class PipelineError(ValueError):
    """A schedule that cannot be run: the rule, what was got, the next step.

    Attributes:
        broken: the action that cannot run, and the one that it needs first; None where the rule
            is another one.
        cycle: ranks that wait for each other, each for the next and the last for the first.
    """

    def __init__(
        self,
        message: str,
        *,
        broken: tuple[Action, Action] | None = None,
        cycle: tuple[int, ...] = (),
    ) -> None:
        super().__init__(message)
        self.broken, self.cycle = broken, cycle
