"""The look of every figure: one small template that reads on white and on black.

The page shines through, and every colour of text or ink has about the same contrast to both.
"""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

INK = "#7f868f"
GRID = "rgba(127, 134, 143, 0.22)"
CLEAR = "rgba(0, 0, 0, 0)"
GOOD = "#2f9e5b"
BAD = "#e5484d"
# Told apart by colour-blind readers, and by lightness in print.
PALETTE = ("#4484d6", "#e08a1e", "#8a68c8", "#2f9e93", "#d0588f", "#8c9a2b", "#b0703c", "#5b7083")
FONT = "system-ui, -apple-system, 'Segoe UI', 'Noto Sans CJK SC', 'PingFang SC', sans-serif"


def template() -> go.layout.Template:
    """The template as plotly wants it."""
    axis = {
        "automargin": True,
        "gridcolor": GRID,
        "linecolor": INK,
        "ticks": "",
        "title": {"font": {"size": 13}, "standoff": 8},
        "zerolinecolor": GRID,
    }
    layout = {
        "colorway": PALETTE,
        "font": {"color": INK, "family": FONT, "size": 13},
        "hoverlabel": {"font": {"family": FONT}},
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"},
        "margin": {"l": 56, "r": 24, "t": 84, "b": 48},
        "paper_bgcolor": CLEAR,
        "plot_bgcolor": CLEAR,
        "title": {"font": {"size": 16}, "x": 0, "xanchor": "left", "xref": "paper", "y": 0.97},
        "xaxis": axis,
        "yaxis": axis,
    }
    return go.layout.Template(layout=layout)


def figure(**layout: object) -> go.Figure:
    """An empty figure with the course's look."""
    return go.Figure(layout={"template": template(), **layout})


def button_look() -> dict[str, object]:
    """Colours of buttons: plotly's own are white on any page."""
    return {"bgcolor": "rgba(127, 134, 143, 0.14)", "bordercolor": GRID, "font": {"color": INK}}


def button_row(buttons: list[dict[str, Any]], y: float, below: int = 0) -> dict[str, Any]:
    """Buttons in a row above the figure, at its left."""
    place = {"x": 0, "xanchor": "left", "y": y, "yanchor": "bottom", "pad": {"t": 0, "b": below}}
    look = {**button_look(), "showactive": False}
    return {"type": "buttons", "direction": "right", "buttons": buttons, **place, **look}
