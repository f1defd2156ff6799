"""Communication libraries: what NCCL has for a collective, and measured libraries side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from coursekit.cost import nccl
from coursekit.cost.nccl._rules import Situation, reasons
from coursekit.i18n import text
from coursekit.measure import Row, Sweep
from coursekit.show._axes import colour, digits, size_axis, size_label, time_axis
from coursekit.show._template import BAD, INK, figure
from coursekit.show.traffic import SCALE

COLUMNS = ("Ring", "Tree", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
ROWS = {
    "all_reduce": "AllReduce",
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "broadcast": "Broadcast",
    "reduce": "Reduce",
}
# From none to on; symbols say the same as colours.
STATES = ("none", "excluded", "off", "on")
SYMBOLS = {"none": "", "excluded": "\N{MULTIPLICATION SIGN}", "off": "\N{WHITE CIRCLE}"}
SYMBOLS["on"] = "\N{CHECK MARK}"
TINTS = ("rgba(127, 134, 143, 0.10)", "#f3c9a0", SCALE[0][1], SCALE[2][1])
INKS = {"excluded": "#7a3f00", "off": "#1d4583", "on": "#ffffff"}

MPI = "mpi:"
# Open MPI's names of what the course has under another.
ALIASES = {"rabenseifner": "halving_doubling", "segmented_ring": "ring"}
SHAPES = {"library": "circle", "own": "diamond-open", "mpi": "square"}
DASHES = {"library": "solid", "own": "dot", "mpi": "solid"}


@dataclass(frozen=True)
class _Cell:
    state: str
    why: str


def algorithms_table(
    algo: str | None = None,
    version: str = "2.30",
    *,
    nodes: int = 1,
    ranks_per_node: int = 8,
    nvls: bool = True,
) -> go.Figure:
    """Which of NCCL's algorithms serves which collective, and what NCCL_ALGO leaves of it.

    A tick: NCCL may choose it. A circle: it has a kernel, and NCCL leaves it off on such a
    machine unless asked. A cross: NCCL_ALGO leaves it out. Empty: there is no kernel. Rows where
    nothing can be chosen are red: calling that collective is an error.

    Parameters
    ----------
    algo : str, optional
        A value of NCCL_ALGO; without it, NCCL's own defaults.
    version : str
        The NCCL that reads it, any from 2.5 on.
    nodes, ranks_per_node, nvls
        The machine, as for `coursekit.cost.nccl.left_without`.

    Raises
    ------
    ValueError
        That version would refuse the text (NcclError).

    Examples
    --------
    >>> show.algorithms_table("Tree", "2.27")
    """
    setting = None if algo is None else nccl.parse_algo(algo, version)
    at = nccl.parse_algo("", version).version
    where = Situation(at, nodes, ranks_per_node, nvls, ll128=True)
    table = {}
    for collective in ROWS:
        off = reasons(collective, where, setting, None)
        table[collective] = [_cell(collective, name, off) for name in COLUMNS]
    stuck = [c for c, cells in table.items() if all(cell.state != "on" for cell in cells)]
    key = "defaults" if algo is None else "setting"
    drawn = figure(
        title={"text": text(f"libraries.{key}", version=version, algo=algo or "")},
        height=150 + 44 * len(ROWS),
        margin={"t": 92, "b": 44, "r": 24},
    )
    drawn.add_trace(_heat(table))
    drawn.layout.annotations = [
        *_symbols(table),
        _legend({c.state for r in table.values() for c in r}),
    ]
    drawn.update_xaxes(
        side="top",
        showgrid=False,
        fixedrange=True,
        tickangle=0,
        tickmode="array",
        tickvals=list(COLUMNS),
        ticktext=[name.replace("CollNet", "CollNet<br>") for name in COLUMNS],
    )
    drawn.update_yaxes(
        autorange="reversed",
        showgrid=False,
        fixedrange=True,
        tickmode="array",
        tickvals=list(ROWS.values()),
        ticktext=[_row_name(c, c in stuck) for c in ROWS],
    )
    return drawn


def _cell(collective: str, name: str, off: dict[tuple[str, str], str]) -> _Cell:
    whys = {protocol: why for (algorithm, protocol), why in off.items() if algorithm == name}
    if name not in nccl.served[collective]:
        return _Cell("none", whys["Simple"])
    if not all(whys.values()):
        on = ", ".join(protocol for protocol, why in whys.items() if not why)
        return _Cell("on", text("libraries.protocols", names=on))
    excluded = whys["Simple"].startswith("NCCL_")
    return _Cell("excluded" if excluded else "off", whys["Simple"])


def _heat(table: dict[str, list[_Cell]]) -> go.Heatmap:
    last = len(STATES) - 1
    scale = [
        stop
        for number, tint in enumerate(TINTS)
        for stop in ((number / len(TINTS), tint), ((number + 1) / len(TINTS), tint))
    ]
    return go.Heatmap(
        x=list(COLUMNS),
        y=list(ROWS.values()),
        z=[[STATES.index(cell.state) for cell in cells] for cells in table.values()],
        customdata=[[cell.why for cell in cells] for cells in table.values()],
        hovertemplate="<b>%{y}, %{x}</b><br>%{customdata}<extra></extra>",
        colorscale=scale,
        zmin=0,
        zmax=last,
        showscale=False,
        xgap=3,
        ygap=3,
    )


def _symbols(table: dict[str, list[_Cell]]) -> list[dict[str, Any]]:
    return [
        {
            "x": name,
            "y": ROWS[collective],
            "text": SYMBOLS[cell.state],
            "font": {"size": 15, "color": INKS[cell.state]},
            "showarrow": False,
        }
        for collective, cells in table.items()
        for name, cell in zip(COLUMNS, cells, strict=True)
        if SYMBOLS[cell.state]
    ]


def _legend(states: set[str]) -> dict[str, Any]:
    words = [text(f"libraries.state_{s}", symbol=SYMBOLS[s]) for s in STATES[::-1] if s in states]
    place = {"x": 0, "xref": "paper", "xanchor": "left", "y": 0, "yref": "paper"}
    look = {"yanchor": "top", "yshift": -8, "showarrow": False, "font": {"color": INK}}
    return {"text": text("libraries.joint").join(words), **place, **look}


def _row_name(collective: str, stuck: bool) -> str:
    if not stuck:
        return ROWS[collective]
    return f'<b style="color:{BAD}">{text("libraries.stuck", name=ROWS[collective])}</b>'


def libraries(
    sweep: Sweep,
    names: Sequence[str] | None = None,
    *,
    cross: tuple[str, str] | None = None,
    predicted: float | None = None,
) -> go.Figure:
    """Measured time over message size: one colour an algorithm, one shape a library.

    Parameters
    ----------
    sweep : Sweep
        From `measure.sweep` with algorithms of several libraries: ``library``, the course's own,
        and Open MPI's, such as ``mpi:ring``.
    names : sequence of str, optional
        Which of them to draw; all by default.
    cross : pair of str, optional
        Two algorithms; a ring marks from where on the second one is the faster.
    predicted : float, optional
        Bytes at which they were predicted to cross: a dotted line.

    Raises
    ------
    ValueError
        A sweep without rows, or a name that is not in it.

    Examples
    --------
    >>> show.libraries(sweep, cross=("mpi:recursive_doubling", "mpi:ring"), predicted=48e3)
    """
    if not sweep.rows:
        raise ValueError("a sweep must have rows to be drawn, got none; measure some sizes")
    shown = [row for name in names or sweep.algorithms for row in _rows(sweep, name)]
    sizes = [row.size for row in shown]
    times = [time for row in shown for time in (row.low_us, row.high_us)]
    drawn = figure(
        height=480,
        title={
            "text": text("libraries.title", collective=sweep.collective, ranks=sweep.ranks),
            "y": 0.97,
        },
        margin={"t": 56, "b": 112},
        legend={"yref": "container", "y": 0.01, "yanchor": "bottom"},
        xaxis={**size_axis(min(sizes), max(sizes)), "title": {"text": text("curves.size")}},
        yaxis={
            **time_axis(min(times) / 1.5, max(times) * 1.5),
            "title": {"text": text("curves.time_axis")},
        },
    )
    drawn.add_traces([_curve(sweep, name) for name in names or sweep.algorithms])
    at = None if cross is None else sweep.crossing(*cross)
    if cross is not None and at is not None:
        drawn.add_trace(_ring(sweep, cross, at))
    if predicted is not None and min(sizes) <= predicted <= max(sizes):
        _dotted(drawn, predicted)
    return drawn


def _rows(sweep: Sweep, name: str) -> list[Row]:
    rows = sweep.of(name)
    if not rows:
        raise ValueError(
            f"names must be of {', '.join(sweep.algorithms)}, got {name!r}; leave them out for all"
        )
    return rows


def _curve(sweep: Sweep, name: str) -> go.Scatter:
    kind = "mpi" if name.startswith(MPI) else name if name == "library" else "own"
    rows, label = sweep.of(name), _label(name, sweep.backend)
    tint = _colour(sweep.collective, name)
    return go.Scatter(
        name=label,
        x=[row.size for row in rows],
        y=[digits(row.time_us) for row in rows],
        mode="lines+markers",
        line={"color": tint, "width": 2, "dash": DASHES[kind]},
        marker={"symbol": SHAPES[kind], "size": 8, "color": tint},
        error_y=_bars(rows, tint),
        customdata=[[size_label(row.size), row.algbw] for row in rows],
        hovertemplate=(
            f"<b>{label}</b><br>%{{customdata[0]}}: %{{y:,}} µs"
            "<br>algbw %{customdata[1]:.4g} GB/s<extra></extra>"
        ),
    )


def _bars(rows: list[Row], tint: str) -> dict[str, Any]:
    return {
        "type": "data",
        "symmetric": False,
        "array": [digits(row.high_us - row.time_us) for row in rows],
        "arrayminus": [digits(row.time_us - row.low_us) for row in rows],
        "thickness": 1,
        "width": 2,
        "color": tint,
    }


def _label(name: str, backend: str) -> str:
    """``ring · Open MPI``; a backend's own collective has its name alone."""
    if name == "library":
        return backend
    if not name.startswith(MPI):
        return text("libraries.own", name=name, backend=backend)
    own = name.removeprefix(MPI)
    return "Open MPI" if own == "default" else f"{own} \N{MIDDLE DOT} Open MPI"


def _colour(collective: str, name: str) -> str:
    own = name.removeprefix(MPI)
    return INK if own == "default" else colour(collective, ALIASES.get(own, own))


def _ring(sweep: Sweep, cross: tuple[str, str], at: float) -> go.Scatter:
    words = text("libraries.cross", name=_label(cross[1], sweep.backend), size=size_label(at))
    return go.Scatter(
        x=[digits(at)],
        y=[digits(sweep.time_at(cross[1], at))],
        mode="markers+text",
        marker={"symbol": "circle-open", "size": 16, "color": INK, "line": {"width": 2.5}},
        text=[size_label(at)],
        textposition="bottom right",
        textfont={"color": INK},
        hovertemplate=f"{words}<extra></extra>",
        showlegend=False,
    )


def _dotted(drawn: go.Figure, predicted: float) -> None:
    drawn.add_vline(x=predicted, line={"color": INK, "width": 1.5, "dash": "dot"})
    drawn.add_annotation(
        text=text("libraries.predicted", size=size_label(predicted)),
        x=math.log10(predicted),  # plotly wants it so on logarithmic axes
        xref="x",
        y=1,
        yref="paper",
        xanchor="right",
        xshift=-6,
        yanchor="top",
        showarrow=False,
    )
