"""One collective in one picture: the buffers of all ranks before and after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from coursekit.i18n import text
from coursekit.show._template import INK, PALETTE, figure

GAP = 2.6
EDGE = 0.06


def before_after(
    before: Sequence[Sequence[float]],
    after: Sequence[Sequence[float]],
    name: str = "all_reduce",
    sources: Sequence[Sequence[Sequence[int]]] | None = None,
) -> go.Figure:
    """Rows of boxes, one a rank: what it held before the collective, and after it.

    Parameters
    ----------
    before, after : sequence of sequences of numbers
        Values by rank: ``[size][elements]``.
    name : str
        The collective, as the arrow says it.
    sources : sequence, optional
        Ranks whose values are in each box after: ``[size][elements][ranks]``; all ranks in
        every box unless given, as an all-reduce does.

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
    size, start = len(before), len(before[0]) + GAP
    everyone = [[list(range(size))] * len(row) for row in after]
    drawn = figure(
        height=80 + 52 * size,
        margin={"l": 64, "t": 12, "b": 8},
        xaxis={"visible": False, "range": [-1.1, start + len(after[0])], "fixedrange": True},
        yaxis={"visible": False, "range": [size - 0.4, -1], "fixedrange": True},
    )
    own = [[[rank]] * len(row) for rank, row in enumerate(before)]
    shapes, notes = _block(before, own, 0.0)
    more_shapes, more_notes = _block(after, sources or everyone, start)
    labels = [_note(-0.25, rank, f"rank {rank}", xanchor="right") for rank in range(size)]
    heads = [
        _note((len(before[0]) - 1) / 2 + 0.5, -0.75, text("collective.before")),
        _note(start + len(after[0]) / 2, -0.75, text("collective.after")),
    ]
    drawn.update_layout(
        shapes=shapes + more_shapes,
        annotations=notes + more_notes + labels + heads + _arrow(len(before[0]), start, size, name),
    )
    return drawn


def _block(
    values: Sequence[Sequence[float]], sources: Sequence[Sequence[Sequence[int]]], left: float
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Each box is banded in the colours of the ranks that are in it."""
    shapes, notes = [], []
    for rank, row in enumerate(values):
        for place, value in enumerate(row):
            x = left + place
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
