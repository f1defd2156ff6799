"""Schedules that move: a stored figure with a slider, and a panel for a running kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from coursekit import pipeline
from coursekit.i18n import text
from coursekit.pipeline import PipelineError, Timeline
from coursekit.show import _pipeline_bars as bars
from coursekit.show._pipeline_bars import Case
from coursekit.show._template import BAD, INK, button_look, figure
from coursekit.show.pipeline import schedule

CASES: tuple[Case, ...] = (
    ("gpipe", 4, 1),
    ("1f1b", 4, 1),
    ("interleaved", 4, 2),
    ("zb-h1", 4, 1),
    ("1f1b", 2, 1),
    ("1f1b", 8, 1),
)


def pipelines(
    cases: Sequence[Case] = CASES, micro_batches: Sequence[int] = (1, 2, 4, 8, 16)
) -> go.Figure:
    """Schedules simulated with a slider over micro-batches and a list of the cases.

    Parameters
    ----------
    cases : list of (name, ranks, chunks)
        As `coursekit.pipeline.build` takes them; a forward of a rank takes 1, a backward 2.
    micro_batches : list of int
        The places of the slider. Where a schedule has no such number, the figure says so.

    Raises
    ------
    ValueError
        No case or no number.
    PipelineError
        There is no such schedule.
    """
    if not cases or not micro_batches:
        raise ValueError(f"pipelines needs cases and numbers, got {cases!r} and {micro_batches!r}")
    start, most = max(0, len(micro_batches) - 2), max(p for _, p, _ in cases)
    drawn = figure(
        title={"text": text("pipeline.pipelines")},
        height=250 + bars.LINE * most,
        margin={"t": 104, "b": 128},
        **bars.look(text("pipeline.forwards"), 1),
    )
    drawn.update_layout(
        yaxis={**bars.lines(cases[0][1]), "domain": [0, 0.88]},
        yaxis2={"domain": [0.9, 1], "range": [0, 1], "visible": False, "fixedrange": True},
    )
    moments = {m: [_moment(case, m) for case in cases] for m in micro_batches}
    for number, traces in enumerate(moments[micro_batches[start]]):
        drawn.add_traces([trace.update(visible=number == 0) for trace in traces])
    drawn.frames = [
        go.Frame(
            name=str(m),
            data=[_moving(trace) for traces in made for trace in traces],
            layout={"xaxis": {"range": [0, _end(made)]}},
        )
        for m, made in moments.items()
    ]
    drawn.update_layout(
        xaxis={"range": [0, _end(moments[micro_batches[start]])]},
        sliders=[_slider(micro_batches, start)],
        updatemenus=[_list(cases, [len(traces) for traces in moments[micro_batches[start]]])],
    )
    return drawn


def pipeline_explorer(
    name: str = "1f1b", ranks: int = 4, micro_batches: int = 8, chunks: int = 1
) -> Any:
    """Choose a schedule, its numbers and its times; the bars follow. Needs a running kernel.

    Parameters
    ----------
    name, ranks, micro_batches, chunks
        Where the controls stand at first.
    """
    import ipywidgets as widgets  # type: ignore[import-untyped]

    look = {"layout": widgets.Layout(width="300px"), "style": {"description_width": "110px"}}
    drag = {**look, "continuous_update": False}
    whole = {
        "ranks": (ranks, 1, 8),
        "micro_batches": (micro_batches, 1, 32),
        "chunks": (chunks, 1, 4),
    }
    times = {"forward": (1.0, 0.5, 4), "backward": (2.0, 0, 8), "p2p": (0.0, 0, 2)}
    controls: dict[str, Any] = {
        "name": widgets.Dropdown(
            options=pipeline.names(), value=name, description=text("pipeline.name"), **look
        )
    }  # fmt: skip
    for key, (value, low, high) in whole.items():
        controls[key] = widgets.IntSlider(
            value=value, min=low, max=high, description=text(f"pipeline.{key}"), **drag
        )
    for key, (first, least, most) in times.items():
        controls[key] = widgets.FloatSlider(
            value=first, min=least, max=most, step=0.25, description=text(f"pipeline.{key}"), **drag
        )
    picture = widgets.interactive_output(_draw, controls)
    row = widgets.HBox([*controls.values()], layout=widgets.Layout(flex_flow="row wrap"))
    return widgets.VBox([widgets.HTML(f"<b>{text('pipeline.explore')}</b>"), row, picture])


def _draw(
    name: str,
    ranks: int,
    micro_batches: int,
    chunks: int,
    forward: float,
    backward: float,
    p2p: float,
) -> None:
    from IPython.display import display

    try:
        made = pipeline.build(name, ranks, micro_batches, chunks)
        # A rank's time is the sum of its chunks'.
        f, b = forward / chunks, backward / chunks
        time = pipeline.simulate(made, f, b, p2p=p2p)
    except PipelineError as error:
        print(error)
        return
    display(schedule(time, names=[name], unit=text("pipeline.unit")))  # type: ignore[no-untyped-call]


def _moment(case: Case, m: int) -> list[Any]:
    """A case's traces for one number of micro-batches: always as many, the words at last."""
    name, ranks, chunks = case
    phases = "FIW" if name == "zb-h1" else "FB"
    kinds = [(phase, chunk) for phase in phases for chunk in range(chunks)]
    try:
        made = pipeline.build(name, ranks, m, chunks)
    except PipelineError:
        if name != "interleaved" or m % ranks == 0:
            raise
        time, words = Timeline((), ranks), text("pipeline.turns", name=name, ranks=ranks)
    else:
        time = bars.simulated(made)
        words = bars.told(bars.title(case), time, bars.peak(made, time))
    said = go.Scatter(
        x=[0], y=[0.5], yaxis="y2", mode="text", text=[words], textposition="middle right",
        textfont={"size": 14}, hoverinfo="skip", showlegend=False, cliponaxis=False,
    )  # fmt: skip
    return [*bars.traces(time, kinds), said]


