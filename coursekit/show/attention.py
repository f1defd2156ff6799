"""Ring attention step by step: who has which keys and values, and which pairs are done."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from coursekit.i18n import text
from coursekit.show._player_parts import EMPTY, MOST_BANDS
from coursekit.show._template import INK, PALETTE, figure
from coursekit.show._tint import bands, tint
from coursekit.show.player import _buttons, _slider

MOST_POSITIONS = 64
OLD = 0.5
CHIPS, BARS = (0.53, 0.66), (0.74, 0.985)

Places = Sequence[Sequence[int]]


def ring_attention_player(
    places: Places, *, order: Sequence[Sequence[int]] | None = None, causal: bool = True
) -> go.Figure:
    """Play ring attention: left the pairs of a query and a key that are done, each in the colour of
    the rank that did it, strong in the step where it is done; in the middle whose keys and values
    lie where; right how much every rank has multiplied, and how long it waited for the others.

    Pairs that a causal mask hides stay empty. A block's work is counted as `parallel.pairs` counts:
    the queries that see something of it times the keys that are seen.

    Parameters
    ----------
    places : list of list of int
        The positions of each rank, ascending: `parallel.places(...).tolist()` of every rank.
    order : list of list of int, optional
        For each step and rank, whose keys and values are there; by default those of the rank
        before, then of the one before that, as in `parallel.ring_attention`.
    causal : bool
        A query sees no later key.

    Raises
    ------
    ValueError
        The positions are not those of one sequence, a rank's do not ascend, there are more than 8
        ranks or 64 positions, or an order names ranks that are not there.

    Examples
    --------
    >>> show.ring_attention_player([[0, 1, 6, 7], [2, 3, 4, 5]])
    """
    own = _checked(places)
    size = len(own)
    turns = _order(order, size)
    work = [[_pairs(own[r], own[o], causal) for r, o in enumerate(row)] for row in turns]
    steps = range(len(turns) + 1)
    drawn = figure(**_layout(own, turns, work, causal))
    drawn.add_traces(_traces(own, turns, work, causal, 0))
    drawn.frames = [_frame(_traces(own, turns, work, causal, step), step) for step in steps]
    return drawn


def _checked(places: Places) -> list[list[int]]:
    own = [[int(at) for at in part] for part in places]
    if not 1 <= len(own) <= MOST_BANDS:
        raise ValueError(
            f"the player shows 1 to {MOST_BANDS} ranks, got {len(own)}; cut for fewer ranks"
        )
    every = sorted(at for part in own for at in part)
    if every != list(range(len(every))) or any(part != sorted(part) or not part for part in own):
        raise ValueError(
            "places must be the positions of one sequence, each once, ascending in every rank, "
            "got others; try [parallel.places(16, r, 4).tolist() for r in range(4)]"
        )
    if len(every) > MOST_POSITIONS:
        raise ValueError(
            f"the player shows at most {MOST_POSITIONS} positions, got {len(every)}; the picture "
            "of a shorter sequence is the same"
        )
    return own


def _order(order: Sequence[Sequence[int]] | None, size: int) -> list[list[int]]:
    if order is None:
        return [[(rank - step) % size for rank in range(size)] for step in range(size)]
    turns = [[int(owner) for owner in row] for row in order]
    if any(len(row) != size or not set(row) <= set(range(size)) for row in turns):
        raise ValueError(f"order must name one of {size} ranks for each rank and step, got {turns}")
    return turns


def _pairs(mine: list[int], theirs: list[int], causal: bool) -> int:
    if not causal:
        return len(mine) * len(theirs)
    return (len(mine) - bisect_left(mine, theirs[0])) * bisect_right(theirs, mine[-1])


def _traces(
    own: list[list[int]], turns: list[list[int]], work: list[list[int]], causal: bool, step: int
) -> list[Any]:
    """Everything that changes, after `step` steps."""
    size = len(own)
    done = [sum(row[rank] for row in work[:step]) for rank in range(size)]
    time = sum(max(row) for row in work[:step])
    here = turns[step - 1] if step else list(range(size))
    return [
        _grid(own, turns, causal, step),
        _chips(here, size),
        _bar(done, [PALETTE[rank] for rank in range(size)], "work"),
        _bar([time - n for n in done], [EMPTY] * size, "wait"),
    ]


def _grid(own: list[list[int]], turns: list[list[int]], causal: bool, step: int) -> go.Heatmap:
    """A row a query: twice its rank, and one more in the step where the pair is done."""
    length, size = sum(map(len, own)), len(own)
    owner = {at: rank for rank, part in enumerate(own) for at in part}
    when = {(rank, o): n for n, row in enumerate(turns, 1) for rank, o in enumerate(row)}
    cells: list[list[int | None]] = []
    for query in range(length):
        rank = owner[query]
        row: list[int | None] = []
        for key in range(length):
            at = when.get((rank, owner[key]), len(turns) + 1)
            seen = 2 * rank + (at == step) if at <= step else 2 * size
            row.append(None if causal and key > query else seen)
        cells.append(row)
    shades = [shade for rank in range(size) for shade in (tint(PALETTE[rank], OLD), PALETTE[rank])]
    shades.append(EMPTY)
    return go.Heatmap(
        z=cells,
        zmin=-0.5,
        zmax=2 * size + 0.5,
        colorscale=bands(shades),
        showscale=False,
        hoverinfo="skip",
        xgap=1,
        ygap=1,
    )


def _chips(here: list[int], size: int) -> go.Heatmap:
    return go.Heatmap(
        x=[0],
        y=list(range(size)),
        z=[[owner] for owner in here],
        zmin=-0.5,
        zmax=size - 0.5,
        colorscale=bands(list(PALETTE[:size])),
        showscale=False,
        text=[[f"K{owner} V{owner}"] for owner in here],
        texttemplate="%{text}",
        textfont={"color": "#ffffff", "size": 13},
        hoverinfo="skip",
        ygap=10,
        xaxis="x2",
        yaxis="y2",
    )


def _bar(lengths: list[int], colours: list[str], key: str) -> go.Bar:
    return go.Bar(
        x=lengths,
        y=list(range(len(lengths))),
        orientation="h",
        width=0.62,
        marker={"color": colours, "line": {"width": 0}},
        text=[str(n) if n else "" for n in lengths],
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        insidetextfont={"color": "#ffffff" if key == "work" else INK, "size": 12},
        hovertemplate=text(f"attention.{key}_hover", rank="%{y}", pairs="%{x}") + "<extra></extra>",
        showlegend=False,
        xaxis="x3",
        yaxis="y2",
    )


def _frame(traces: list[Any], step: int) -> go.Frame:
    """Only what changes: a frame's trace takes all else from the figure's."""
    grid, chips, work, wait = traces
    changes = [
        go.Heatmap(z=grid.z),
        go.Heatmap(z=chips.z, text=chips.text),
        *(go.Bar(x=bar.x, text=bar.text) for bar in (work, wait)),
    ]
    return go.Frame(name=str(step), data=changes, traces=list(range(len(changes))))


def _layout(
    own: list[list[int]], turns: list[list[int]], work: list[list[int]], causal: bool
) -> dict[str, Any]:
    size, length = len(own), sum(map(len, own))
    total = sum(max(row) for row in work)
    busy = sum(map(sum, work)) / (total * size)
    # As long as attention without a mask takes, so that two players compare.
    longest = max(total, length * length / size)
    key = "causal" if causal else "full"
    head = text("attention.title", ranks=size, positions=length, mask=text(f"attention.{key}"))
    told = text("attention.told", total=f"{total:,}", busy=f"{busy:.0%}")
    ticks = list(range(0, length, max(1, length // 8)))
    fixed = {"fixedrange": True, "showgrid": False, "zeroline": False}
    ranks = {"tickvals": list(range(size)), "ticktext": [f"rank {r}" for r in range(size)]}
    ranks["ticklabelstandoff"] = 6
    return {
        "title": {"text": f"{head}<br><sub>{told}</sub>"},
        "height": 480,
        "margin": {"l": 56, "r": 12, "t": 100, "b": 8},
        "barmode": "stack",
        "xaxis": {**fixed, "domain": [0, 0.42], "range": [-0.5, length - 0.5], "tickvals": ticks}
        | {"title": {"text": text("attention.key")}, "constrain": "domain"},
        "yaxis": {**fixed, "range": [length - 0.5, -0.5], "tickvals": ticks}
        | {"title": {"text": text("attention.query")}, "scaleanchor": "x", "constrain": "domain"},
        "xaxis2": {**fixed, "domain": list(CHIPS), "range": [-0.5, 0.5], "visible": False}
        | {"anchor": "y2"},
        "yaxis2": {**fixed, "range": [size - 0.5, -0.5], **ranks, "anchor": "x2"},
        "xaxis3": {**fixed, "domain": list(BARS), "range": [0, longest * 1.02], "anchor": "y2"}
        | {"title": {"text": text("attention.pairs")}, "nticks": 5},
        "annotations": [
            _head((CHIPS[0] + CHIPS[1]) / 2, "center", "block"),
            _head(BARS[0], "left", "bars"),
        ],
        "modebar": {"remove": ["zoom", "pan", "select", "lasso", "toImage", "resetScale"]},
        "sliders": [_slider(len(turns)) | {"pad": {"t": 64, "b": 0}}],
        "updatemenus": [_buttons() | {"pad": {"t": 70, "r": 8}}],
    }


def _head(x: float, anchor: str, key: str) -> dict[str, Any]:
    place = {"x": x, "y": 1, "xref": "paper", "yref": "paper", "yanchor": "bottom", "yshift": 4}
    look = {"showarrow": False, "font": {"size": 12, "color": INK}}
    return {**place, **look, "xanchor": anchor, "text": text(f"attention.{key}")}
