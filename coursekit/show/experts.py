"""Pictures of experts: which tokens go where, and how unevenly experts are loaded."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Literal

import plotly.graph_objects as go

from coursekit.i18n import text
from coursekit.show._template import BAD, INK, PALETTE, figure
from coursekit.show._tint import tint
from coursekit.show.traffic import SCALE

MOST_EXPERTS = 64
# Up to here every cell has its number.
NUMBERS = 12
FAINT = 0.45
# Of the height, between boxes and at most between all; of the width, where flows begin and end, and
# where the ranks stand.
GAP, GAPS = 0.042, 0.4
START, WIDE, HOLDERS = 0.12, 0.64, 0.82

Counts = Sequence[Sequence[int]]


def token_flow(sent: Counts, *, dropped: Sequence[int] | None = None) -> go.Figure:
    """Tokens from their ranks through experts to the ranks that hold these, as wide as they are.

    A token that visits two experts flows twice. Red flows are tokens that found their expert full.

    Parameters
    ----------
    sent : list of list of int
        For each source rank, how many tokens go to each expert: `Routed.load` of every rank.
        Experts lie on the ranks in order, as many on each.
    dropped : list of int, optional
        For each source rank, how many choices found no room.

    Raises
    ------
    ValueError
        Rows of different lengths, negative numbers, experts that the ranks do not divide.

    Examples
    --------
    >>> show.token_flow([[3, 1, 0, 2], [0, 2, 2, 2]], dropped=[0, 1])
    """
    table = _checked(sent, "ranks")
    size, experts = len(table), len(table[0])
    each = _each(experts, size)
    lost = [0] * size if dropped is None else [int(n) for n in dropped]
    if len(lost) != size or min(lost) < 0:
        raise ValueError(f"dropped must be one number from 0 up a rank, got {lost} for {size}")
    sources = [sum(row) + gone for row, gone in zip(table, lost, strict=True)]
    boxes = [*map(sum, zip(*table, strict=True)), *([sum(lost)] if any(lost) else [])]
    if not sum(sources):
        raise ValueError("a flow needs tokens, got none; route some first")
    tall = min(1200, max(260, 42 * max(experts + 1, size)))
    drawn = figure(
        title={"text": _flow_title(sum(boxes[:experts]), sum(lost))},
        height=tall + 100,
        margin={"l": 8, "r": 8, "t": 84, "b": 16},  # `tall` is what they leave
    )
    drawn.add_trace(_sankey(table, lost, sources, boxes, each))
    drawn.data[0].node.pad = round(_gap(boxes) * tall)
    drawn.layout.annotations = _words(sources, boxes, each)
    drawn.layout.shapes = _brackets(boxes, size, each)
    return drawn


def load(
    loads: Counts, *, over: Literal["ranks", "steps"] = "ranks", holders: int | None = None
) -> go.Figure:
    """A heat map of the tokens each expert gets; the title has the greatest load over the mean.

    Parameters
    ----------
    loads : list of list of int
        For each source rank, or each step, how many tokens go to each expert.
    over : {"ranks", "steps"}
        What the columns are.
    holders : int, optional
        The ranks that hold the experts, in order and as many on each: their names stand beside
        the experts, and the title says how uneven they are.

    Raises
    ------
    ValueError
        Rows of different lengths, negative numbers, another `over`, or experts that the holders do
        not divide.

    Examples
    --------
    >>> show.load([[3, 1, 0, 2], [0, 2, 2, 2]], holders=2)
    """
    if over not in ("ranks", "steps"):
        raise ValueError(f"over must be ranks or steps, got {over!r}; try over='steps'")
    table = _checked(loads, over)
    experts = len(table[0])
    each = _each(experts, holders) if holders else 0
    numbers = len(table) <= NUMBERS and experts <= NUMBERS
    drawn = figure(
        title={"text": _load_title(table, over, each)},
        height=max(300, (34 if experts <= NUMBERS else 16) * experts + 170),
        xaxis={"title": {"text": text(f"experts.{over}")}, "showgrid": False},
        yaxis={"autorange": "reversed", "showgrid": False, "ticklabelstandoff": 6},
        margin={"t": 84},
    )
    if len(table) <= NUMBERS:
        drawn.update_xaxes(tickvals=list(range(len(table))))
    names = [
        text("experts.held", expert=e, rank=e // each) if each else text("experts.name", expert=e)
        for e in range(experts)
    ]
    cells = [list(row) for row in zip(*table, strict=True)]
    told = text(f"experts.{over}_hover", column="%{x}", expert="%{y}", tokens="%{z}")
    drawn.add_heatmap(
        x=list(range(len(table))),
        y=names,
        z=cells,
        zmin=0,
        zmax=max(1, max(map(max, cells))),
        colorscale=[list(stop) for stop in SCALE],
        texttemplate="%{z}" if numbers else None,
        hovertemplate=told + "<extra></extra>",
        colorbar={"title": {"text": text("experts.tokens")}, "thickness": 12, "outlinewidth": 0},
        xgap=1 if numbers else 0,
        ygap=2,
    )
    for rank in range(1, holders or 0):
        drawn.add_hline(y=rank * each - 0.5, line={"color": INK, "width": 2})
    return drawn


def imbalance(tokens: Sequence[int]) -> float:
    """The greatest load over the mean; 1 when all are alike, and when there are no tokens."""
    total = sum(tokens)
    return max(tokens) * len(tokens) / total if total else 1.0


def _checked(rows: Counts, over: str) -> list[list[int]]:
    table = [[int(n) for n in row] for row in rows]
    lengths = {len(row) for row in table}
    if len(lengths) != 1 or lengths == {0}:
        raise ValueError(
            f"one row a {over[:-1]}, each with a number an expert, got rows of "
            f"{sorted(lengths) or 'nothing'}; take Routed.load of each"
        )
    if any(n < 0 for row in table for n in row):
        raise ValueError("tokens must be numbers from 0 up, got some below; count them anew")
    if len(table[0]) > MOST_EXPERTS:
        raise ValueError(
            f"a figure shows at most {MOST_EXPERTS} experts, got {len(table[0])}; cut some out"
        )
    return table


def _each(experts: int, ranks: int) -> int:
    if experts % ranks:
        raise ValueError(
            f"the ranks must divide the {experts} experts, got {ranks}; take "
            f"{-(-experts // ranks) * ranks} experts"
        )
    return experts // ranks


def _flow_title(kept: int, lost: int) -> str:
    if not lost:
        return text("experts.flow", kept=kept)
    return text("experts.flow_lost", kept=kept, lost=lost, share=f"{lost / (kept + lost):.0%}")


def _load_title(table: list[list[int]], over: str, each: int) -> str:
    head = text("experts.load")
    if over == "steps":
        first, last = (f"{imbalance(row):.2f}" for row in (table[0], table[-1]))
        return f"{head}<br><sub>{text('experts.steps_told', first=first, last=last)}</sub>"
    totals = [sum(column) for column in zip(*table, strict=True)]
    told = text("experts.most", ratio=f"{imbalance(totals):.2f}")
    if each:
        held = [sum(totals[at : at + each]) for at in range(0, len(totals), each)]
        told += text("experts.most_rank", ratio=f"{imbalance(held):.2f}")
    return f"{head}<br><sub>{told}</sub>"


def _words(sources: list[int], boxes: list[int], each: int) -> list[dict[str, Any]]:
    """Heads, and beside the flows what each box is and which rank holds it."""
    experts = len(sources) * each
    heads = [(0.0, "from"), (WIDE + 0.01, "expert"), (HOLDERS + 0.02, "at")]
    notes = [
        {"x": x, "y": 1, "yanchor": "bottom", "yshift": 8, "text": text(f"experts.{key}")}
        for x, key in heads
    ]
    for rank, (top, bottom) in enumerate(_spans(sources)):
        told = text("experts.source", rank=rank, tokens=sources[rank])
        place = {"x": START - 0.01, "y": 1 - (top + bottom) / 2, "xanchor": "right"}
        notes.append({**place, "text": f"<b>{told}</b>"})
    for number, (top, bottom) in enumerate(_spans(boxes)):
        key = "node" if number < experts else "full"
        told = text(f"experts.{key}", expert=number, tokens=boxes[number])
        notes.append({"x": WIDE + 0.01, "y": 1 - (top + bottom) / 2, "text": told})
    for rank in range(len(sources)):
        top, bottom = _held(boxes, rank, each)
        tokens = sum(boxes[rank * each : (rank + 1) * each])
        told = text("experts.source", rank=rank, tokens=tokens)
        notes.append({"x": HOLDERS + 0.02, "y": 1 - (top + bottom) / 2, "text": f"<b>{told}</b>"})
    look = {"xref": "paper", "yref": "paper", "xanchor": "left", "showarrow": False}
    return [{**look, "yanchor": "middle", "font": {"color": INK}, **note} for note in notes]


def _brackets(boxes: list[int], size: int, each: int) -> list[dict[str, Any]]:
    look = {"type": "rect", "xref": "paper", "yref": "paper", "line": {"width": 0}}
    place = {"x0": HOLDERS, "x1": HOLDERS + 0.008}
    spans = [_held(boxes, rank, each) for rank in range(size)]
    return [
        {**look, **place, "y0": 1 - bottom, "y1": 1 - top, "fillcolor": _colour(rank)}
        for rank, (top, bottom) in enumerate(spans)
    ]


def _sankey(
    table: list[list[int]], lost: list[int], sources: list[int], boxes: list[int], each: int
) -> go.Sankey:
    size, experts = len(table), len(table[0])
    links = [
        (rank, size + expert, tokens, _colour(rank))
        for rank, row in enumerate(table)
        for expert, tokens in enumerate(row)
    ]
    links += [(rank, size + experts, tokens, BAD) for rank, tokens in enumerate(lost)]
    links = [link for link in links if link[2]]
    middles = [(top + bottom) / 2 for part in (sources, boxes) for top, bottom in _spans(part)]
    names = [text("experts.name", expert=expert) for expert in range(experts)]
    return go.Sankey(
        arrangement="fixed",
        domain={"x": [START, WIDE]},
        node={
            "customdata": [*(f"rank {rank}" for rank in range(size)), *names, text("experts.lost")],
            "color": [
                *map(_colour, range(size)),
                *(_colour(expert // each) for expert in range(experts)),
                *([BAD] if any(lost) else []),
            ],
            # 0 and 1 would count as not given.
            "x": [0.001] * size + [0.999] * len(boxes),
            "y": [round(min(0.999, max(0.001, y)), 4) for y in middles],
            "thickness": 16,
            "line": {"width": 0},
            "hovertemplate": "%{customdata}: %{value}<extra></extra>",
        },
        link={
            "source": [link[0] for link in links],
            "target": [link[1] for link in links],
            "value": [link[2] for link in links],
            "color": [tint(link[3], FAINT) for link in links],
            "hovertemplate": text("experts.hover", tokens="%{value}") + "<extra></extra>",
        },
    )


def _spans(column: list[int]) -> list[tuple[float, float]]:
    """Top and bottom of each box of a column, from the top; plotly alone would sort them."""
    gap, total = _gap(column), max(1, sum(column))
    heights = [n / total * (1 - gap * (len(column) - 1)) for n in column]
    tops = accumulate([0.0, *(height + gap for height in heights)])
    return [(top, top + height) for top, height in zip(tops, heights, strict=False)]


def _gap(column: list[int]) -> float:
    return min(GAP, GAPS / max(1, len(column) - 1))


def _held(boxes: list[int], rank: int, each: int) -> tuple[float, float]:
    spans = _spans(boxes)[rank * each : (rank + 1) * each]
    return spans[0][0], spans[-1][1]


def _colour(rank: int) -> str:
    return PALETTE[rank % len(PALETTE)]
