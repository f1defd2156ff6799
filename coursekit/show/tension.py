"""Computing against communicating: from which size on splitting a product pays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from coursekit.i18n import text
from coursekit.show._template import BAD, PALETTE, figure

LINES = (("alone", PALETTE[0]), ("split", PALETTE[3]), ("gather", BAD))


def compute_vs_communication(rows: Sequence[Mapping[str, float]]) -> go.Figure:
    """Measured times over the width of a matrix, on logarithmic axes.

    Parameters
    ----------
    rows : sequence of mappings
        Each with ``n`` (width), and in seconds: ``alone`` (one rank, the whole product),
        ``split`` (each rank its columns), ``gather`` (putting the columns together).

    Raises
    ------
    ValueError
        A row lacks one of the four.
    """
    for row in rows:
        if missing := {"n", "alone", "split", "gather"} - set(row):
            raise ValueError(
                f"a row must have n, alone, split and gather, got none of "
                f"{', '.join(sorted(missing))}; measure it first"
            )
    widths = [row["n"] for row in rows]
    drawn = figure(
        height=420,
        title={"text": text("tension.title")},
        hovermode="x unified",
        xaxis={
            "type": "log",
            "tickvals": widths,
            "ticktext": [f"{width:g}" for width in widths],
            "title": {"text": text("tension.width")},
        },
        yaxis={"type": "log", "title": {"text": text("tension.time")}, "dtick": 1},
    )
    for name, colour in LINES:
        drawn.add_scatter(
            name=text(f"tension.{name}"),
            x=widths,
            y=[1000 * row[name] for row in rows],
            mode="lines+markers",
            line={"color": colour, "width": 3},
            hovertemplate="%{y:.3g} ms",
        )
    return drawn
