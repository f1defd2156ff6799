"""A table of `nvidia-smi topo -m` in colours."""

from __future__ import annotations

import re

import plotly.graph_objects as go

from coursekit.i18n import text
from coursekit.show._template import INK, figure
from coursekit.show._tint import bands
from coursekit.topology import Table

# From the best to the worst; NVLink is the darker, the more links there are. Black or white words.
CLASSES = (
    ("NV8+", "#1f6f66", "#ffffff"), ("NV2-7", "#4fa79d", "#000000"), ("NV1", "#a3d5cd", "#000000"),
    ("XGMI", "#1f6f66", "#ffffff"), ("PIX", "#b9d0f2", "#000000"), ("PXB", "#8fb3e6", "#000000"),
    ("PHB", "#f6dfb0", "#000000"), ("NODE", "#f0bf73", "#000000"), ("SYS", "#d9603b", "#ffffff"),
    ("X", "#9aa1aa", "#000000"), ("?", "#d8dbdf", "#000000"),
)  # fmt: skip
NAMES = [name for name, _, _ in CLASSES]
MOST = 32


def matrix_table(table: Table, title: str = "") -> go.Figure:
    """GPUs by GPUs and network cards, each cell with its class and coloured by it.

    Parameters
    ----------
    table : Table
        From `coursekit.topology.parse` or `coursekit.topology.table`.
    title : str
        Above it; by default what the colours are.

    Raises
    ------
    ValueError
        More than 32 columns.

    Examples
    --------
    >>> show.matrix_table(topology.table("dgx1v"))
    """
    columns = [*table.gpus, *table.nics]
    if len(columns) > MOST:
        raise ValueError(f"a table is drawn with at most {MOST} columns, got {len(columns)}")
    told = [[_class(table, a, b) for b in columns] for a in table.gpus]
    drawn = figure(
        title={"text": title or text("machine.table")},
        height=96 + 32 * len(table.gpus),
        margin={"t": 78, "b": 8, "l": 8, "r": 8},
        xaxis={"side": "top", "showgrid": False, "zeroline": False, "fixedrange": True,
               "tickvals": list(range(len(columns))), "ticktext": columns, "tickangle": 0,
               "range": [-0.5, max(len(columns), 8) - 0.5], "tickfont": {"size": 11}},
        yaxis={"autorange": "reversed", "showgrid": False, "zeroline": False, "fixedrange": True,
               "tickvals": list(range(len(table.gpus))), "ticktext": list(table.gpus)},
    )  # fmt: skip
    drawn.add_heatmap(
        z=[[NAMES.index(_band(kind)) for kind in row] for row in told],
        zmin=-0.5, zmax=len(NAMES) - 0.5, colorscale=bands([shade for _, shade, _ in CLASSES]),
        showscale=False, xgap=2, ygap=2,
        text=[[text("machine.cell", a=a, b=b, kind=kind) for b, kind in zip(columns, row,
              strict=True)] for a, row in zip(table.gpus, told, strict=True)],
        hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip
    for ink in ("#000000", "#ffffff"):
        drawn.add_trace(_words(told, ink))
    if table.nics:
        edge = len(table.gpus) - 0.5
        drawn.add_vline(edge, line={"color": INK, "width": 2})
    return drawn


def _class(table: Table, a: str, b: str) -> str:
    return "X" if a == b else table.link(a, b) or text("machine.unknown")


def _band(kind: str) -> str:
    if found := re.fullmatch(r"NV(\d+)", kind):
        many = int(found[1])
        return "NV8+" if many >= 8 else "NV2-7" if many >= 2 else "NV1"
    if kind.startswith(("XGMI", "PCIE")):
        return "XGMI" if kind.startswith("XGMI") else "SYS"
    return {"SOC": "SYS"}.get(kind, kind if kind in NAMES else "?")


def _words(told: list[list[str]], ink: str) -> go.Scatter:
    inks = {name: words for name, _, words in CLASSES}
    cells = [(x, y, kind) for y, row in enumerate(told) for x, kind in enumerate(row)
             if inks[_band(kind)] == ink]  # fmt: skip
    return go.Scatter(
        x=[x for x, _, _ in cells], y=[y for _, y, _ in cells],
        text=[kind.partition("/")[0] for _, _, kind in cells], mode="text",
        textfont={"color": ink, "size": 11}, hoverinfo="skip", showlegend=False,
    )  # fmt: skip
