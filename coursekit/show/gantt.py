"""Who worked when: bars in time, a line for each rank's computing and communicating."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import plotly.graph_objects as go

from coursekit.i18n import text
from coursekit.measure import Span, utilisation
from coursekit.show._template import GRID, INK, PALETTE, figure

COLOURS = {
    "forward": PALETTE[0],
    "backward": PALETTE[1],
    "all_reduce": PALETTE[3],
    "send": PALETTE[2],
    "step": PALETTE[4],
    "wait": GRID,
}


def gantt(spans: Sequence[Sequence[Span]]) -> go.Figure:
    """Bars of what ranks did, from the first one's start.

    Parameters
    ----------
    spans : list of list of Span
        One list a rank, such as ``ranks.run(lambda: model.clock.spans)``. Ranks of one machine
        share a clock; with several machines the lines of each are shifted against each other.

    Returns
    -------
    plotly.graph_objects.Figure
        A line for each rank and lane; that of computing says the rank's utilisation.

    Raises
    ------
    ValueError
        There is no span.
    """
    flat = list(chain.from_iterable(spans))
    if not flat:
        raise ValueError("gantt needs spans, got none; run a step and give it clock.spans")
    zero = min(span.start for span in flat)
    lines = _lines(spans)
    drawn = figure(
        title={"text": text("parallel.gantt")},
        barmode="overlay",
        bargap=0.25,
        height=150 + 34 * len(lines),
        xaxis={"title": {"text": text("parallel.time")}},
        yaxis={"autorange": "reversed", "categoryarray": list(lines.values()), "showgrid": False},
        legend={"x": 1, "xanchor": "right"},
    )
    for kind in dict.fromkeys(span.kind for span in flat):
        drawn.add_trace(_bars(kind, [s for s in flat if s.kind == kind], lines, zero))
    return drawn


def _lines(spans: Sequence[Sequence[Span]]) -> dict[tuple[int, str], str]:
    """The name of each line, by rank and lane."""
    lines: dict[tuple[int, str], str] = {}
    for own, share in zip(spans, utilisation(spans), strict=True):
        rank = own[0].rank if own else -1
        lanes = {span.lane for span in own}
        for lane in ("compute", "communicate"):
            if lane in lanes:
                key = "parallel.busy" if lane == "compute" else "parallel.lane"
                told = text(f"parallel.{lane}")
                lines[rank, lane] = text(key, rank=rank, lane=told, share=f"{share:.0%}")
    return lines


def _bars(kind: str, spans: list[Span], lines: dict[tuple[int, str], str], zero: float) -> go.Bar:
    known = kind in COLOURS
    return go.Bar(
        name=text(f"parallel.{kind}") if known else kind,
        orientation="h",
        y=[lines[s.rank, s.lane] for s in spans],
        base=[round((s.start - zero) * 1e3, 3) for s in spans],
        x=[round((s.end - s.start) * 1e3, 3) for s in spans],
        customdata=[(s.label, (s.end - s.start) * 1e3) for s in spans],
        # Collectives that are under way together lie over each other: their edges show.
        marker={
            "color": COLOURS.get(kind, PALETTE[5]),
            "opacity": 0.6 if kind == "all_reduce" else 1,
            "line": {"width": 1.5 if kind == "all_reduce" else 0, "color": INK},
        },
        text=[s.label.rpartition(" ")[2] if kind == "all_reduce" else "" for s in spans],
        textposition="inside",
        insidetextanchor="start",
        hovertemplate="%{customdata[0]} %{customdata[1]:.2f} ms",
    )
