"""The player: a schedule step by step, built, recorded, right or wrong."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import plotly.graph_objects as go

from coursekit.i18n import text
from coursekit.schedule import Schedule, chunk_bounds
from coursekit.show._player_board import Board
from coursekit.show._player_parts import Amount
from coursekit.show._template import GRID, INK, button_look, figure

MOST_RANKS = 64
MOST_CELLS = 300_000
PAUSE_MS = 1000


def player(schedule: Any, *, elements: int | None = None, itemsize: int = 4) -> go.Figure:
    """Play a schedule: every rank's buffer after each step, the messages, and what was sent.

    Up to 8 ranks each has its colour, and a chunk shows the colours of all whose numbers are in
    it; with more ranks a chunk is the darker, the more contributions it holds. Arrows are the
    messages of the step. Red is a chunk that went wrong, or at the end lacks what the collective
    promises.

    Parameters
    ----------
    schedule : Schedule or Recording
        What `coursekit.schedule.build` made, or anything with a `schedule`, such as a recording.
    elements : int, optional
        Length of the buffer; amounts are then bytes instead of chunks.
    itemsize : int
        Bytes an element.

    Raises
    ------
    ValueError
        It is no schedule, or has more than 64 ranks.
    """
    return _film([_board(schedule, elements, itemsize, 1, "", 0.13)])


def compare(
    *schedules: Any,
    names: Sequence[str] | None = None,
    elements: int | None = None,
    itemsize: int = 4,
) -> go.Figure:
    """Play two or three schedules side by side, step by step; a shorter one waits at its end.

    Parameters
    ----------
    schedules : Schedule or Recording
        As for `player`.
    names : sequence of str, optional
        One a schedule; collective and algorithm by default.

    Raises
    ------
    ValueError
        As for `player`; also for fewer than two schedules or more than three, or other names.
    """
    if not 2 <= len(schedules) <= 3:
        raise ValueError(
            f"compare takes two or three schedules, got {len(schedules)}; "
            "show.player plays a single one"
        )
    if names is not None and len(names) != len(schedules):
        raise ValueError(
            f"names must be one a schedule, got {len(names)} for {len(schedules)}; "
            "leave them out to take the algorithms'"
        )
    given = names or [""] * len(schedules)
    return _film(
        [
            _board(s, elements, itemsize, number, name, 0.27)
            for number, (s, name) in enumerate(zip(schedules, given, strict=True), 1)
        ]
    )


def _board(
    given: Any, elements: int | None, itemsize: int, axes: int, name: str, label: float
) -> Board:
    schedule = getattr(given, "schedule", given)
    if not isinstance(schedule, Schedule):
        raise ValueError(
            f"a player takes a Schedule or a recording, got {type(given).__name__}; "
            'try schedule.build("all_reduce", "ring", 4)'
        )
    if schedule.size > MOST_RANKS:
        raise ValueError(
            f"a player shows at most {MOST_RANKS} ranks, got {schedule.size}; build the same "
            "algorithm for fewer, or print its table() and count()"
        )
    cells = schedule.size * schedule.slots * min(schedule.size, 8) * (schedule.step_count + 1)
    if cells > MOST_CELLS:
        raise ValueError(
            f"a player draws at most {MOST_CELLS:,} chunks in all its frames, got {cells:,} "
            f"in {schedule.step_count} steps of {schedule.size} ranks; build "
            "the same algorithm for fewer ranks"
        )
    lengths = None
    recorded = None if given is schedule else getattr(given, "lengths", None)
    if elements is not None and recorded is not None and sum(recorded) == elements:
        lengths = list(recorded)
    elif elements is not None:
        bounds = chunk_bounds(elements, schedule.chunks).tolist()
        lengths = [b - a for a, b in pairwise(bounds)]
    name = name or f"{schedule.collective} {schedule.algorithm}".replace("recorded", "").strip()
    return Board(schedule, Amount(lengths, itemsize), axes, name, label)


def _film(boards: Sequence[Board]) -> go.Figure:
    steps = max(board.steps for board in boards)
    boards[0].legend = {op for board in boards for op in board.legend}
    traces = [board.traces(0) for board in boards]
    drawn = figure(**_layout(boards, steps))
    for group in traces:
        drawn.add_traces(group)
    drawn.frames = [_frame(boards, step) for step in range(steps + 1)]
    return drawn


def _frame(boards: Sequence[Board], step: int) -> go.Frame:
    """Only what changes: a frame's trace takes all else from the figure's."""
    changes = []
    for board in boards:
        boxes, *arrows, bars, told = board.traces(step)
        changes.append(go.Heatmap(z=boxes.z))
        changes += [go.Scatter(x=a.x, y=a.y, marker={"size": a.marker.size}) for a in arrows]
        changes.append(go.Bar(x=bars.x, text=bars.text))
        changes.append(go.Scatter(text=told.text))
    return go.Frame(name=str(step), data=changes, traces=list(range(len(changes))))


def _layout(boards: Sequence[Board], steps: int) -> dict[str, Any]:
    tallest = max(board.schedule.size for board in boards)
    row = 44 if tallest <= 8 else 28
    alone = len(boards) == 1
    legend = {"y": 0} if alone else {"y": 0.01, "yref": "container"}
    layout: dict[str, Any] = {
        "height": 170 + row * tallest + (0 if alone else 24),
        "margin": {"l": 8, "r": 8, "t": 40, "b": 8 if alone else 32},
        "barmode": "overlay",
        "annotations": [note for board in boards for note in board.notes()],
        "legend": {"orientation": "h", "x": 1, "xanchor": "right", "yanchor": "bottom", **legend}
        | {"itemclick": False, "itemdoubleclick": False, "font": {"size": 12}},
        "modebar": {"remove": ["zoom", "pan", "select", "lasso", "toImage", "resetScale"]},
        "sliders": [_slider(steps)],
        "updatemenus": [_buttons()],
    }
    share = 1 / len(boards)
    for number, board in enumerate(boards):
        suffix = str(number + 1) if number else ""
        low, high = board.range
        left = number * share + (0.015 if number else 0)
        layout[f"xaxis{suffix}"] = {
            "domain": [left, (number + 1) * share - (0.015 if number + 1 < len(boards) else 0)],
            "range": [low, high],
            "visible": False,
            "fixedrange": True,
        }
        layout[f"yaxis{suffix}"] = {
            "range": [board.schedule.size + 0.2, board.top],
            "visible": False,
            "fixedrange": True,
            "anchor": f"x{suffix}",
        }
        layout["annotations"].append(_title(board, left))
    return layout


def _title(board: Board, left: float) -> dict[str, Any]:
    ranks = text(
        "player.rank" if board.schedule.size == 1 else "player.ranks", n=board.schedule.size
    )
    steps = text("player.only" if board.steps == 1 else "player.steps", n=board.steps)
    words = text("player.title", name=board.name, ranks=ranks, steps=steps)
    place = {"x": left, "y": 1, "xref": "paper", "yref": "paper", "yshift": 6}
    look = {"text": words, "showarrow": False, "xanchor": "left", "yanchor": "bottom"}
    return {**place, **look, "font": {"size": 15, "color": INK}}


def _animation(step: str | None) -> list[Any]:
    frame = {"duration": PAUSE_MS if step is None else 0, "redraw": True}
    options = {"mode": "immediate", "frame": frame, "transition": {"duration": 0}}
    return [[step] if step is not None else None, {**options, "fromcurrent": True}]


def _slider(steps: int) -> dict[str, Any]:
    marks = [
        {"method": "animate", "label": str(step), "args": _animation(str(step))}
        for step in range(steps + 1)
    ]
    return {
        "steps": marks,
        "x": 0.2,
        "len": 0.79,
        "y": 0,
        "pad": {"t": 12, "b": 0},
        "currentvalue": {"visible": False},
        "bgcolor": GRID,
        "bordercolor": GRID,
        "tickcolor": INK,
        "font": {"size": 11, "color": INK},
        "ticklen": 4,
        "minorticklen": 0,
    }


def _buttons() -> dict[str, Any]:
    stop = [[None], {"mode": "immediate", "frame": {"duration": 0, "redraw": False}}]
    return {
        "type": "buttons",
        "direction": "left",
        "x": 0,
        "y": 0,
        "xanchor": "left",
        "yanchor": "top",
        "pad": {"t": 18, "r": 8},
        "showactive": False,
        "buttons": [
            {"method": "animate", "label": text("player.play"), "args": _animation(None)},
            {"method": "animate", "label": text("player.pause"), "args": stop},
        ],
        **button_look(),
    }
