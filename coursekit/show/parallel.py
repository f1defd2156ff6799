"""Pictures of parallel modes: memory by stage, who holds which part, bytes against ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from coursekit.i18n import text
from coursekit.plan import Memory
from coursekit.show._template import BAD, CLEAR, INK, PALETTE, figure

KIB, MIB = 1 << 10, 1 << 20
PARTS = ("weights", "gradients", "optimizer")


def stages(measured: Mapping[int, Mapping[str, int]], predicted: Mapping[int, Memory]) -> go.Figure:
    """Stacked bars of one rank's bytes by ZeRO stage, and frames around what was predicted.

    Parameters
    ----------
    measured : mapping
        By stage, 0 for plain data parallelism: what `parallel.Zero.memory` gave.
    predicted : mapping
        By stage: from `plan.gpu_memory(..., policy="fp32")`.

    Raises
    ------
    ValueError
        The two have different stages.
    """
    if set(measured) != set(predicted) or not measured:
        raise ValueError(
            f"both must have the same stages, got {sorted(measured)} and {sorted(predicted)}"
        )
    names = [
        text("parallel.stage", stage=stage) if stage else text("parallel.stage0")
        for stage in measured
    ]
    drawn = figure(
        title={"text": text("parallel.stages")},
        barmode="stack",
        bargap=0.4,
        height=420,
        yaxis={"title": {"text": text("parallel.kib")}},
        legend={"x": 1, "xanchor": "right", "traceorder": "normal"},
    )
    for part, colour in zip(PARTS, PALETTE, strict=False):
        amounts = [round(row[part] / KIB, 1) for row in measured.values()]
        drawn.add_bar(
            name=text(f"memory.{part}"),
            x=names,
            y=amounts,
            marker={"color": colour, "opacity": 0.8},
        )
    drawn.add_trace(_frames(names, [predicted[stage] for stage in measured]))
    return drawn


def _frames(names: list[str], predicted: list[Memory]) -> go.Scatter:
    totals = [round(memory.total / KIB, 1) for memory in predicted]
    return go.Scatter(
        name=text("parallel.predicted"),
        x=names,
        y=totals,
        mode="markers+text",
        text=[f"{total:,.0f}" for total in totals],
        textposition="top center",
        cliponaxis=False,
        marker={"symbol": "line-ew", "size": 46, "line": {"width": 3, "color": INK}},
    )


def saturation(each: Mapping[int, float], measured: Mapping[int, float], limit: float) -> go.Figure:
    """Bytes that one rank sends against the number of ranks, the sum of all, and the limit.

    Parameters
    ----------
    each : mapping
        By number of ranks: predicted bytes that one rank sends.
    measured : mapping
        The same on the wire, for as many as were run.
    limit : float
        What `each` comes near, in bytes.

    Raises
    ------
    ValueError
        `each` is empty.
    """
    if not each:
        raise ValueError("saturation needs predicted bytes, got none; try plan.tp_volume")
    drawn = figure(
        title={"text": text("parallel.saturation")},
        height=430,
        xaxis={"title": {"text": text("parallel.degree")}, "type": "log", "tickvals": list(each)},
        yaxis={"title": {"text": text("parallel.mib")}, "type": "log"},
        legend={"x": 1, "xanchor": "right"},
        margin={"t": 110},
    )
    ranks = list(each)
    mib = {t: round(amount / MIB, 4) for t, amount in each.items()}
    together = [round(t * amount / MIB, 4) for t, amount in each.items()]
    lines: list[tuple[str, Any, list[float], dict[str, Any]]] = [
        ("each", ranks, list(mib.values()), {"color": PALETTE[0], "width": 3}),
        ("all", ranks, together, {"color": PALETTE[1], "width": 2}),
        ("limit", ranks, [round(limit / MIB, 4)] * len(ranks), {"color": BAD, "dash": "dash"}),
    ]
    for name, x, y, line in lines:
        drawn.add_scatter(name=text(f"parallel.{name}"), x=x, y=y, line=line, mode="lines")
    drawn.add_scatter(
        name=text("parallel.seen"),
        x=list(measured),
        y=[round(amount / MIB, 4) for amount in measured.values()],
        mode="markers",
        marker={"size": 11, "color": PALETTE[0], "line": {"color": INK, "width": 1}},
    )
    return drawn


def shards(first: Sequence[Sequence[int]], second: Sequence[Sequence[int]]) -> go.Figure:
    """The matrices of a pair, x A B, with each rank's parts in its colour.

    Parameters
    ----------
    first, second : list of shape
        One weight's shape for each rank, as torch stores it: (outputs, inputs). The first matrix is
        cut by columns, so outputs add up; the second by rows, so inputs do.

    Raises
    ------
    ValueError
        The shapes do not fit to each other.
    """
    hidden, inner = first[0][1], sum(shape[0] for shape in first)
    if len(first) != len(second) or inner != sum(shape[1] for shape in second):
        raise ValueError(
            f"the first one's outputs must be the second one's inputs, got {list(first)} and "
            f"{list(second)}"
        )
    drawn = figure(
        title={"text": text("parallel.shards")},
        height=380,
        xaxis={"visible": False, "range": [-0.3, 13.3], "fixedrange": True},
        yaxis={"visible": False, "range": [-0.9, 4.6], "fixedrange": True, "scaleanchor": "x"},
        legend={"x": 1, "xanchor": "right"},
        margin={"l": 8, "r": 8, "b": 8},
    )
    up = [shape[0] / inner for shape in first]
    down = [shape[1] / inner for shape in second]
    rows = 2.0
    _block(drawn, "X", (0, 2.0), (1, rows), [1.0], f"(b·s) × {hidden}", across=True, whole=True)
    _block(drawn, "A", (2.5, 3.6), (1, 2.0), up, f"{hidden} × {inner}", across=True)
    _block(drawn, "GELU(XA)", (6.6, 3.0), (1, rows), up, f"(b·s) × {inner}", across=True)
    _block(drawn, "B", (10.1, 1.4), (0.2, 3.6), down, f"{inner} × {hidden}", across=False)
    _block(drawn, "Z", (11.8, 1.4), (1, rows), [1.0], text("parallel.partial"), across=True,
           whole=True)  # fmt: skip
    for rank in range(len(first)):
        drawn.add_scatter(
            x=[None], y=[None], mode="markers", name=text("parallel.rank", rank=rank),
            marker={"symbol": "square", "size": 12, "color": PALETTE[rank % len(PALETTE)]},
        )  # fmt: skip
    return drawn


def _block(
    drawn: go.Figure,
    name: str,
    across_at: tuple[float, float],
    up_at: tuple[float, float],
    parts: Sequence[float],
    told: str,
    *,
    across: bool,
    whole: bool = False,
) -> None:
    """A matrix, cut side by side or one above the other; every rank has the whole of grey ones."""
    (left, width), (bottom, height) = across_at, up_at
    at = 0.0
    for rank, share in enumerate(parts):
        x0, x1 = (at, at + share) if across else (0.0, 1.0)
        y0, y1 = (0.0, 1.0) if across else (1 - at - share, 1 - at)
        drawn.add_shape(
            type="rect",
            x0=left + x0 * width, x1=left + x1 * width,
            y0=bottom + y0 * height, y1=bottom + y1 * height,
            fillcolor=CLEAR if whole else PALETTE[rank % len(PALETTE)],
            opacity=0.85, line={"color": INK, "width": 1.5},
        )  # fmt: skip
        at += share
    middle = left + width / 2
    if whole:
        drawn.add_annotation(
            x=middle, y=bottom + height / 2, text=text("parallel.everyone"), showarrow=False
        )
    drawn.add_annotation(x=middle, y=bottom + height + 0.32, text=f"<b>{name}</b>", showarrow=False)
    drawn.add_annotation(x=middle, y=bottom - 0.45, text=told, showarrow=False)
