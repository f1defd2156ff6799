"""One piece of work: a stage does one phase of one micro-batch."""

from __future__ import annotations

import re
from typing import NamedTuple

_WRITTEN = re.compile(r"(\d+)([FBIW])(\d+)")


class Action(NamedTuple):
    """A stage does one phase of one micro-batch; written ``2F5``, as torch's pipelining does.

    `phase` is ``F`` (forward), ``B`` (the whole backward), or backward in two halves: ``I`` (the
    gradient of the input, for which the stage before waits) and ``W`` (the gradients of the
    weights, for which nobody waits before the optimizer). Stages and micro-batches count from 0.
    """

    stage: int
    phase: str
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.phase}{self.micro_batch}"

    @classmethod
    def parse(cls, written: str) -> Action:
        """The action that is written so, such as ``2F5``.

        Raises:
            ValueError: it is not written so.
        """
        found = _WRITTEN.fullmatch(written.strip())
        if not found:
            raise ValueError(
                "an action is written as stage, F, B, I or W, micro-batch, such as 2F5; got "
                f"{written!r}"
            )
        return cls(int(found[1]), found[2], int(found[3]))

    @property
    def backward(self) -> bool:
        """Whether the stage before waits for it."""
        return self.phase in "BI"

    def needs(self, stages: int, split: bool) -> list[Action]:
        """What must be done before: on this stage, and on the neighbour that hands over.

        `split` says that this micro-batch's backward comes in two halves.
        """
        stage, phase, micro_batch = self
        back = "I" if split else "B"
        if phase == "F":
            return [Action(stage - 1, "F", micro_batch)] if stage else []
        if phase == "W":
            return [Action(stage, "I", micro_batch)]
        own = [Action(stage, "F", micro_batch)]
        return [*own, Action(stage + 1, back, micro_batch)] if stage < stages - 1 else own
