"""Who sends how many bytes to whom, as a heat map of ranks by ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from coursekit.i18n import text
from coursekit.schedule import Schedule
from coursekit.show._axes import size_label
from coursekit.show._template import INK, template

COLUMNS = 3
# Up to here cells and totals have numbers, up to there a matrix can be told apart at all.
NUMBERS, TOTALS, MOST = 8, 16, 64
# Solid colours: numbers stand on them on any page.
SCALE = ((0.0, "#dce8f8"), (0.35, "#8fb5e6"), (0.7, "#3f78c4"), (1.0, "#1d4583"))

Ints = npt.NDArray[np.int64]


def matrix(
    *traffic: Any,
    names: Sequence[str] | None = None,
    elements: int | None = None,
    itemsize: int = 4,
) -> go.Figure:
    """Bytes from each rank (row) to each rank (column), side by side in one scale of colours.

    Parameters
    ----------
    traffic : array, Traffic or Schedule
        K x K bytes (an array, a nested list), a `coursekit.measure.Traffic` (its bytes on the
        wire), or a `coursekit.schedule.Schedule` (what it will send). K is at most 64; cells have
        numbers up to K = 8, totals a rank up to K = 16 (8 where three stand side by side).
    names : sequence of str, optional
        A heading for each; a schedule has its algorithm's name without it.
    elements, itemsize : int
        The buffer's length and the bytes an element, for schedules.

    Raises
    ------
    ValueError
        Nothing to draw, a matrix that is not square or has negative numbers, a schedule without
        `elements`, a Traffic whose bytes on the wire are not known, or another count of names.

    Examples
    --------
    >>> ring, tree = (schedule.build("all_reduce", name, 4) for name in ("ring", "tree"))
    >>> show.matrix(ring, tree, elements=1 << 20)
    """
    if not traffic:
        raise ValueError(
            "a matrix needs something to draw, got nothing; try matrix([[0, 8], [8, 0]])"
        )
    if names is not None and len(names) != len(traffic):
        raise ValueError(
            f"names must be one a matrix, got {len(names)} for {len(traffic)}; leave some out"
        )
    tables = [_table(each, elements, itemsize) for each in traffic]
    heads = list(names) if names is not None else [_name(each) for each in traffic]
    drawn, rows, columns = _panels(len(tables))
    for number, (table, head) in enumerate(zip(tables, heads, strict=True)):
        _draw(drawn, table, head, number, columns)
    side = {1: 340, 2: 300, 3: 215}[columns]
    drawn.update_layout(
        template=template(),
        height=rows * (side + 84) + 86,
        title={"text": text("traffic.title")},
        margin={"t": 98, "b": 56, "r": 16},
        coloraxis=_colours(max(int(table.max()) for table in tables)),
    )
    if len(tables) == 1:  # else the scale would stand far off on a wide page
        drawn.update_layout(xaxis={"domain": [0, 0.55]}, coloraxis={"colorbar": {"x": 0.57}})
    return drawn


def _panels(count: int) -> tuple[go.Figure, int, int]:
    """An empty figure with a place for each matrix, and its rows and columns."""
    columns = 2 if count == 4 else min(COLUMNS, count)
    rows = -(-count // columns)
    places: list[dict[str, Any] | None] = [
        {} if place < count else None for place in range(rows * columns)
    ]
    drawn = make_subplots(
        rows,
        columns,
        specs=[places[row * columns :][:columns] for row in range(rows)],
        horizontal_spacing=0.085 if columns > 1 else 0,
        vertical_spacing=0.2 / rows,
    )
    return drawn, rows, columns


def _name(what: Any) -> str:
    return f"{what.algorithm}" if isinstance(what, Schedule) else ""


def _table(what: Any, elements: int | None, itemsize: int) -> Ints:
    if isinstance(what, Schedule):
        if elements is None:
            raise ValueError(
                "a schedule sends bytes only of a buffer of known length, got no elements; "
                "try matrix(schedule, elements=1 << 20, itemsize=4)"
            )
        return what.matrix(elements, itemsize)
    if hasattr(what, "wire"):
        if what.wire is None:
            why = getattr(what, "why", "")
            raise ValueError(f"bytes on the wire must be known to be drawn, got none: {why}")
        what = what.wire
    return _square(what)


def _square(what: Any) -> Ints:
    try:
        table = np.asarray([] if what is None else what, dtype=np.float64)
    except (TypeError, ValueError):
        table = np.empty(0)
    if table.ndim != 2 or table.shape[0] != table.shape[1] or not table.size:
        raise ValueError(
            "a matrix must be K x K numbers of bytes, a Traffic or a Schedule, got "
            f"{' x '.join(map(str, table.shape)) if table.size else type(what).__name__}; "
            "try matrix([[0, 8], [8, 0]])"
        )
    if not (np.isfinite(table).all() and (table >= 0).all()):
        raise ValueError("bytes must be numbers from 0 up, got others among them; count them anew")
    if len(table) > MOST:
        raise ValueError(
            f"a matrix can be read up to {MOST} ranks, got {len(table)}; cut a part out"
        )
    return np.rint(table).astype(np.int64)


def _draw(drawn: go.Figure, table: Ints, head: str, number: int, columns: int) -> None:
    place = {"row": number // columns + 1, "col": number % columns + 1}
    count = len(table)
    ranks = list(range(count))
    cells = [[int(n) or None for n in row] for row in table]
    drawn.add_heatmap(
        x=ranks,
        y=ranks,
        z=cells,
        text=[[_cell(n) for n in row] for row in cells] if count <= NUMBERS else None,
        texttemplate="%{text}" if count <= NUMBERS else None,
        coloraxis="coloraxis",
        hovertemplate=text("traffic.hover", src="%{y}", dst="%{x}") + "<br>%{z:,} B<extra></extra>",
        hoverongaps=False,
        xgap=1,
        ygap=1,
        name=head,
        **place,
    )
    # Beside the cells stands a column of totals, as wide as its words.
    beside = max(1.3, 0.28 * count) if count <= (NUMBERS if columns == COLUMNS else TOTALS) else 0.0
    ticks = ranks[:: max(1, count // 8)]
    axis = {"showgrid": False, "zeroline": False, "tickmode": "array", "constrain": "domain"}
    drawn.update_xaxes(
        **axis,
        range=[-0.5, count - 0.5 + beside],
        tickvals=[*ticks, *([count - 0.5 + beside / 2] if beside else [])],
        ticktext=[*map(str, ticks), *([text("traffic.sent")] if beside else [])],
        constraintoward="left",
        title={"text": text("traffic.to")},
        **place,
    )
    drawn.update_yaxes(
        **axis,
        range=[count - 0.5, -0.5],
        tickvals=ticks,
        constraintoward="top",
        scaleanchor=_axis_name(number),
        title={"text": text("traffic.from") if place["col"] == 1 else ""},
        **place,
    )
    if beside:
        drawn.add_scatter(
            x=[count - 0.5 + beside / 2] * count,
            y=ranks,
            mode="text",
            text=[size_label(n) for n in table.sum(axis=1)],
            textfont={"color": INK, "size": 11},
            cliponaxis=False,
            hoverinfo="skip",
            showlegend=False,
            **place,
        )
    _heading(drawn, head, int(table.sum()), number)


def _axis_name(number: int) -> str:
    return f"x{number + 1}" if number else "x"


def _heading(drawn: go.Figure, head: str, total: int, number: int) -> None:
    words = text("traffic.total", total=size_label(total))
    across = _axis_name(number)
    drawn.add_annotation(
        text=f"<b>{head}</b><br>{words}" if head else words,
        xref=f"{across} domain",
        yref=f"{across.replace('x', 'y')} domain",
        x=0,
        xanchor="left",
        align="left",
        y=1.01,
        yanchor="bottom",
        showarrow=False,
    )


def _cell(nbytes: int | None) -> str:
    return size_label(nbytes).replace(" ", "<br>") if nbytes else ""


def _colours(most: int) -> dict[str, Any]:
    """One scale from 0 to the largest number of all."""
    unit = 1024.0 ** max(0, int(math.log(max(most, 1), 1024)))
    step = unit * _step(most / unit)
    ticks = [round(i * step) for i in range(int(most / step) + 1)]
    return {
        "cmin": 0,
        "cmax": max(most, 1),
        "colorscale": [list(stop) for stop in SCALE],
        "colorbar": {
            "tickvals": ticks,
            "ticktext": [size_label(tick) for tick in ticks],
            "thickness": 12,
            "outlinewidth": 0,
        },
    }


def _step(most: float) -> float:
    """A round step that makes at most six ticks."""
    steps = (digit * 10.0**power for power in range(-1, 4) for digit in (1, 2, 5))
    return next(step for step in steps if most / step <= 5)
