"""Rings of a machine one after the other, up to the best."""

from __future__ import annotations

from math import cos, pi, sin
from random import Random
from typing import Any

import plotly.graph_objects as go

from coursekit.i18n import text
from coursekit.show._template import BAD, INK, PALETTE, figure
from coursekit.show._tint import tint
from coursekit.show.player import _buttons, _slider
from coursekit.show.topology import name_of, thickness
from coursekit.topology import Order, Topology, best_ring, order
from coursekit.topology import machine as known

MOST = 16
DRAWN = 400
FRAMES = 12
GB = 1e9
FAST = PALETTE[3]


def ring_search(machine: Topology | str) -> go.Figure:
    """Frames of rings: by number, then others from bad to good, the best at the end.

    Each has the pairs of neighbours as straight lines, the slowest ones red, its bottleneck above.
    Between the first and the last stand some of 400 rings drawn by chance, one of each number of
    slowest pairs.

    Parameters
    ----------
    machine : Topology or str
        A machine, or its name.

    Raises
    ------
    ValueError
        It has fewer than 3 GPUs or more than 16.
    TopologyError
        No such machine.

    Examples
    --------
    >>> show.ring_search("dgx1v")
    """
    machine = known(machine) if isinstance(machine, str) else machine
    if not 3 <= machine.size <= MOST:
        raise ValueError(
            f"rings are drawn of 3 to {MOST} GPUs, got {machine.size}; topology.best_ring takes "
            "any number"
        )
    rings = _candidates(machine)
    drawn = figure(**_layout(machine, len(rings)))
    drawn.update_layout(title={"text": _title(machine, rings, 0)})
    wires = _wires(machine)
    drawn.add_traces(wires)
    drawn.add_traces(_pairs(rings[0]))
    drawn.add_trace(_gpus(machine))
    drawn.frames = [
        go.Frame(
            name=str(number),
            data=[{"type": "scatter", "x": t.x, "y": t.y} for t in _pairs(ring)],
            traces=[len(wires), len(wires) + 1],
            layout={"title": {"text": _title(machine, rings, number)}},
        )
        for number, ring in enumerate(rings)
    ]
    return drawn


def _candidates(machine: Topology) -> list[Order]:
    natural, best = order(machine, range(machine.size)), best_ring(machine)
    chance = Random(0)
    found: dict[tuple[float, int], Order] = {}
    for _ in range(DRAWN):
        rest = list(range(1, machine.size))
        chance.shuffle(rest)
        one = order(machine, [0, *rest])
        found.setdefault(_quality(one), one)
    between = [found[key] for key in sorted(found) if key != _quality(best)]
    if len(between) > FRAMES - 2:
        step = (len(between) - 1) / (FRAMES - 3)
        between = [between[round(n * step)] for n in range(FRAMES - 2)]
    return [natural, *(one for one in between if one.ranks != natural.ranks), best]


def _quality(one: Order) -> tuple[float, int]:
    return one.bottleneck, -len(one.slowest)


def _title(machine: Topology, rings: list[Order], number: int) -> str:
    one = rings[number]
    what = "natural" if number == 0 else "best" if number == len(rings) - 1 else "other"
    ranks = "-".join(map(str, (*one.ranks, one.ranks[0])))
    first = text("machine.search", what=text(f"machine.{what}"), ranks=ranks)
    second = text("machine.bottleneck", gb=f"{one.bottleneck / GB:g}", count=len(one.slowest),
                  all=len(one.pairs))  # fmt: skip
    return f"{first}<br><sup>{name_of(machine)}\N{EM SPACE}{second}</sup>"


def _layout(machine: Topology, count: int) -> dict[str, Any]:
    still = {"visible": False, "fixedrange": True}
    return {
        "height": 480,
        "margin": {"l": 8, "r": 8, "t": 84, "b": 40},
        "xaxis": {"range": [-2.2, 2.2], **still},
        "yaxis": {"range": [-1.25, 1.25], "scaleanchor": "x", **still},
        "legend": {"orientation": "v", "x": 0.0, "y": 0.98, "yanchor": "top", "itemclick": False,
                   "itemdoubleclick": False},
        "sliders": [_slider(count - 1)],
        "updatemenus": [_buttons()],
    }  # fmt: skip


def _spot(rank: int, size: int) -> tuple[float, float]:
    turn = 2 * pi * rank / size
    return round(sin(turn), 3), round(cos(turn), 3)


def _segments(pairs: list[tuple[int, int]], size: int) -> dict[str, list[float | None]]:
    xs: list[float | None] = []
    ys: list[float | None] = []
    for a, b in pairs:
        (ax, ay), (bx, by) = _spot(a, size), _spot(b, size)
        xs += [ax, bx, None]
        ys += [ay, by, None]
    return {"x": xs, "y": ys}


def _wires(machine: Topology) -> list[go.Scatter]:
    """Links that go from GPU to GPU with nothing between, thick as they are fast."""
    place = {gpu: rank for rank, gpu in enumerate(machine.ranks)}
    groups: dict[float, list[tuple[int, int]]] = {}
    for a, b, edge in machine.graph.edges(data=True):
        if a in place and b in place:
            groups.setdefault(edge["bandwidth"], []).append((place[a], place[b]))
    return [
        go.Scatter(
            **_segments(links, machine.size), mode="lines",
            name=text("machine.linked", gb=f"{speed / GB:g}"),
            line={"color": tint(INK, 0.35), "width": thickness(speed) - 0.5}, hoverinfo="skip",
        )
        for speed, links in sorted(groups.items(), reverse=True)
    ]  # fmt: skip


def _pairs(one: Order) -> list[go.Scatter]:
    size = len(one.ranks)
    alike = len(one.slowest) == size
    slow = [pair for pair in one.pairs if pair in one.slowest and not alike]
    fast = [pair for pair in one.pairs if pair not in slow]
    looks = ((fast, FAST, "fast_pair", 5), (slow, BAD, "slow_pair", 5))
    return [
        go.Scatter(
            **(_segments(pairs, size) if pairs else {"x": [None], "y": [None]}), mode="lines",
            line={"color": colour, "width": width}, name=text(f"machine.{name}"), hoverinfo="skip",
            showlegend=True,
        )
        for pairs, colour, name, width in looks
    ]  # fmt: skip


def _gpus(machine: Topology) -> go.Scatter:
    spots = [_spot(rank, machine.size) for rank in range(machine.size)]
    return go.Scatter(
        x=[x for x, _ in spots], y=[y for _, y in spots], mode="markers+text",
        marker={"symbol": "circle", "size": 30, "color": PALETTE[0]},
        text=[str(rank) for rank in range(machine.size)], textfont={"color": "#ffffff"},
        hovertext=list(machine.ranks), hovertemplate="%{hovertext}<extra></extra>",
        showlegend=False,
    )  # fmt: skip
