"""Parts of the player: amounts in words, places and colours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from coursekit.i18n import text
from coursekit.schedule import Message, Schedule, ScheduleError, WrongSchedule, contract, prove
from coursekit.show._template import BAD, GOOD, INK, PALETTE

MOST_BANDS = 8
GROUP_GAP = 0.5
EMPTY = "rgba(127, 134, 143, 0.16)"
# From one contribution to all: for ranks too many to have a colour each.
SCALE = ("#c6d8f2", "#4484d6", "#173a6b")


@dataclass(frozen=True)
class Amount:
    """How much a chunk is: elements times bytes, or just chunks."""

    lengths: Sequence[int] | None
    itemsize: int

    def of(self, chunks: Sequence[int]) -> int:
        """Of some chunk numbers of the buffer."""
        if self.lengths is None:
            return len(chunks)
        return sum(self.lengths[c % len(self.lengths)] for c in chunks) * self.itemsize

    def words(self, amount: int) -> str:
        """As a learner reads it."""
        if self.lengths is not None:
            return human(amount)
        return text("player.chunk") if amount == 1 else text("player.chunks", n=amount)


def human(amount: float) -> str:
    """Bytes in units of 1024, short."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            break
        amount /= 1024
    whole = amount >= 100 or amount == int(amount)
    return f"{amount:.0f} {unit}" if whole else f"{amount:.1f} {unit}"


def by_step(schedule: Schedule) -> list[list[Message]]:
    """The messages of each step, without moves in memory."""
    steps: list[list[Message]] = [[] for _ in range(schedule.step_count)]
    for message in schedule.messages():
        if message.src != message.dst:
            steps[message.step].append(message)
    return steps


def columns(schedule: Schedule) -> list[float]:
    """Left edges of the chunks; a gap before the output and before scratch."""
    ends = schedule.chunks * (2 if schedule.output else 1)
    lefts = []
    for slot in range(schedule.slots):
        gaps = (slot >= schedule.chunks) + (slot >= ends > schedule.chunks)
        lefts.append(slot + GROUP_GAP * gaps)
    return lefts


def unfulfilled(schedule: Schedule, final: Any) -> set[tuple[int, int]]:
    """Places that do not hold at the end what the collective promises."""
    if schedule.collective == "custom":
        return set()
    promised = contract(schedule)
    found = set()
    first = schedule.chunks if schedule.output else 0
    for rank in range(schedule.size):
        for slot, goal in enumerate(promised.goals(rank), first):
            held = final[rank][slot]
            if goal is not None and (held is None or (held.chunk, held.ranks) != tuple(goal)):
                found.add((rank, slot))
    return found


def first_fault(schedule: Schedule) -> tuple[int, int, int] | None:
    """Frame, rank and chunk at which something goes wrong that the prover refuses."""
    if schedule.collective == "custom":
        return None
    try:
        prove(schedule)
    except WrongSchedule as wrong:
        if wrong.kind != "unfinished" and wrong.step is not None:
            return wrong.step + 1, wrong.rank, wrong.chunk
    except ScheduleError:
        return None
    return None


def bend(
    a: tuple[float, float], middle: tuple[float, float], b: tuple[float, float], t: float
) -> tuple[float, float]:
    """A quadratic curve through `middle` at its half."""
    steer = [2 * m - (p + q) / 2 for m, p, q in zip(middle, a, b, strict=True)]
    x, y = (
        (1 - t) ** 2 * p + 2 * t * (1 - t) * s + t**2 * q
        for p, s, q in zip(a, steer, b, strict=True)
    )
    return x, y


def rank_colour(rank: int, size: int) -> str:
    """A rank's own colour where each has one."""
    return PALETTE[rank % len(PALETTE)] if size <= MOST_BANDS else INK


def colours(size: int) -> list[list[Any]]:
    """For the numbers 0 to size + 1: ranks (or contributions), nothing, wrong."""
    if size <= MOST_BANDS:
        shades = [PALETTE[r] for r in range(size)]
    else:
        shades = [*(_shade(n / max(1, size - 1)) for n in range(size - 1)), GOOD]
    parts = [*shades, EMPTY, BAD]
    count = len(parts)
    return [[edge, c] for n, c in enumerate(parts) for edge in (n / count, (n + 1) / count)]


def _shade(part: float) -> str:
    at = part * (len(SCALE) - 1)
    low = min(math.floor(at), len(SCALE) - 2)
    ends = [[int(SCALE[low + n][i : i + 2], 16) for i in (1, 3, 5)] for n in (0, 1)]
    mixed = [round(a + (b - a) * (at - low)) for a, b in zip(*ends, strict=True)]
    return "#{:02x}{:02x}{:02x}".format(*mixed)
