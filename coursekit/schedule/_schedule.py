"""A schedule: which rank sends which chunk to whom, in which step."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from coursekit.schedule import _count, _text
from coursekit.schedule._collectives import BLOCKS, ROOTED, collective_name
from coursekit.schedule._errors import ScheduleError, whole
from coursekit.schedule._transfer import (
    FIELDS,
    OPS,
    Message,
    Transfer,
    as_array,
    as_transfer,
    in_order,
)

__all__ = ["Schedule"]

Elements = int | Sequence[int] | None


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Schedule:
    """A collective as data: who sends which chunk to whom, when, and what becomes of it there.

    **Buffers.** Every rank has one buffer, cut into `chunks` chunks (`chunk_bounds`), and as many
    `scratch` chunks more as an algorithm needs beside it. `all_gather`, `gather`, `scatter` and
    `reduce_scatter` use one block a rank, in rank order: rank r's data stand in block r, on every
    rank. They run in place. `all_to_all` has two buffers: chunks 0 to `chunks - 1` are the input
    (block d is meant for rank d), `chunks` to `2 * chunks - 1` the output (block s came from rank
    s); scratch follows. A `barrier` carries nothing: one chunk of any length, even none.

    **Steps.** In every step a rank posts all its sends and receives of that step, waits for them,
    then applies the reductions in the order of the array. All that is sent is what the chunk held
    before the step. A copy may land in place: no other transfer of its step reads or writes that
    chunk of that rank (`prove` refuses a schedule where one does). A reduction must land beside
    the buffer, because its chunk may be sent in the same step. Several reductions may go into one
    chunk. A transfer from a rank to itself is a move in memory, no message.

    **Order.** Ranks need no common clock. It is enough that every rank does its own steps in order
    and that the messages from one rank to another arrive in the order in which they were sent:
    whatever a rank waits for in a step, its peer posts in the same step, so no rank waits for a
    later step, and every receive has one possible message.

    **Messages.** All chunks of one step with the same source, destination and op are one message.

    Args:
        collective: a name that `collective_name` knows, or `custom`.
        algorithm: any name.
        size: the number of ranks.
        chunks: how many chunks the buffer has; a multiple of `size` where ranks own blocks.
        transfers: `Transfer` objects or tuples like them, or an array of `DTYPE`; kept sorted by
            step, src, dst, op, chunk, into, and read-only.
        root: the root rank of broadcast, reduce, scatter and gather; 0 where none is given.
        scratch: how many chunks stand beside the buffer.

    Raises:
        ScheduleError: a number lies outside its range, or an op or a collective is unknown.
    """

    collective: str
    algorithm: str
    size: int
    chunks: int
    transfers: npt.NDArray[Any]
    root: int | None = None
    scratch: int = 0

    def __init__(
        self,
        collective: str,
        algorithm: str,
        size: int,
        chunks: int,
        transfers: npt.NDArray[Any] | Iterable[Transfer | Sequence[Any]] = (),
        root: int | None = None,
        scratch: int = 0,
    ) -> None:
        def put(**fields: object) -> None:
            for name, value in fields.items():
                object.__setattr__(self, name, value)

        put(collective=collective_name(collective), algorithm=str(algorithm))
        put(size=whole(size, "size"), chunks=whole(chunks, "chunks"))
        put(scratch=whole(scratch, "scratch", least=0), root=self._checked_root(root))
        if self.collective in BLOCKS and self.chunks % self.size:
            raise ScheduleError(
                f"the chunks of {self.collective} must be a multiple of its size, got {chunks} "
                f"chunks for {size} ranks; try chunks={self.size}"
            )
        put(transfers=self._checked(as_array(transfers)))

    def _checked_root(self, root: int | None) -> int | None:
        if self.collective in ROOTED:
            return 0 if root is None else whole(root, "root", 0, self.size - 1)
        if root is not None:
            raise ScheduleError(f"{self.collective} must have no root, got {root!r}; leave it out")
        return None

    def _checked(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        highest = {"src": self.size, "dst": self.size, "chunk": self.slots, "into": self.slots}
        for field in FIELDS:
            top = {**highest, "op": len(OPS)}.get(field)
            column = rows[field]
            wrong = column < 0 if top is None else (column < 0) | (column >= top)
            if wrong.any():
                at = int(wrong.argmax())
                span = "at least 0" if top is None else f"from 0 to {top - 1}"
                raise ScheduleError(
                    f"{field} must be {span}, got {int(column[at])} in transfer {at}: "
                    f"{as_transfer(rows[at].item())}"
                )
        rows = in_order(rows, self.size, self.slots)
        rows.setflags(write=False)
        return rows

    @property
    def slots(self) -> int:
        """How many chunks a rank has in all: input, output where it is another buffer, scratch."""
        return self.output + self.chunks + self.scratch

    @property
    def output(self) -> int:
        """The first chunk of the output: 0, or `chunks` where the output is a buffer of its own."""
        return self.chunks if self.collective == "all_to_all" else 0

    @property
    def step_count(self) -> int:
        """How many steps there are, those that only move data inside a rank's memory included."""
        return int(self.transfers["step"][-1]) + 1 if len(self.transfers) else 0

    @functools.cached_property
    def needs_equal_chunks(self) -> bool:
        """Whether a chunk may land in one of another number, so that all must be equally long."""
        return bool((self.transfers["chunk"] != self.transfers["into"]).any())

    def __len__(self) -> int:
        return len(self.transfers)

    def __iter__(self) -> Iterator[Transfer]:
        return map(as_transfer, self.transfers.tolist())

    def steps(self) -> Iterator[npt.NDArray[Any]]:
        """The transfers of each step, from step 0 on; a step may be empty."""
        cuts = np.searchsorted(self.transfers["step"], np.arange(self.step_count + 1))
        for begin, end in itertools.pairwise(cuts):
            yield self.transfers[begin:end]

    def of(self, rank: int) -> npt.NDArray[Any]:
        """The transfers that `rank` sends or receives, in order."""
        rank = whole(rank, "rank", 0, self.size - 1)
        part: npt.NDArray[Any] = self.transfers[
            (self.transfers["src"] == rank) | (self.transfers["dst"] == rank)
        ]
        return part

    def messages(self) -> Iterator[Message]:
        """The messages in order; the moves inside a rank's memory are left out."""
        rows = _count.between_ranks(self.transfers)
        cuts = [*np.flatnonzero(_count.message_starts(rows)), len(rows)]
        for begin, end in itertools.pairwise(cuts):
            step, src, dst, op, _, _ = rows[begin].item()
            part = rows[begin:end]
            yield Message(step, src, dst, OPS[op], part["chunk"], part["into"])

    def count(self, elements: Elements = None, itemsize: int = 1) -> _count.Counts:
        """What every rank sends, receives and reduces.

        Args:
            elements: the length of the buffer (cut by `chunk_bounds`), or the length of each chunk;
                None counts chunks.
            itemsize: bytes an element.

        Raises:
            ScheduleError: the schedule needs chunks of equal length, and these are not.
        """
        return _count.count(self, elements, itemsize)

    def lengths(self, elements: Elements = None, itemsize: int = 1) -> npt.NDArray[np.int64]:
        """How long each of a rank's `slots` chunks is: 1 each, or bytes; as in `count`."""
        return _count.lengths(self, elements, itemsize)[0]

    def matrix(
        self,
        elements: Elements = None,
        itemsize: int = 1,
        *,
        messages: bool = False,
    ) -> npt.NDArray[np.int64]:
        """What goes over each link: entry (src, dst) is in chunks, bytes or messages.

        `elements` and `itemsize` are those of `count`. Moves inside a rank are left out.
        """
        return _count.matrix(self, elements, itemsize, messages)

    def relabel(self, order: Sequence[int]) -> Schedule:
        """The same schedule with rank `order[i]` in the place of rank i.

        A ring then goes round in the order given. Blocks that belong to a rank go with it, so the
        result is again right for its collective.

        Raises:
            ScheduleError: `order` does not have every rank once.
        """
        if sorted(order) != list(range(self.size)):
            raise ScheduleError(
                f"order must have each of {self.size} ranks once, got {list(order)}; "
                f"try {list(range(self.size))}"
            )
        ranks = np.asarray(order, dtype=np.int32)
        slots = np.arange(self.slots, dtype=np.int32)
        if self.collective in BLOCKS:
            block = self.chunks // self.size
            moved = (ranks[:, None] * block + np.arange(block)).ravel()
            slots[: self.chunks] = moved
            slots[self.output : self.output + self.chunks] = moved + self.output
        rows = self.transfers.copy()
        for field, names in (("src", ranks), ("dst", ranks), ("chunk", slots), ("into", slots)):
            rows[field] = names[rows[field]]
        root = None if self.root is None else int(ranks[self.root])
        return dataclasses.replace(self, transfers=rows, root=root)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schedule):
            return NotImplemented
        if self is other:
            return True
        return self._key() == other._key() and np.array_equal(self.transfers, other.transfers)

    def __hash__(self) -> int:
        return hash((self._key(), self.transfers.tobytes()))

    def _key(self) -> tuple[object, ...]:
        return (
            self.collective, self.algorithm, self.size, self.chunks, self.root, self.scratch,
        )  # fmt: skip

    def __repr__(self) -> str:
        return _text.summary(self)

    def __str__(self) -> str:
        return self.table()

    def table(self, limit: int | None = 40) -> str:
        """The messages of each step as text, at most `limit` steps of it (None: all)."""
        return _text.table(self, limit)
