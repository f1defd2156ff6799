"""One collective in one picture: the buffers of all ranks before and after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from coursekit.i18n import text
from coursekit.show._template import INK, PALETTE, figure

GAP = 2.6
EDGE = 0.06


Row = Sequence[float | None]


def before_after(
    before: Sequence[Row],
    after: Sequence[Row],
    name: str = "all_reduce",
    sources: Sequence[Sequence[Sequence[int]]] | None = None,
) -> go.Figure:
    """Rows of boxes, one a rank: what it held before the collective, and after it.

    Parameters
    ----------
    before, after : sequence of sequences of numbers
        Values by rank: ``[size][elements]``; None draws an empty box, where the collective
        promises nothing.
    name : str
        The collective, as the arrow says it.
    sources : sequence, optional
        Ranks whose values are in each box after: ``[size][elements][ranks]``; all ranks in
        every box unless given, as an all-reduce does. `digit_owners` finds them.

    Raises
    ------
    ValueError
        The two do not come from the same number of ranks.
    """
    if len(before) != len(after) or not before:
        raise ValueError(
            "before and after must have one row a rank, got "
            f"{len(before)} and {len(after)} rows; pull both from the same ranks"
        )
    size, wide = len(before), max(map(len, before))
    start, end = wide + GAP, wide + GAP + max(map(len, after))
    everyone = [[list(range(size))] * len(row) for row in after]
    drawn = figure(
        height=80 + 52 * size,
        margin={"l": 64, "t": 12, "b": 8},
        xaxis={"visible": False, "range": [-1.1, end], "fixedrange": True},
        yaxis={"visible": False, "range": [size - 0.4, -1], "fixedrange": True},
    )
    own = [[[rank]] * len(row) for rank, row in enumerate(before)]
    shapes, notes = _block(before, own, 0.0)
    more_shapes, more_notes = _block(after, sources or everyone, start)
    labels = [_note(-0.25, rank, f"rank {rank}", xanchor="right") for rank in range(size)]
    heads = [
        _note(wide / 2, -0.75, text("collective.before")),
        _note((start + end) / 2, -0.75, text("collective.after")),
    ]
    drawn.update_layout(
        shapes=shapes + more_shapes,
        annotations=notes + more_notes + labels + heads + _arrow(wide, start, size, name),
    )
    return drawn


def digit_owners(rows: Sequence[Row]) -> list[list[list[int]]]:
    """Whose values are in each box, when rank r's are digits times 10**r: for `before_after`.

    >>> digit_owners([[1, 220], [None, 1111]])
    [[[0], [1, 2]], [[], [0, 1, 2, 3]]]
    """
    return [[_digits(value) for value in row] for row in rows]


def _digits(value: float | None) -> list[int]:
    digits = reversed(str(int(value or 0)))
    return [place for place, digit in enumerate(digits) if digit != "0"]


def _block(
    values: Sequence[Row], sources: Sequence[Sequence[Sequence[int]]], left: float
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Each box is banded in the colours of the ranks that are in it."""
    shapes, notes = [], []
    for rank, row in enumerate(values):
        for place, value in enumerate(row):
            x = left + place
            if value is None:
                shapes.append(_empty(x, rank))
                continue
            ranks = sources[rank][place]
            width = (1 - 2 * EDGE) / len(ranks)
            shapes += [
                {
                    "type": "rect",
                    "x0": x + EDGE + number * width,
                    "x1": x + EDGE + (number + 1) * width,
                    "y0": rank - 0.38,
                    "y1": rank + 0.38,
                    "line": {"width": 0},
                    "fillcolor": PALETTE[source % len(PALETTE)],
                }
                for number, source in enumerate(ranks)
            ]
            shown = f"{value:g}" if isinstance(value, float) else str(value)
            notes.append(_note(x + 0.5, rank, f"<b>{shown}</b>", color="#ffffff"))
    return shapes, notes


def _empty(x: float, rank: int) -> dict[str, Any]:
    return {
        "type": "rect",
        "x0": x + EDGE,
        "x1": x + 1 - EDGE,
        "y0": rank - 0.38,
        "y1": rank + 0.38,
        "line": {"width": 1, "dash": "dot", "color": INK},
    }


def _arrow(end: int, start: float, size: int, name: str) -> list[dict[str, Any]]:
    middle = (size - 1) / 2
    arrow = {
        "x": start - 0.3,
        "y": middle,
        "ax": end + 0.3,
        "ay": middle,
        "axref": "x",
        "ayref": "y",
        "text": "",
        "showarrow": True,
        "arrowhead": 2,
        "arrowwidth": 2,
        "arrowcolor": INK,
    }
    return [arrow, _note((end + start) / 2, middle - 0.3, f"<b>{name}</b>")]


def _note(
    x: float, y: float, words: str, color: str = INK, xanchor: str = "center"
) -> dict[str, Any]:
    return {
        "x": x,
        "y": y,
        "text": words,
        "showarrow": False,
        "xanchor": xanchor,
        "font": {"color": color, "size": 14},
    }
