"""Pipelines: who does which micro-batch when, and how much of the time is lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from coursekit import pipeline
from coursekit.i18n import text
from coursekit.pipeline import PipelineError, PipelineSchedule, Timeline
from coursekit.show import _pipeline_bars as bars
from coursekit.show._pipeline_bars import LINE, WORDS, Case, Shown
from coursekit.show._template import INK, PALETTE, figure

SYMBOLS = ("circle", "diamond", "square", "triangle-up", "star", "pentagon")
DASHES = ("solid", "dash", "dot", "longdash", "dashdot", "longdashdot")


def schedule(
    *shown: Shown, names: Sequence[str] | None = None, unit: str | None = None
) -> go.Figure:
    """One below the other: a line a rank, a bar an action with its micro-batch; grey is idle.

    Parameters
    ----------
    shown : PipelineSchedule, Timeline or list of list of Span
        A schedule is simulated with 1 for a forward and 2 for a backward. Spans are what ranks
        measured in one step, ``ranks.run(lambda: pipe.clock.spans)``, and come in milliseconds:
        simulate what stands beside them in milliseconds too.
    names : list of str, optional
        What each is called; by default a schedule's own name, and "measured" for spans.
    unit : str, optional
        Of the times; by default ``ms`` where there are spans, else forwards of one rank.

    Raises
    ------
    ValueError
        Nothing to show, another number of names, or spans that are not one step of a
        `coursekit.parallel.Pipeline`.
    """
    if not shown or len(names or shown) != len(shown):
        raise ValueError(
            f"schedule needs something to show, and a name for each or no names, got {len(shown)} "
            f"and {len(names or ())} names; try show.schedule(pipeline.build('1f1b', 4, 8))"
        )
    times = [bars.timeline(each) for each in shown]
    called = names or [bars.name(each) for each in shown]
    if unit is None:
        spans = not all(isinstance(each, PipelineSchedule | Timeline) for each in shown)
        unit = "ms" if spans else text("pipeline.forwards")
    total = sum(WORDS + LINE * each.ranks for each in times)
    drawn = figure(
        title={"text": text("pipeline.schedule"), "y": 1, "yanchor": "top", "pad": {"t": 12}},
        height=total + 140,
        margin={"t": 86, "b": 54},
        **bars.look(unit, max(each.end for each in times)),
    )
    top, listed = total, set[str]()
    for number, (each, one) in enumerate(zip(shown, times, strict=True), 1):
        ends = (top - WORDS - LINE * one.ranks, top - WORDS)
        top = ends[0]
        axis = "" if number == 1 else str(number)
        place = {"domain": [end / total for end in ends]}
        drawn.update_layout({f"yaxis{axis}": {**bars.lines(one.ranks), **place}})
        drawn.add_annotation(
            text=bars.told(called[number - 1], one, bars.peak(each, one)),
            x=0, xref="paper", xanchor="left", y=ends[1] / total, yref="paper", yanchor="bottom",
            showarrow=False,
        )  # fmt: skip
        for trace in bars.traces(one, bars.kinds(one)):
            drawn.add_trace(trace.update(yaxis=f"y{axis}", showlegend=trace.name not in listed))
            listed.add(trace.name)
    drawn.update_layout(xaxis={"anchor": f"y{len(times)}" if len(times) > 1 else "y"})
    return drawn


def bubble(
    cases: Sequence[Case],
    micro_batches: Sequence[int] = (1, 2, 4, 8, 16, 32, 64),
    measured: Mapping[Case, Mapping[int, float]] | None = None,
) -> go.Figure:
    """The idle share of the time against the number of micro-batches, by formula and measured.

    Parameters
    ----------
    cases : list of (name, ranks, chunks)
        A line each, by `coursekit.pipeline.bubble`, where its formula holds.
    micro_batches : list of int
        Where the formulas are asked.
    measured : mapping, optional
        By case: for some numbers of micro-batches the idle share, 0 to 1, such as
        ``1 - mean(measure.utilisation(spans))``.

    Raises
    ------
    ValueError
        No case or no number.
    """
    if not cases or not micro_batches:
        raise ValueError(f"bubble needs cases and numbers, got {cases!r} and {micro_batches!r}")
    drawn = figure(
        title={"text": text("pipeline.bubble")},
        height=440,
        margin={"t": 112},
        xaxis={"title": {"text": text("pipeline.count")}, "type": "log",
               "tickvals": list(micro_batches), "ticktext": [str(m) for m in micro_batches]},
        yaxis={"title": {"text": text("pipeline.idle")}, "rangemode": "tozero"},
    )  # fmt: skip
    points = measured or {}
    for number, case in enumerate(dict.fromkeys([*cases, *points])):
        colour = PALETTE[number % len(PALETTE)]
        shares = {m: share for m in micro_batches if (share := _share(case, m)) is not None}
        if case in cases:
            drawn.add_scatter(
                name=bars.title(case),
                x=list(shares),
                y=list(shares.values()),
                mode="lines",
                line={"color": colour, "width": 3, "dash": DASHES[number % len(DASHES)]},
            )
        if case in points:
            drawn.add_scatter(
                name=text("pipeline.seen", case=bars.title(case)),
                x=list(points[case]),
                y=[round(100 * share, 1) for share in points[case].values()],
                mode="markers",
                marker={"size": 11, "color": colour, "symbol": SYMBOLS[number % len(SYMBOLS)],
                        "line": {"color": INK, "width": 1}},
            )  # fmt: skip
    return drawn


def _share(case: Case, m: int) -> float | None:
    """Per cent of the time; None where the formula does not hold."""
    name, ranks, chunks = case
    try:
        lost = pipeline.bubble(name, ranks, m, chunks)
    except PipelineError:
        return None
    return round(float(100 * lost / (1 + lost)), 2)
