"""Bars of a pipeline's timeline, simulated or measured, and the words beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from coursekit import pipeline
from coursekit.i18n import text
from coursekit.measure import Span
from coursekit.pipeline import Action, Bar, PipelineSchedule, Timeline
from coursekit.show._template import GRID, PALETTE

COLOURS = {"F": PALETTE[0], "B": PALETTE[1], "I": PALETTE[4], "W": PALETTE[3]}
# Pixels of a rank's line, and of the words above a panel.
LINE, WORDS = 30, 42

Case = tuple[str, int, int]
Kind = tuple[str, int]
Shown = PipelineSchedule | Timeline | Sequence[Sequence[Span]]


def timeline(shown: Shown) -> Timeline:
    """Simulated where it is a schedule; in milliseconds from the first start where it is spans."""
    if isinstance(shown, Timeline):
        return shown
    if isinstance(shown, PipelineSchedule):
        return simulated(shown)
    spans = [s for own in shown for s in own if s.lane == "compute"]
    try:
        zero = min(s.start for s in spans)
        bars = [
            Bar(s.rank, Action.parse(s.label), 1e3 * (s.start - zero), 1e3 * (s.end - zero))
            for s in spans
        ]
    except ValueError:
        raise ValueError(
            "spans must be those of one step of a parallel.Pipeline, labelled such as 2F5, got "
            f"{[s.label for s in spans[:3]]}; run clock.clear(), then a step, then take clock.spans"
        ) from None
    return Timeline(tuple(sorted(bars, key=lambda bar: (bar.end, bar.start))), len(shown))


def simulated(made: PipelineSchedule) -> Timeline:
    """With 1 for a rank's forward and 2 for its backward, whole numbers where they can be."""
    v = made.chunks
    return pipeline.simulate(made, 1, 2) if v == 1 else pipeline.simulate(made, 1 / v, 2 / v)


def name(shown: Shown) -> str:
    """What it is called unless told otherwise."""
    if isinstance(shown, PipelineSchedule):
        return shown.name
    return text("pipeline.simulated" if isinstance(shown, Timeline) else "pipeline.measured")


def peak(shown: Shown, time: Timeline) -> float:
    """The most micro-batches that a rank holds, from the order in which it worked."""
    if not isinstance(shown, PipelineSchedule):
        bars = sorted(time.bars, key=lambda bar: (bar.start, bar.end))
        orders = [[bar.action for bar in bars if bar.rank == rank] for rank in range(time.ranks)]
        shown = PipelineSchedule.of(orders, stages=_chunks(time) * time.ranks)
    return max(pipeline.peak(shown)) / shown.chunks


def _chunks(time: Timeline) -> int:
    return max(bar.action.stage for bar in time.bars) // time.ranks + 1


def told(name: str, time: Timeline, most: float) -> str:
    """The words above a panel."""
    idle = float(time.bubble / (1 + time.bubble))
    return text("pipeline.told", name=name, idle=f"{idle:.0%}", peak=f"{most:.3g}")


def title(case: Case) -> str:
    """A case's name, with its ranks and chunks."""
    name, ranks, chunks = case
    key = "pipeline.case" if chunks == 1 else "pipeline.case_chunks"
    return text(key, name=name, ranks=ranks, chunks=chunks)


def look(unit: str, end: float) -> dict[str, Any]:
    """The layout of bars in time, up to `end`."""
    return {
        "barmode": "overlay",
        "bargap": 0.1,
        "uniformtext": {"minsize": 7, "mode": "hide"},
        "legend": {"y": 1, "traceorder": "normal"},
        "xaxis": {
            "title": {"text": text("pipeline.time", unit=unit)},
            "range": [0, end * 1.01],
            "zeroline": False,
        },
    }


def lines(ranks: int) -> dict[str, Any]:
    """An axis with a line a rank, the first one on top."""
    return {
        "range": [ranks - 0.5, -0.5],
        "tickvals": list(range(ranks)),
        "ticktext": [text("pipeline.rank", rank=rank) for rank in range(ranks)],
        "ticklabelstandoff": 5,
        "showgrid": False,
        "zeroline": False,
        "fixedrange": True,
    }


def kinds(time: Timeline) -> list[Kind]:
    """The phases and chunks that a timeline has."""
    phases = {bar.action.phase for bar in time.bars}
    return [
        (phase, chunk) for phase in COLOURS if phase in phases for chunk in range(_chunks(time))
    ]


def traces(time: Timeline, kinds: Sequence[Kind]) -> list[Any]:
    """What is idle lies below: a grey bar a rank; then the actions of each phase and chunk."""
    idle = go.Bar(
        name=text("pipeline.grey"),
        orientation="h",
        x=[_short(time.end) if time.bars else 0] * time.ranks,
        y=list(range(time.ranks)),
        marker={"color": GRID},
        hoverinfo="skip",
    )
    most = max(chunk for _, chunk in kinds)
    return [idle, *(_bars(time, phase, chunk, most) for phase, chunk in kinds)]


def _bars(time: Timeline, phase: str, chunk: int, most: int) -> go.Bar:
    name = text(f"pipeline.{phase}")
    if chunk:
        name = text("pipeline.chunk", phase=name, chunk=chunk)
    mine = [
        bar
        for bar in time.bars
        if (bar.action.phase, bar.action.stage // time.ranks) == (phase, chunk)
    ]
    return go.Bar(
        name=name,
        orientation="h",
        y=[bar.rank for bar in mine],
        base=[_short(bar.start) for bar in mine],
        x=[_short(bar.end - bar.start) for bar in mine],
        text=[bar.action.micro_batch for bar in mine],
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        insidetextfont={"color": "#ffffff"},
        marker={"color": _shade(COLOURS[phase], chunk, most)},
        hovertemplate=f"{name}, {text('pipeline.micro')} %{{text}}<br>"
        f"%{{y}}, {text('pipeline.span', start='%{base}', end='%{x}')}<extra></extra>",
    )


def _shade(colour: str, chunk: int, most: int) -> str:
    """Darker from chunk to chunk."""
    if not chunk:
        return colour
    keep = 1 - 0.4 * chunk / most
    return "#" + "".join(f"{round(int(colour[i : i + 2], 16) * keep):02x}" for i in (1, 3, 5))


def _short(time: float) -> float:
    near = round(float(time), 3)
    return int(near) if near.is_integer() else near
