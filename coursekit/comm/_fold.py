"""From what a rank did, piece by piece, to what it means: temporary memory is taken out.

A message that lands beside the buffer and is then added to a chunk is a message that is added; a
copy that is only sent is the chunk itself that is sent. What cannot be taken out stays as scratch.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from ._log import Event

Piece = tuple[int, int]


@dataclass(eq=False)
class Act:
    """One piece of one event.

    `piece` is sent, or written; `source` is what a move reads; `number` counts the pieces of an
    event. `reads` and `writes` happen at `tick`.
    """

    event: Event
    kind: str
    piece: Piece
    tick: int
    number: int = 0
    source: Piece | None = None
    reduce: bool = False

    def reads(self) -> list[Piece]:
        """The pieces it reads."""
        if self.kind == "send":
            return [self.piece]
        own = [self.piece] if self.reduce else []
        return own if self.source is None else [self.source, *own]

    def writes(self) -> list[Piece]:
        """The pieces it writes."""
        return [] if self.kind == "send" else [self.piece]


def fold(acts: list[Act], own: int) -> list[Act]:
    """Take temporary memory out as far as possible; memories below `own` are the rank's buffers."""
    acts = sorted(acts, key=lambda act: act.tick)
    while True:
        shorter = _once(acts, own)
        if shorter is None:
            return acts
        acts = sorted(shorter, key=lambda act: act.tick)


def _once(acts: list[Act], own: int) -> list[Act] | None:
    uses: dict[Piece, list[Act]] = defaultdict(list)
    for act in acts:
        for piece in {*act.reads(), *act.writes()}:
            uses[piece].append(act)
    for piece, users in uses.items():
        if piece[0] < own:
            continue
        for life in _lives(piece, users):
            gone = _sum(life, acts) or _landing(life, acts) or _copy(life, acts)
            if gone:
                return [act for act in acts if act not in gone]
    return None


def _lives(piece: Piece, users: list[Act]) -> list[list[Act]]:
    """A piece's uses, from one overwriting to the next."""
    lives: list[list[Act]] = []
    for act in users:
        if not lives or (piece in act.writes() and piece not in act.reads()):
            lives.append([])
        lives[-1].append(act)
    return lives


def _sum(life: list[Act], acts: list[Act]) -> list[Act]:
    """T = x; t += y; x = t is x += y, and so is t = y; t += x; x = t."""
    if [a.kind for a in life] != ["copy", "reduce", "copy"]:
        return []
    first, second, back = life
    t, x = first.piece, back.piece
    if (second.piece, back.source) != (t, t) or x == t or x not in (first.source, second.source):
        return []
    other = second.source if first.source == x else first.source
    if other is None or _touched(acts, [x, other], first.tick, back.tick, life, writes_only=True):
        return []
    back.kind, back.reduce, back.source = "reduce", True, other
    return [first, second]


def _landing(life: list[Act], acts: list[Act]) -> list[Act]:
    """A message into t, then once from t into x, is a message into x."""
    if len(life) != 2 or life[0].kind != "recv" or life[1].kind not in ("copy", "reduce"):
        return []
    message, move = life
    if move.source != message.piece or message.reduce:
        return []
    # Additions to the same piece may come in any order.
    others = [a for a in acts if not (move.reduce and a.reduce and a.piece == move.piece)]
    if _touched(others, [move.piece], message.tick, move.tick, life, writes_only=False):
        return []
    message.piece, message.reduce, message.tick = move.piece, move.kind == "reduce", move.tick
    return [move]


def _copy(life: list[Act], acts: list[Act]) -> list[Act]:
    """T = x, then t is only sent: x is sent."""
    first, sends = life[0], life[1:]
    if first.kind != "copy" or not sends or any(act.kind != "send" for act in sends):
        return []
    if first.source is None:
        return []
    last = max(act.tick for act in sends)
    if _touched(acts, [first.source], first.tick, last, life, writes_only=True):
        return []
    for act in sends:
        act.piece = first.source
    return [first]


def _touched(
    acts: list[Act], pieces: list[Piece], after: int, before: int, but: list[Act], writes_only: bool
) -> bool:
    for act in acts:
        if after < act.tick < before and act not in but:
            used = act.writes() if writes_only else [*act.reads(), *act.writes()]
            if any(piece in used for piece in pieces):
                return True
    return False
