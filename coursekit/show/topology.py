"""A machine as a picture: devices, links, what a schedule puts on them, and a ring."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import log2
from typing import Any

import plotly.graph_objects as go

from coursekit.i18n import text
from coursekit.show._axes import size_label, time_label
from coursekit.show._machine_devices import devices
from coursekit.show._machine_places import Hop, Places, Point, places
from coursekit.show._template import BAD, CLEAR, GRID, INK, PALETTE, figure
from coursekit.show._tint import tint
from coursekit.topology import Order, Topology
from coursekit.topology import machine as known
from coursekit.topology import order as measured

MOST = 32
GB = 1e9
COLOURS = {
    "NVLink": PALETTE[3],
    "XGMI": PALETTE[3],
    "PCIe": INK,
    "SMP": PALETTE[1],
    "network": PALETTE[0],
}
# How busy, as shares of the busiest link: from hardly to fully.
BUSY = ((0.25, "#c3d5ef"), (0.5, "#7fa6dc"), (0.75, "#e3a857"), (1.0, "#e0701e"), (2.0, BAD))


def topology(
    machine: Topology | str,
    load: Mapping[Hop, int] | None = None,
    order: Order | Sequence[int] | None = None,
    *,
    cards: bool = True,
) -> go.Figure:
    """Draw a machine: its GPUs in a row, NVLink above them, PCIe and processors below.

    A link is the thicker, the more bytes a second it carries. Of a small cluster only the network
    is drawn: nodes are boxes.

    Parameters
    ----------
    machine : Topology or str
        A machine, such as ``topology.machine("dgx1v")``, or its name.
    load : mapping from (str, str) to int, optional
        Bytes on links, each way by itself: ``cost.simulate(...).load``. Links are then coloured by
        how long they need for their bytes.
    order : Order or sequence of int, optional
        A ring or chain that is drawn along its links; its slowest pairs are red.
    cards : bool
        Whether network cards are drawn.

    Raises
    ------
    ValueError
        More than 32 GPUs.
    TopologyError
        No such machine, or an order that does not name every rank once.
    """
    machine = known(machine) if isinstance(machine, str) else machine
    if machine.size > MOST:
        raise ValueError(
            f"a machine is drawn with at most {MOST} GPUs, got {machine.size}; draw one of its "
            "nodes, or a smaller cluster"
        )
    if order is not None and not isinstance(order, Order):
        order = measured(machine, order)
    where = places(machine, cards=cards)
    drawn = figure(**_layout(machine, where, load, order))
    drawn.add_traces(_links(machine, where, plain=load is not None or order is not None))
    if order is not None:
        drawn.add_traces(_ring(machine, where, order, behind=load is not None))
    if load is not None:
        drawn.add_traces(_busy(machine, where, load))
    drawn.add_traces(devices(machine, where))
    return drawn


def _layout(
    machine: Topology, where: Places, load: Mapping[Hop, int] | None, order: Order | None
) -> dict[str, Any]:
    xs = [x for x, _ in where.at.values()]
    low, high = where.lowest - 0.4, where.highest + 0.4
    still = {"visible": False, "fixedrange": True}
    return {
        "title": {"text": _title(machine, load, order)},
        "height": round(64 * (high - low)) + 128,
        "margin": {"l": 8, "r": 8, "t": 92, "b": 8},
        "xaxis": {"range": [min(xs) - 0.8, max(xs) + 0.8], **still},
        "yaxis": {"range": [low, high], **still},
        "hovermode": "closest",
        "shapes": [_bar(where, name) for name in where.bars]
        + [_box(*ends) for ends in where.boxes.values()],
        "annotations": [_named(where, name) for name in where.bars]
        + [_host(name, *ends) for name, ends in where.boxes.items()],
    }


def _title(machine: Topology, load: Mapping[Hop, int] | None, order: Order | None) -> str:
    if order is not None:
        return ring_title(machine, order)
    return text("machine.load" if load is not None else "machine.title", name=name_of(machine))


def name_of(machine: Topology) -> str:
    """A machine's title in the learner's language, where the course has one."""
    if machine.node is not None:
        fabric = machine.name.rpartition(", ")[2]
        nodes = len(machine.hosts)
        return text("machine.cluster", n=nodes, name=name_of(machine.node), fabric=fabric)
    try:
        return text(f"machine.{machine.name}")
    except KeyError:
        return machine.name


def ring_title(machine: Topology, order: Order) -> str:
    """An order, its slowest pairs and how fast these are."""
    kind = "machine.ring" if order.closed else "machine.chain"
    ranks = [*order.ranks, order.ranks[0]] if order.closed else order.ranks
    if order.slowest and len(order.slowest) == len(order.pairs):
        slow = text("machine.all_pairs", gb=f"{order.bottleneck / GB:g}")
    else:
        pairs = ", ".join(f"{a}-{b}" for a, b in order.slowest)
        slow = text("machine.slowest", gb=f"{order.bottleneck / GB:g}", pairs=pairs)
    return text(kind, ranks="-".join(map(str, ranks))) + slow


def _bar(where: Places, name: str) -> dict[str, Any]:
    (left, right), (_, y) = where.bars[name], where.at[name]
    line = {"color": COLOURS["NVLink"], "width": 1}
    place = {"x0": left, "x1": right, "y0": y - 0.16, "y1": y + 0.16}
    return {"type": "rect", **place, "fillcolor": tint(COLOURS["NVLink"], 0.35), "line": line}


def _named(where: Places, name: str) -> dict[str, Any]:
    x, y = where.at[name]
    return {"x": x, "y": y, "text": "NVSwitch", "showarrow": False, "font": {"size": 12}}


def _box(left: float, right: float) -> dict[str, Any]:
    look = {"fillcolor": tint(INK, 0.08), "line": {"color": GRID, "width": 1}}
    return {"type": "rect", "x0": left, "x1": right, "y0": -0.95, "y1": 0.45, **look}


def _host(name: str, left: float, right: float) -> dict[str, Any]:
    words = text("machine.node", name=name)
    place = {"x": (left + right) / 2, "y": 0.45, "yanchor": "bottom", "yshift": 1}
    return {**place, "text": words, "showarrow": False, "font": {"size": 12}}


def _links(machine: Topology, where: Places, *, plain: bool) -> list[go.Scatter]:
    """A line a kind and bandwidth, thick as it is fast; then points that tell each link."""
    groups: dict[tuple[str, int, float], list[Hop]] = {}
    for a, b in where.links:
        edge = machine.graph.edges[a, b]
        groups.setdefault((edge["kind"], edge["width"], edge["bandwidth"]), []).append((a, b))
    traces = []
    for key in sorted(groups, key=lambda k: (list(COLOURS).index(k[0]), -k[2])):
        kind, width, speed = key
        look = {"color": COLOURS[kind], "width": thickness(speed)}
        if plain:
            look = {"color": tint(INK, 0.3), "width": min(2.0, thickness(speed))}
        ways = _lines(where.way(a, b) for a, b in groups[key])
        traces.append(go.Scatter(
            **ways, mode="lines", line=look, name=_speed(kind, width, speed),
            hoverinfo="skip", showlegend=not plain,
        ))  # fmt: skip
    if not plain:
        traces.append(_told(where, [
            ((a, b), f"{a} \N{EN DASH} {b}<br>{_speed(*key)}")
            for key, hops in groups.items() for a, b in hops
        ]))  # fmt: skip
    return traces


def thickness(speed: float) -> float:
    """Pixels of a link."""
    return round(max(1.0, 1 + 1.25 * log2(speed / (8 * GB))), 1)


def _speed(kind: str, width: int, speed: float) -> str:
    many = f"{width} \N{MULTIPLICATION SIGN} " if width > 1 else ""
    return f"{many}{text(f'machine.{kind}')}, {speed / GB:g} GB/s"


def _told(where: Places, words: Iterable[tuple[Hop, str]]) -> go.Scatter:
    """What a link is, in the middle of it."""
    told = list(words)
    middle = [_middle(where.way(*hop)) for hop, _ in told]
    return go.Scatter(
        x=[_short(x) for x, _ in middle],
        y=[_short(y) for _, y in middle],
        mode="markers",
        marker={"size": 16, "color": CLEAR},
        text=[word for _, word in told],
        hovertemplate="%{text}<extra></extra>",
        showlegend=False,
    )


def _busy(machine: Topology, where: Places, load: Mapping[Hop, int]) -> list[go.Scatter]:
    """Both directions of a link, coloured by the seconds that its bytes need."""
    known = {hop for a, b in where.links for hop in ((a, b), (b, a))}
    took = {hop: n / machine.capacity(hop) for hop, n in load.items() if hop in known and n}
    most = max(took.values(), default=0.0)
    traces, low = [], 0.0
    for share, colour in BUSY:
        hops = [hop for hop, t in took.items() if low <= t / most * (1 + 1e-9) < share]
        low = share
        if not hops:
            continue
        ends = sorted({time_label(float(f"{t:.3g}")): t for h in hops for t in [took[h]]}.items(),
                      key=lambda item: item[1])  # fmt: skip
        told = ends[0][0] if len(ends) == 1 else f"{ends[0][0]} \N{EN DASH} {ends[-1][0]}"
        name = text("machine.busy", time=told)
        traces.append(go.Scatter(
            **_lines(where.way(*hop, aside=_aside(hop)) for hop in hops), mode="lines", name=name,
            line={"color": colour, "width": 4.5}, hoverinfo="skip",
        ))  # fmt: skip
    traces.append(_told(where, [
        ((a, b), "<br>".join(_carried(hop, load, took) for hop in ((a, b), (b, a))))
        for a, b in where.links if (a, b) in took or (b, a) in took
    ]))  # fmt: skip
    return traces


def _aside(hop: Hop) -> float:
    return 0.045 if hop[0] < hop[1] else -0.045


def _carried(hop: Hop, load: Mapping[Hop, int], took: Mapping[Hop, float]) -> str:
    amount = size_label(load.get(hop, 0))
    return f"{hop[0]} \N{RIGHTWARDS ARROW} {hop[1]}: {amount}, {time_label(took.get(hop, 0.0))}"


def _ring(machine: Topology, where: Places, order: Order, *, behind: bool) -> list[go.Scatter]:
    """An order along its links: its slowest pairs red."""
    shown = {frozenset(link) for link in where.links}
    groups: dict[bool, list[Hop]] = {False: [], True: []}
    for pair in order.pairs:
        hops = machine.route(*(machine.ranks[r] for r in pair))
        groups[pair in order.slowest and len(order.slowest) < len(order.pairs)] += [
            hop for hop in hops if frozenset(hop) in shown
        ]
    names = {False: text("machine.in_ring"), True: text("machine.slow")}
    colours = {False: PALETTE[3], True: BAD}
    return [
        go.Scatter(
            **_lines(where.way(*hop) for hop in dict.fromkeys(hops)), mode="lines",
            line={"color": tint(colours[slow], 0.35 if behind else 0.9),
                  "width": 11 if behind else 6},
            name=names[slow], hoverinfo="skip",
        )
        for slow, hops in groups.items() if hops
    ]  # fmt: skip


def _lines(ways: Iterable[list[Point]]) -> dict[str, list[float | None]]:
    """Lines with gaps between them."""
    xs: list[float | None] = []
    ys: list[float | None] = []
    for way in ways:
        xs += [*(_short(x) for x, _ in way), None]
        ys += [*(_short(y) for _, y in way), None]
    return {"x": xs, "y": ys}


def _middle(way: list[Point]) -> Point:
    if len(way) % 2:
        return way[len(way) // 2]
    (ax, ay), (bx, by) = way[len(way) // 2 - 1 : len(way) // 2 + 1]
    return (ax + bx) / 2, (ay + by) / 2


def _short(value: float) -> float:
    return round(value, 3)
