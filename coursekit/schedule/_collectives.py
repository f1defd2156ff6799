"""The collectives: their names, and what each promises about the chunks of every rank."""

from __future__ import annotations

from dataclasses import dataclass

from coursekit.schedule._errors import ScheduleError, near

__all__ = ["COLLECTIVES", "CUSTOM", "ROOTED", "Contract", "Piece", "collective_name"]

COLLECTIVES = (
    "all_gather",
    "all_reduce",
    "all_to_all",
    "barrier",
    "broadcast",
    "gather",
    "reduce",
    "reduce_scatter",
    "scatter",
)
CUSTOM = "custom"
ROOTED = frozenset({"broadcast", "gather", "reduce", "scatter"})
BLOCKS = frozenset({"all_gather", "all_to_all", "gather", "reduce_scatter", "scatter"})

_ALIASES = {"bcast": "broadcast", "reducescatterblock": "reduce_scatter"}
_ALIASES |= {name.replace("_", ""): name for name in (*COLLECTIVES, CUSTOM)}

# Which chunk of the input, and a bit mask of the ranks whose contributions are in it.
Piece = tuple[int, int]


def collective_name(name: str) -> str:
    """The course's name of a collective: `AllReduce`, `all-reduce`, `allreduce` are `all_reduce`.

    Raises:
        ScheduleError: there is no such collective; the message has the likest names.
    """
    key = str(name).lower().replace("_", "").replace("-", "").replace(" ", "")
    if key not in _ALIASES:
        raise ScheduleError(
            f"a collective must be known, got {name!r}; {near(str(name), COLLECTIVES)}"
        )
    return _ALIASES[key]


@dataclass(frozen=True)
class Contract:
    """What a collective promises: what every chunk holds at the start, and must hold at the end.

    Pieces are pairs (chunk of the input, mask of contributing ranks). `None` stands for a chunk
    that holds nothing yet, or that may hold anything at the end.
    """

    collective: str
    size: int
    chunks: int
    root: int | None = None

    @property
    def everyone(self) -> int:
        """The mask of all ranks."""
        return (1 << self.size) - 1

    def owner(self, chunk: int) -> int:
        """The rank to which a chunk of a buffer of one block a rank belongs."""
        return chunk // (self.chunks // self.size)

    def starts(self, rank: int) -> list[Piece | None]:
        """What the chunks of `rank`'s buffer hold before the first step."""
        mine: list[Piece | None] = [(chunk, 1 << rank) for chunk in range(self.chunks)]
        if self.collective in {"all_gather", "gather"}:
            return [piece if self.owner(c) == rank else None for c, piece in enumerate(mine)]
        if self.collective in {"broadcast", "scatter"} and rank != self.root:
            return [None] * self.chunks
        return mine

    def goals(self, rank: int) -> list[Piece | None]:
        """What the chunks of `rank`'s output must hold after the last step."""
        every = range(self.chunks)
        nothing: list[Piece | None] = [None] * self.chunks
        match self.collective:
            case "all_reduce":
                return [(chunk, self.everyone) for chunk in every]
            case "reduce":
                return [(c, self.everyone) for c in every] if rank == self.root else nothing
            case "reduce_scatter":
                return [(c, self.everyone) if self.owner(c) == rank else None for c in every]
            case "all_gather":
                return [(chunk, 1 << self.owner(chunk)) for chunk in every]
            case "gather":
                return [(c, 1 << self.owner(c)) for c in every] if rank == self.root else nothing
            case "broadcast":
                return [(chunk, 1 << (self.root or 0)) for chunk in every]
            case "scatter":
                sent = 1 << (self.root or 0)
                return [(c, sent) if self.owner(c) == rank else None for c in every]
            case "all_to_all":
                block = self.chunks // self.size
                return [(rank * block + c % block, 1 << self.owner(c)) for c in every]
            case _:
                return nothing
