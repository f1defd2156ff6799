"""Steps for recorded messages: each rank's own order kept, and as few steps as that allows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ._errors import CommError
from ._fold import Act, Piece


@dataclass(eq=False)
class Node:
    """What gets one step: a message with both its ends, or a move of one rank."""

    number: int
    acts: dict[int, list[Act]] = field(default_factory=dict)
    step: int = 0


@dataclass(eq=False)
class End:
    """A node as one rank sees it."""

    node: Node
    kind: str
    tick: int
    begun: int
    done: int
    peer: int
    reads: set[Piece]
    writes: set[Piece]
    reduce: bool


Edge = tuple[Node, Node, int]


def end_of(node: Node, rank: int) -> End:
    """The node's end at a rank."""
    acts = node.acts[rank]
    first = acts[0]
    return End(
        node,
        first.kind,
        max(act.tick for act in acts),
        first.event.begun,
        first.event.done,
        first.event.peer,
        {piece for act in acts for piece in act.reads()},
        {piece for act in acts for piece in act.writes()},
        all(act.reduce for act in acts if act.writes()),
    )


def number_steps(nodes: Sequence[Node], ranks: Iterable[int]) -> int:
    """Give every node its step; returns how many there are.

    Raises CommError when no order of steps keeps what every rank did.
    """
    ends = [
        sorted((end_of(n, r) for n in nodes if r in n.acts), key=lambda e: e.tick) for r in ranks
    ]
    # A send that did not wait for its receiver may have overtaken others: then only what the
    # data demand is kept.
    for rules in ((_conflict, _arrived, _sent), (_conflict, _arrived), (_conflict,)):
        edges = [edge for mine in ends for edge in _edges(mine, rules)]
        if _relax(nodes, edges):
            return max((n.step for n in nodes), default=-1) + 1
    raise CommError(
        "the recorded messages fit no order of steps; wait for each request before its buffer is "
        "used again"
    )


Rule = Callable[[End, End], int | None]


def _edges(ends: Sequence[End], rules: Sequence[Rule]) -> Iterable[Edge]:
    for number, later in enumerate(ends):
        for earlier in ends[:number]:
            for one, other in ((earlier, later), (later, earlier)):
                weights = [w for rule in rules if (w := rule(one, other)) is not None]
                if weights:
                    yield one.node, other.node, max(weights)


def _conflict(one: End, other: End) -> int | None:
    """Uses of the same piece keep their order; sends and additions of one step may share it."""
    if one.tick >= other.tick:
        return None
    written = one.writes & (other.reads | other.writes)
    read = one.reads & other.writes
    if not written and not read:
        return None
    if one.kind == "send" and other.kind == "recv" and other.reduce:
        return 0
    if one.kind == other.kind == "recv" and one.reduce and other.reduce:
        return 0
    return 1


def _arrived(one: End, other: End) -> int | None:
    """What a rank does after a message has come is a later step."""
    if one.kind == "recv" and other.kind != "move" and one.done <= other.begun:
        return 1
    return None


def _sent(one: End, other: End) -> int | None:
    """Sends one after another are steps; so are messages to or from one rank at the same time."""
    if one.kind != other.kind or one.kind == "move" or one.begun >= other.begun:
        return None
    if one.kind == "send" and one.done <= other.begun:
        return 1
    return 1 if one.peer == other.peer else None


def _relax(nodes: Sequence[Node], edges: Sequence[Edge]) -> bool:
    for node in nodes:
        node.step = 0
    for _ in range(len(nodes) + 1):
        changed = False
        for one, other, weight in edges:
            if other.step < one.step + weight:
                other.step = one.step + weight
                changed = True
        if not changed:
            return True
    return False
