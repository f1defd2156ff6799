"""Measured sweeps over message size, with what a fit predicts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import plotly.graph_objects as go

from coursekit.cost import busbw_factor
from coursekit.i18n import text
from coursekit.measure import Sweep
from coursekit.show._axes import colour, digits, size_axis, size_label, time_axis
from coursekit.show._curve_lines import Fits, Line, lines, parts
from coursekit.show._template import BAD, button_row, figure

MEASURES = ("time", "algbw", "busbw")
SYMBOLS = ("circle", "diamond-open", "square-open", "triangle-up-open", "star-open", "pentagon")
DASHES = ("solid", "dash", "dashdot", "longdash", "longdashdot", "dot")
# Of the width of the figure: what the words beside a dotted line take.
WORDS = 0.15

Floats = list[float]


@dataclass
class _Shown:
    """A trace, and its values for each of the measures."""

    trace: go.Scatter
    y: dict[str, Floats]
    up: dict[str, Floats] = field(default_factory=dict)
    down: dict[str, Floats] = field(default_factory=dict)


def curves(*sweeps: Sweep, fit: Fits | Sequence[Fits | None] | None = None) -> go.Figure:
    """Time, algbw or busbw over message size; buttons switch between the three.

    Points are medians, their bars reach from the 10th to the 90th percentile; each algorithm has
    its colour, each sweep its shape of points. With a fit, lines are what it predicts, and a
    dotted one stands at n_half, where half of the predicted time is latency (Hockney 1994).

    Parameters
    ----------
    sweeps : Sweep
        From `coursekit.measure.sweep`; several stand in one figure, such as Gloo beside MPI.
    fit : Fit, mapping or list, optional
        A `coursekit.measure.Fit`. One that knows its schedule draws what it predicts for every
        algorithm but ``library`` (`Fit.predict`); one of the library's rows draws the line
        alpha + beta S for ``library``. One of bare rows does both: that line, and for other
        algorithms, whose messages it then stands for, the time that
        `coursekit.cost.closed_form` gives with its alpha and beta.

        A mapping has fits by algorithm, each for that algorithm's own line; its key ``message``
        has the fit that predicts the algorithms without one. A list has one of these, or None,
        for each sweep.

    Raises
    ------
    ValueError
        No sweep, one without rows, or a fit that belongs to none of them.

    Examples
    --------
    >>> show.curves(gloo, mpi)
    >>> show.curves(gloo, fit=measure.fit(gloo, "ring"))
    >>> show.curves(gloo, fit={"library": measure.fit(gloo, "library")})
    """
    drawn_lines = lines(sweeps, fit)
    tops = {measure: _range(drawn_lines, measure) for measure in MEASURES}
    shown = [_predicted(line) for line in drawn_lines if line.predicted]
    shown += [_measured(line) for line in drawn_lines]
    shown += _halves(drawn_lines, tops)
    sizes = [row.size for sweep in sweeps for row in sweep.rows]
    predicted = any(line.predicted for line in drawn_lines)
    drawn = figure(
        height=520,
        title={"text": _title(sweeps, predicted)},
        margin={"t": 96, "b": 112},
        legend={"yref": "container", "y": 0.01, "yanchor": "bottom"},
        hovermode="closest",
        xaxis={**size_axis(min(sizes), max(sizes)), "title": {"text": text("curves.size")}},
        yaxis=_axis("time", sweeps, tops["time"]),
    )
    drawn.add_traces([each.trace for each in shown])
    drawn.update_layout(updatemenus=[_buttons(shown, sweeps, tops)])
    return drawn


def _title(sweeps: Sequence[Sweep], predicted: bool) -> str:
    """What all sweeps share; where that is nothing, their collectives."""
    columns = [list(dict.fromkeys(column)) for column in zip(*map(parts, sweeps), strict=True)]
    same = [column[0] for column in columns if len(column) == 1]
    what = text("curves.joint").join(same or columns[0])
    return text("curves.title_fit" if predicted else "curves.title", what=what)


def _predicted(line: Line) -> _Shown:
    sizes = line.grid()
    times = [line.time_us(size) for size in sizes]
    y = {
        measure: [
            digits(line.converted(measure, size, time))
            for size, time in zip(sizes, times, strict=True)
        ]
        for measure in MEASURES
    }
    trace = go.Scatter(
        name=line.label,
        legendgroup=line.label,
        showlegend=False,
        x=sizes,
        y=y["time"],
        mode="lines",
        line={"color": _colour(line), "width": 2, "dash": DASHES[line.number % len(DASHES)]},
        customdata=[
            [size_label(size), digits(time)] for size, time in zip(sizes, times, strict=True)
        ],
        hovertemplate=(
            f"<b>{line.label}</b>, {text('curves.predicted')}<br>%{{customdata[0]}} (%{{x:,}} B)"
            f"<br>{text('curves.time')} %{{customdata[1]:,}} \N{MICRO SIGN}s<extra></extra>"
        ),
    )
    return _Shown(trace, y)


def _measured(line: Line) -> _Shown:
    y, up, down = {}, {}, {}
    for measure in MEASURES:
        ends = [
            [line.converted(measure, row.size, t) for t in (row.low_us, row.time_us, row.high_us)]
            for row in line.rows
        ]
        y[measure] = [digits(middle) for _, middle, _ in ends]
        up[measure] = [digits(max(end) - end[1]) for end in ends]
        down[measure] = [digits(end[1] - min(end)) for end in ends]
    symbol = SYMBOLS[line.number % len(SYMBOLS)]
    wrong = [row.wrong > 0 for row in line.rows]
    look = {"color": _colour(line)}
    trace = go.Scatter(
        name=line.label,
        legendgroup=line.label,
        x=[row.size for row in line.rows],
        y=y["time"],
        mode="markers" if line.predicted else "lines+markers",
        line={**look, "width": 1.5, "dash": DASHES[line.number % len(DASHES)]},
        marker={
            "size": 9,
            "symbol": ["x" if bad else symbol for bad in wrong] if any(wrong) else symbol,
            "color": [BAD if bad else look["color"] for bad in wrong]
            if any(wrong)
            else look["color"],
            "line": {"width": 2 if symbol.endswith("open") else 0},
        },
        error_y={
            "type": "data",
            "symmetric": False,
            "array": up["time"],
            "arrayminus": down["time"],
            "thickness": 1.2,
            "width": 3,
            **look,
        },
        cliponaxis=False,
        customdata=_told(line),
        hovertemplate=_template(line),
    )
    return _Shown(trace, y, up, down)


def _told(line: Line) -> list[list[Any]]:
    """Of every row what its hover says beside its size."""
    return [
        [
            size_label(row.size),
            *(digits(t, 7) for t in (row.time_us, row.low_us, row.high_us)),
            *(digits(b, 6) for b in (row.algbw, row.busbw)),
            row.wrong,
        ]
        for row in line.rows
    ]


def _template(line: Line) -> str:
    time = (
        f"{text('curves.time')} %{{customdata[1]:,}} \N{MICRO SIGN}s "
        f"({text('curves.spread', low='%{customdata[2]:,}', high='%{customdata[3]:,}')})"
    )
    head = f"<b>{line.label}</b><br>%{{customdata[0]}} (%{{x:,}} B)"
    bands = "algbw %{customdata[4]} GB/s<br>busbw %{customdata[5]} GB/s"
    return f"{head}<br>{time}<br>{bands}<br>#wrong %{{customdata[6]}}<extra></extra>"


def _colour(line: Line) -> str:
    return colour(line.sweep.collective, line.algorithm)


def _range(drawn: Sequence[Line], measure: str) -> tuple[float, float]:
    """The ends of the axis: microseconds with room above and below, or GB/s from 0."""
    values = [
        line.converted(measure, row.size, time)
        for line in drawn
        for row in line.rows
        for time in (row.low_us, row.high_us, line.time_us(row.size))
        if time > 0
    ]
    low, high = min(values), max(values)
    if measure != "time":
        return 0.0, high * 1.18 or 1.0
    # Times are high at the left, too, where the words beside dotted lines stand.
    room = min(0.06 + 0.045 * sum(line.predicted for line in drawn), 0.33)
    return low / 1.5, high * (high / low) ** (room / (1 - room))


def _axis(measure: str, sweeps: Sequence[Sweep], ends: tuple[float, float]) -> dict[str, Any]:
    factors = {busbw_factor(sweep.collective, sweep.ranks) for sweep in sweeps}
    key = "busbw_many" if measure == "busbw" and len(factors) > 1 else measure
    title = text(f"curves.{key}_axis", factor=f"{min(factors):.4g}")
    kind = {"type": "linear", "range": [0, digits(ends[1])], "tickvals": None, "ticktext": None}
    return {
        "title": {"text": title},
        "autorange": False,
        **(time_axis(*ends) if measure == "time" else kind),
    }


def _halves(drawn: Sequence[Line], tops: dict[str, tuple[float, float]]) -> list[_Shown]:
    """Dotted lines at n_half, as far as it lies among the measured sizes."""
    sizes = [row.size for line in drawn for row in line.rows]
    low, high = math.log(min(sizes)), math.log(max(sizes))
    inside = [
        (place, line, half)
        for line in drawn
        if (half := line.n_half) and low <= (place := math.log(half)) <= high
    ]
    inside.sort(key=lambda each: each[0], reverse=True)
    placed: list[tuple[float, float]] = []
    out = []
    for place, line, half in inside:
        at = (place - low) / (high - low)
        near = [share for other, share in placed if other - at < WORDS]
        placed.append((at, min(near, default=1.02) - 0.06))
        out.append(_half(line, half, at, placed[-1][1], tops))
    return out


def _half(
    line: Line, half: float, at: float, share: float, tops: dict[str, tuple[float, float]]
) -> _Shown:
    y = {}
    for measure, (low, high) in tops.items():
        top = low * (high / low) ** share if measure == "time" else high * share
        y[measure] = [digits(low), digits(top)]
    words = text("curves.half", size=size_label(half))
    trace = go.Scatter(
        name=line.label,
        legendgroup=line.label,
        showlegend=False,
        x=[digits(half)] * 2,
        y=y["time"],
        mode="lines+text",
        text=["", words],
        textposition="middle left" if at > WORDS else "middle right",
        textfont={"color": _colour(line), "size": 11},
        line={"color": _colour(line), "width": 1.5, "dash": "dot"},
        hovertemplate=f"<b>{line.label}</b><br>{words} (%{{x:,.0f}} B)<extra></extra>",
    )
    return _Shown(trace, y)


def _buttons(
    shown: Sequence[_Shown], sweeps: Sequence[Sweep], tops: dict[str, tuple[float, float]]
) -> dict[str, Any]:
    buttons = []
    for measure in MEASURES:
        data = {
            "y": [each.y[measure] for each in shown],
            "error_y.array": [each.up.get(measure) for each in shown],
            "error_y.arrayminus": [each.down.get(measure) for each in shown],
        }
        axis = _axis(measure, sweeps, tops[measure])
        layout = {f"yaxis.{key}": value for key, value in axis.items() if key != "title"}
        layout["yaxis.title.text"] = axis["title"]["text"]
        buttons.append(
            {"label": text(f"curves.{measure}"), "method": "update", "args": [data, layout]}
        )
    return button_row(buttons, 1.03)
