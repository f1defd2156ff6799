"""Bars of what one GPU must hold, against what it has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from coursekit.i18n import text
from coursekit.plan import Memory, Strategy
from coursekit.show._template import BAD, GOOD, INK, PALETTE, button_row, figure

GB = 1e9
PARTS = ("weights", "gradients", "optimizer", "activations")
COLOURS = dict(zip(PARTS, PALETTE, strict=False))

Ledger = Mapping[Strategy, Mapping[str, Memory]]


def memory_bars(ledger: Ledger, limit: float = 80 * GB) -> go.Figure:
    """Stacked bars, one a model, with a slider over the strategies and a button a model.

    Parameters
    ----------
    ledger : mapping
        From `coursekit.plan.ledger`: bytes a GPU by strategy, then by the model's title. Every
        strategy has the same models.
    limit : float
        Bytes that the GPU has; drawn as a line.

    Raises
    ------
    ValueError
        The ledger is empty.
    """
    if not ledger:
        raise ValueError(
            "a ledger must have a strategy, got none; try plan.ledger(plan.models('llama2-7b'))"
        )
    strategies = list(ledger)
    titles = list(ledger[strategies[0]])
    parts = _used(ledger)
    drawn = figure(
        barmode="stack",
        bargap=0.45,
        height=520,
        title=_title(strategies[0]),
        margin={"t": 96, "r": 64, "b": 132},
        xaxis={"range": [-0.5, len(titles) - 0.5], "fixedrange": True, "showgrid": False},
        yaxis={
            "title": {"text": text("memory.axis")},
            "range": [0, _ceiling(limit)],
            "domain": [0, 0.84],
        },
        yaxis2={"domain": [0.86, 1], "range": [0, 1], "visible": False, "fixedrange": True},
        legend={"x": 1, "xanchor": "right", "traceorder": "normal"},
        sliders=[_slider(strategies)],
        updatemenus=[_buttons(ledger, titles, limit)],
    )
    drawn.add_traces(_traces(ledger[strategies[0]], parts, limit))
    drawn.frames = [
        go.Frame(
            name=str(each), data=_traces(ledger[each], parts, limit), layout={"title": _title(each)}
        )
        for each in strategies
    ]
    _draw_limit(drawn, limit)
    return drawn


def _used(ledger: Ledger) -> list[str]:
    rows = [memory for row in ledger.values() for memory in row.values()]
    return [part for part in PARTS if any(getattr(memory, part) for memory in rows)]


def _traces(row: Mapping[str, Memory], parts: Iterable[str], limit: float) -> list[Any]:
    titles = list(row)
    bars = [
        go.Bar(
            name=text(f"memory.{part}"),
            x=titles,
            y=[round(getattr(memory, part) / GB, 3) for memory in row.values()],
            marker={"color": COLOURS[part]},
            hovertemplate="%{x}<br>%{y:.1f} GB",
        )
        for part in parts
    ]
    return [*bars, _verdicts(row, titles, limit)]


def _verdicts(row: Mapping[str, Memory], titles: Sequence[str], limit: float) -> go.Scatter:
    """The totals, always in sight above the bars, however far those reach beyond the axis."""
    fits = [memory.fits(limit) for memory in row.values()]
    words = [text("memory.fits" if good else "memory.too_big") for good in fits]
    totals = [_gb(memory.gb) for memory in row.values()]
    return go.Scatter(
        x=titles,
        y=[0.45] * len(titles),
        yaxis="y2",
        mode="text",
        text=[f"<b>{total}</b><br>{word}" for total, word in zip(totals, words, strict=True)],
        textfont={"color": [GOOD if good else BAD for good in fits], "size": 15},
        hoverinfo="skip",
        showlegend=False,
    )


def _gb(amount: float) -> str:
    return f"{amount:,.0f} GB" if amount >= 200 else f"{amount:.1f} GB"


def _ceiling(limit: float) -> float:
    """The top of the axis: room for three cards and for the totals."""
    return 3.2 * limit / GB


def _title(strategy: Strategy) -> dict[str, str]:
    name = text("memory.one") if strategy.gpus == 1 else str(strategy)
    return {"text": f"<b>{name}</b>  \N{MIDDLE DOT}  {text('memory.gpus', gpus=strategy.gpus)}"}


def _slider(strategies: Iterable[Strategy]) -> dict[str, Any]:
    steps = [
        {
            "label": str(each).replace(" ", "<br>") if each.gpus > 1 else text("memory.one"),
            "method": "animate",
            "args": [[str(each)], {"mode": "immediate", "frame": {"redraw": True, "duration": 0}}],
        }
        for each in strategies
    ]
    return {
        "steps": steps,
        "currentvalue": {"visible": False},
        "pad": {"t": 36},
        "len": 1.0,
        "bgcolor": INK,
        "bordercolor": INK,
        "activebgcolor": BAD,
        "tickcolor": INK,
        "font": {"size": 11},
    }


def _buttons(ledger: Ledger, titles: Sequence[str], limit: float) -> dict[str, Any]:
    """Buttons move the axes only, frames change the data only: so each leaves the other alone."""
    whole = {"xaxis.range": [-0.5, len(titles) - 0.5], "yaxis.range": [0, _ceiling(limit)]}
    buttons = [{"label": text("memory.all"), "method": "relayout", "args": [whole]}]
    for number, title in enumerate(titles):
        largest = max(row[title].gb for row in ledger.values())
        top = max(1.3 * limit / GB, min(1.25 * largest, 5 * limit / GB))
        ranges = {"xaxis.range": [number - 0.7, number + 0.7], "yaxis.range": [0, round(top)]}
        buttons.append({"label": title, "method": "relayout", "args": [ranges]})
    return button_row(buttons, 1.02, below=4)


def _draw_limit(drawn: go.Figure, limit: float) -> None:
    drawn.add_hline(y=limit / GB, line={"color": BAD, "width": 2, "dash": "dash"})
    drawn.add_annotation(
        text=text("memory.limit", limit=f"{limit / GB:g} GB"),
        font={"color": BAD},
        showarrow=False,
        xref="paper",
        x=1.005,
        xanchor="left",
        y=limit / GB,
    )