def _moving(trace: Any) -> dict[str, Any]:
    """What a frame changes of a trace: a stored figure has all the rest once."""
    whole = trace.to_plotly_json()
    return {key: whole[key] for key in ("type", "x", "y", "base", "text") if key in whole}


def _end(moment: Sequence[Sequence[Any]]) -> float:
    """Of the axis: one for all cases, so that their lengths compare."""
    return float(max(max(traces[0].x) for traces in moment) * 1.01)


def _slider(micro_batches: Sequence[int], start: int) -> dict[str, Any]:
    at_once = {"mode": "immediate", "frame": {"redraw": True, "duration": 0}}
    return {
        "active": start,
        "steps": [
            {"label": str(m), "method": "animate", "args": [[str(m)], at_once]}
            for m in micro_batches
        ],
        "currentvalue": {"prefix": text("pipeline.slide"), "font": {"size": 14}},
        "pad": {"t": 44},
        "bgcolor": INK,
        "bordercolor": INK,
        "activebgcolor": BAD,
        "tickcolor": INK,
    }


def _list(cases: Sequence[Case], counts: Sequence[int]) -> dict[str, Any]:
    """The list changes what is visible and the lines, frames the data: neither the other's."""
    buttons = []
    for number, case in enumerate(cases):
        visible = [n == number for n, count in enumerate(counts) for _ in range(count)]
        axis = {f"yaxis.{key}": value for key, value in bars.lines(case[1]).items()}
        buttons.append(
            {"label": bars.title(case), "method": "update", "args": [{"visible": visible}, axis]}
        )
    place = {"x": 1, "xanchor": "right", "y": 1.12, "yanchor": "bottom"}
    return {"type": "dropdown", "buttons": buttons, "showactive": True, **place, **button_look()}
