"""All ranks of a plan in space: who shares a model's part, who a batch, who a machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import hypot
from typing import Any

import plotly.graph_objects as go

from coursekit.i18n import text
from coursekit.plan import Plan
from coursekit.show._template import BAD, GRID, INK, PALETTE, button_row, figure

MOST = 1024
NUMBERED = 64
# What neighbours in a row are told apart by; the palette's eighth is grey.
COLOURS = PALETTE[:7]


@dataclass(frozen=True)
class _Grid:
    """Ranks with tensor parallelism innermost, then context, data, and pipeline parallelism."""

    tp: int
    cp: int
    dp: int
    pp: int
    node: int

    @property
    def ranks(self) -> int:
        return self.tp * self.cp * self.dp * self.pp

    def at(self, rank: int) -> tuple[int, int, int]:
        """Its place along TP, along CP and DP, and along PP."""
        rest, t = divmod(rank, self.tp)
        p, d = divmod(rest, self.cp * self.dp)
        return t, d, p

    def groups(self, kind: str) -> list[list[int]]:
        """The ranks of every group of one kind."""
        outer = self.tp * self.cp
        keys: dict[str, Callable[[int], Any]] = {
            "tp": lambda r: r // self.tp,
            "cp": lambda r: (r // outer, r % self.tp),
            "dp": lambda r: (r // (outer * self.dp), r % outer),
            "pp": lambda r: r % (outer * self.dp),
            "node": lambda r: r // self.node,
        }
        found: dict[Any, list[int]] = {}
        for rank in range(self.ranks):
            found.setdefault(keys[kind](rank), []).append(rank)
        return list(found.values())

    @property
    def kinds(self) -> list[str]:
        """What groups there are: those of one rank are none."""
        degrees = {"tp": self.tp, "cp": self.cp, "pp": self.pp, "dp": self.dp}
        return [kind for kind, degree in degrees.items() if degree > 1] + ["node"]


def rank_cube(plan: Plan | Mapping[str, int], node: int = 8, rank: int = 0) -> go.Figure:
    """A point a rank, along TP, PP and DP; buttons colour by group; one rank's groups are thick.

    Parameters
    ----------
    plan : Plan or mapping
        A plan, or degrees such as ``{"tp": 8, "pp": 4, "dp": 2}``. Ranks are numbered as `Plan`
        says: tensor parallelism innermost, pipeline parallelism outermost.
    node : int
        Ranks in a machine, such as ``plan.machine("a100").node``.
    rank : int
        Whose groups are drawn thick.

    Raises
    ------
    ValueError
        More ranks than can be told apart, an unknown degree, or no such rank.
    """
    grid = _grid(plan, node)
    if not 0 <= rank < grid.ranks <= MOST:
        raise ValueError(
            f"rank_cube needs a rank of a plan of at most {MOST} ranks, got rank {rank} of "
            f"{grid.ranks}; draw fewer replicas: a smaller dp"
        )
    kinds = grid.kinds
    drawn = figure(
        title={"text": _title(grid, kinds[0])},
        height=580,
        scene=_scene(grid),
        margin={"t": 112, "b": 8, "l": 8, "r": 8},
        legend={"y": 0, "yanchor": "bottom", "x": 1, "xanchor": "right", "orientation": "v"},
    )
    for kind in kinds:
        drawn.add_trace(_lines(grid, kind, visible=kind == kinds[0]))
    for kind in kinds[:-1]:
        drawn.add_trace(_thick(grid, kind, rank))
    drawn.add_trace(_points(grid, kinds[0]))
    buttons = [_button(grid, kind, len(drawn.data)) for kind in kinds]
    drawn.update_layout(updatemenus=[button_row(buttons, 1.0, below=6)])
    return drawn


def _grid(plan: Plan | Mapping[str, int], node: int) -> _Grid:
    if isinstance(plan, Plan):
        return _Grid(plan.tp, plan.cp, plan.dp, plan.pp, node)
    if wrong := set(plan) - {"tp", "cp", "dp", "pp"}:
        raise ValueError(f"degrees must be of tp, cp, dp, pp, got {', '.join(sorted(wrong))}")
    return _Grid(**{"tp": 1, "cp": 1, "dp": 1, "pp": 1, **plan}, node=node)


def _scene(grid: _Grid) -> dict[str, Any]:
    longest = max(grid.tp, grid.cp * grid.dp, grid.pp)
    names = {"x": "plans.tp", "y": "plans.cp_dp" if grid.cp > 1 else "plans.dp", "z": "plans.pp"}
    counts = {"x": grid.tp, "y": grid.cp * grid.dp, "z": grid.pp}
    axes = {
        f"{axis}axis": {
            "title": {"text": text(name)},
            "tickvals": list(range(0, counts[axis], max(1, counts[axis] // 8))),
            "range": [-0.5, counts[axis] - 0.5],
            "color": INK,
            "gridcolor": GRID,
            "zeroline": False,
            "showspikes": False,
        }
        for axis, name in names.items()
    }
    # Short sides stay wide enough to see between their ranks.
    least = {"x": 0.7, "y": 0.7, "z": 1.15}
    sides = {axis: max(least[axis], 1.6 * count / longest) for axis, count in counts.items()}
    away = 1.17 * hypot(*sides.values())
    eye = {"x": -0.36 * away, "y": -0.84 * away, "z": 0.4 * away}
    camera = {"eye": eye, "center": {"x": 0.02, "y": 0, "z": -0.14}}
    return {**axes, "aspectmode": "manual", "aspectratio": sides, "camera": camera}


def _points(grid: _Grid, kind: str) -> go.Scatter3d:
    x, y, z = zip(*map(grid.at, range(grid.ranks)), strict=True)
    few = grid.ranks <= NUMBERED
    return go.Scatter3d(
        x=x, y=y, z=z,
        mode="markers+text" if few else "markers",
        text=[str(r) for r in range(grid.ranks)],
        textposition="top center",
        textfont={"size": 11, "color": INK},
        hovertext=[_hover(grid, r) for r in range(grid.ranks)],
        hoverinfo="text",
        marker={"size": 7 if few else 4, "color": _colours(grid, kind)},
        showlegend=False,
    )  # fmt: skip


def _hover(grid: _Grid, rank: int) -> str:
    return text("plans.rank", rank=rank, node=rank // grid.node, gpu=rank % grid.node)


def _colours(grid: _Grid, kind: str) -> list[str]:
    found = {}
    for number, members in enumerate(grid.groups(kind)):
        found.update(dict.fromkeys(members, COLOURS[number % len(COLOURS)]))
    return [found[rank] for rank in range(grid.ranks)]


def _lines(grid: _Grid, kind: str, *, visible: bool) -> go.Scatter3d:
    return go.Scatter3d(
        **_path(grid, grid.groups(kind)), mode="lines", line={"color": INK, "width": 2},
        hoverinfo="skip", showlegend=False, visible=visible,
    )  # fmt: skip


def _thick(grid: _Grid, kind: str, rank: int) -> go.Scatter3d:
    (mine,) = (members for members in grid.groups(kind) if rank in members)
    colour = {"tp": BAD, "cp": PALETTE[3], "dp": PALETTE[1], "pp": PALETTE[0]}[kind]
    name = text("plans.mine", rank=rank, group=kind.upper(), ranks=_told(mine))
    return go.Scatter3d(
        **_path(grid, [mine]), mode="lines", line={"color": colour, "width": 9}, name=name,
        hoverinfo="skip",
    )  # fmt: skip


def _path(grid: _Grid, groups: Iterable[list[int]]) -> dict[str, list[int | None]]:
    """A line through the ranks of each group, with a gap before the next one."""
    points: list[tuple[int | None, ...]] = []
    for members in groups:
        points += [grid.at(rank) for rank in members] + [(None, None, None)]
    x, y, z = (list(axis) for axis in zip(*points, strict=True))
    return {"x": x, "y": y, "z": z}


def _told(ranks: list[int]) -> str:
    """A group's ranks in short: ``0-7``, ``0, 16, 32, 48``, ``0, 8, ..., 504``."""
    steps = {b - a for a, b in pairwise(ranks)}
    if steps == {1}:
        return f"{ranks[0]}\N{EN DASH}{ranks[-1]}"
    few = ranks if len(ranks) <= 4 else [*ranks[:2], "...", ranks[-1]]
    return ", ".join(map(str, few))


def _title(grid: _Grid, kind: str) -> str:
    groups = grid.groups(kind)
    if kind == "node":
        return text("plans.by_node", count=len(groups), size=grid.node)
    most = max(len({rank // grid.node for rank in members}) for members in groups)
    where = text("plans.inside") if most == 1 else text("plans.across", nodes=most)
    return text("plans.by", group=kind.upper(), count=len(groups), size=len(groups[0]), where=where)


def _button(grid: _Grid, kind: str, traces: int) -> dict[str, Any]:
    """Lines of this kind and none of the others; the points, which come last, in its colours."""
    kinds = grid.kinds
    shown = [True] * traces
    shown[: len(kinds)] = [each == kind for each in kinds]
    data = {"visible": shown, "marker.color": list(_no_colours(traces - 1, grid, kind))}
    label = text("plans.node") if kind == "node" else kind.upper()
    return {"label": label, "method": "update", "args": [data, {"title.text": _title(grid, kind)}]}


def _no_colours(before: int, grid: _Grid, kind: str) -> Iterator[Any]:
    yield from [None] * before
    yield _colours(grid, kind)
