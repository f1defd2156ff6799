"""One schedule on a board: what every rank holds after each step, and the messages of the step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import plotly.graph_objects as go

from coursekit.i18n import text
from coursekit.schedule import Message, Schedule, trace
from coursekit.show._player_parts import (
    MOST_BANDS,
    Amount,
    bend,
    by_step,
    colours,
    columns,
    first_fault,
    rank_colour,
    unfulfilled,
)
from coursekit.show._template import INK

EDGE = 0.05
COPY_INK, REDUCE_INK, HALO = "#5a6b80", "#d2521a", "rgba(255, 255, 255, 0.85)"

Number = int | float


class Board:
    """The traces of one schedule, frame by frame.

    `axes` is the suffix of its axes: 1 for x and y, 2 for x2 and y2; `label` the room for amounts
    right of the bars, as a part of the chunks' width. `legend` has the ops that the first board's
    legend explains.
    """

    def __init__(
        self, schedule: Schedule, amount: Amount, axes: int, name: str, label: float = 0.13
    ) -> None:
        self.schedule, self.amount, self.name = schedule, amount, name
        self._label = label
        self._axes = "" if axes == 1 else str(axes)
        # What is of no named collective begins as an all-reduce does, and nothing is promised.
        custom = schedule.collective == "custom"
        self._states = trace(replace(schedule, collective="all_reduce") if custom else schedule)
        self._messages = by_step(schedule)
        self._bands = schedule.size if schedule.size <= MOST_BANDS else 1
        self._left = columns(schedule)
        self._sent = self._sums()
        self._missing = unfulfilled(schedule, self._states[-1])
        self._first = first_fault(schedule)
        held = [c for ranks in self._states for row in ranks for c in row if c is not None]
        self._adds = any(len(c.contributors) > 1 for c in held)
        self.legend = {m.op for found in self._messages for m in found}
        self.steps = len(self._states) - 1

    @property
    def width(self) -> float:
        """Where the last chunk ends."""
        return self._left[-1] + 1

    @property
    def range(self) -> tuple[float, float]:
        """The x axis: ranks' names left, bars of what was sent right."""
        return -0.11 * self.width - 0.25, self.width * (1.03 + self._label) + self._unit

    @property
    def top(self) -> float:
        """Where the y axis begins: above the chunks' numbers, and the names of groups."""
        return -1.35 if any(True for _ in self._groups()) else -0.95

    @property
    def _unit(self) -> float:
        """The width of the longest bar."""
        return 0.16 * self.width

    def traces(self, step: int) -> list[go.Scatter | go.Heatmap | go.Bar]:
        """What changes from frame to frame, after `step` steps; later ones are the last."""
        step = min(step, self.steps)
        return [self._chunks(step), *self._arrows(step), self._bars(step), self._told(step)]

    def notes(self) -> list[dict[str, Any]]:
        """What stays: names of ranks, chunks and groups."""
        refs = {"xref": f"x{self._axes}", "yref": f"y{self._axes}", "showarrow": False}
        size, schedule = self.schedule.size, self.schedule
        font = {"size": 13 if size <= 8 else 11}
        notes = [
            {**refs, "x": -0.02 * self.width, "y": rank, "text": f"rank {rank}", "xanchor": "right"}
            | {"font": {**font, "color": rank_colour(rank, size)}}
            for rank in range(size)
        ]
        numbers = range(schedule.slots) if len(self._left) <= 24 else []
        for slot in numbers:
            shown = slot % schedule.chunks if slot < schedule.chunks * self._buffers else ""
            place = {"x": self._left[slot] + 0.5, "y": -0.72, "text": str(shown)}
            notes.append({**refs, **place, "font": {"size": 11, "color": INK}})
        for slot, key in self._groups():
            place = {"x": self._left[slot], "y": -1.1, "text": text(f"player.{key}")}
            notes.append({**refs, **place, "xanchor": "left", "font": {"size": 11, "color": INK}})
        bar = {"x": self.width * 1.03, "y": -0.72, "text": text("player.sent")}
        return [*notes, {**refs, **bar, "xanchor": "left", "font": {"size": 11, "color": INK}}]

    @property
    def _buffers(self) -> int:
        return 2 if self.schedule.output else 1

    def _groups(self) -> Iterator[tuple[int, str]]:
        chunks = self.schedule.chunks
        if self.schedule.output:
            yield chunks, "output"
        if self.schedule.scratch:
            yield chunks * self._buffers, "scratch"

    def _chunks(self, step: int) -> go.Heatmap:
        rows = [self._row(step, rank) for rank in range(self.schedule.size)]
        edges = [e for left in self._left for e in self._edges(left)]
        top = self.schedule.size
        return go.Heatmap(
            z=rows,
            x=[round(e, 3) for e in edges],
            y=list(range(top)),
            zmin=-0.5,
            zmax=top + 1.5,
            colorscale=colours(top),
            showscale=False,
            ygap=5 if top <= 8 else 3,
            hoverinfo="skip",
            xaxis=f"x{self._axes}",
            yaxis=f"y{self._axes}",
        )

    def _edges(self, left: float) -> list[float]:
        """Band edges of one chunk; what lies between it and the next is empty."""
        wide = (1 - 2 * EDGE) / self._bands
        return [left + EDGE + n * wide for n in range(self._bands + 1)]

    def _row(self, step: int, rank: int) -> list[int | None]:
        row: list[int | None] = []
        for slot in range(self.schedule.slots):
            row += [*self._cell(step, rank, slot), None]
        return row[:-1]

    def _cell(self, step: int, rank: int, slot: int) -> list[int | None]:
        size, held = self.schedule.size, self._states[step][rank][slot]
        over = step == self.steps
        faulty = held is not None and held.fault is not None
        if faulty or (over and (rank, slot) in self._missing) or (step, rank, slot) == self._first:
            return [size + 1] * self._bands
        if held is None:
            return [size] * self._bands
        members = held.contributors
        if self._bands == 1 and size > 1:
            return [len(members) - 1 if self._adds else size - 1]
        if not self._adds:
            return [members[0]] * size
        return [r if r in members else size for r in range(size)]

    def _arrows(self, step: int) -> list[go.Scatter]:
        """Under a light halo, so that they are seen on boxes and on pages of any colour."""
        found = self._messages[step - 1] if step else []
        inks = (("reduce", REDUCE_INK, "adds"), ("copy", COPY_INK, "stores"))
        paths = {op: [self._path(m) for m in found if m.op == op] for op, _, _ in inks}
        every = [path for op in paths for path in paths[op]]
        thick = self.schedule.size <= 8
        halo = self._lines(every, HALO, 5 if thick else 4, 15 if thick else 11, None)
        drawn = [
            self._lines(
                paths[op], ink, 2, 11 if thick else 8, text(f"player.{key}"), op in self.legend
            )
            for op, ink, key in inks
        ]
        return [halo, *drawn]

    def _lines(
        self,
        paths: Sequence[list[tuple[float, float]]],
        ink: str,
        width: int,
        head: int,
        name: str | None,
        listed: bool = False,
    ) -> go.Scatter:
        x: list[Number | None] = []
        y: list[Number | None] = []
        sizes: list[int] = []
        for path in paths:
            x += [round(p[0], 2) for p in path] + [None]
            y += [round(p[1], 2) for p in path] + [None]
            sizes += [0] * (len(path) - 1) + [head, 0]
        return go.Scatter(
            x=x or [None],
            y=y or [None],
            mode="lines+markers",
            line={"color": ink, "width": width, "shape": "spline"},
            marker={"symbol": "arrow", "angleref": "previous", "size": sizes or [0], "color": ink}
            | {"line": {"width": 0}, "opacity": 1},
            name=name,
            legendgroup=name,
            showlegend=listed and self._axes == "",
            hoverinfo="skip",
            xaxis=f"x{self._axes}",
            yaxis=f"y{self._axes}",
        )

    def _path(self, message: Message) -> list[tuple[float, float]]:
        """From the sender's chunks to the receiver's; a bow round the ranks between."""
        aside = self._aside(message)
        a = self._middle(message.chunk) + aside, float(message.src)
        b = self._middle(message.into) + aside, float(message.dst)
        way = 1 if b[1] > a[1] else -1
        a, b = (a[0], a[1] + 0.12 * way), (b[0], b[1] - 0.16 * way)
        far = abs(message.dst - message.src)
        if far == 1:
            return [a, b]
        bow = min(0.6, 0.12 * far + 0.12) * (1 if way < 0 else -1) * min(1, self.width / 6)
        middle = (a[0] + b[0]) / 2 + bow, (a[1] + b[1]) / 2
        return [bend(a, middle, b, n / 4) for n in range(5)]

    def _aside(self, message: Message) -> float:
        """Of many ranks that use the same chunks, each pair has a place of its own."""
        wide = min(len(message.chunk), self.schedule.chunks)
        if self.schedule.size <= 4 or 2 * wide <= self.schedule.chunks:
            return 0.0
        part = min(message.src, message.dst) * 0.618 % 1
        return (part - 0.5) * 0.7 * wide

    def _middle(self, chunks: Any) -> float:
        places: list[float] = [self._left[c] + 0.5 for c in chunks.tolist()]
        return sum(places) / len(places)

    def _bars(self, step: int) -> go.Bar:
        most = max(max(self._sent[-1]), 1)
        sent = self._sent[step]
        return go.Bar(
            x=[round(self._unit * s / most, 3) for s in sent],
            y=list(range(self.schedule.size)),
            base=[round(self.width * 1.03, 3)] * self.schedule.size,
            orientation="h",
            width=0.42,
            marker={"color": INK, "opacity": 0.55},
            text=[self.amount.words(s) if s else "" for s in sent],
            textposition="outside",
            textfont={"size": 11, "color": INK},
            cliponaxis=False,
            showlegend=False,
            hovertemplate="rank %{y}: %{text}<extra></extra>",
            xaxis=f"x{self._axes}",
            yaxis=f"y{self._axes}",
        )

    def _told(self, step: int) -> go.Scatter:
        low, high = self.range
        return go.Scatter(
            x=[low + 0.02 * (high - low)],
            y=[self.schedule.size - 0.12],
            mode="text",
            text=[self.words(step)],
            textposition="middle right",
            textfont={"size": 13, "color": INK},
            showlegend=False,
            hoverinfo="skip",
            cliponaxis=False,
            xaxis=f"x{self._axes}",
            yaxis=f"y{self._axes}",
        )

    def words(self, step: int) -> str:
        """What happens in a step, in one line."""
        if step == 0:
            return text("player.start")
        found = self._messages[step - 1]
        amounts = sorted(self.amount.of(m.chunk.tolist()) for m in found)
        if not found:
            what = text("player.moves")
        elif len(found) == 1:
            what = text("player.one", amount=self.amount.words(amounts[0]))
        else:
            least, most = self.amount.words(amounts[0]), self.amount.words(amounts[-1])
            key = "messages" if least == most else "mixed"
            what = text(f"player.{key}", count=len(found), amount=most, least=least, most=most)
        return text("player.line", step=text("player.step", step=step, steps=self.steps), what=what)

    def _sums(self) -> list[list[int]]:
        """Of every step what each rank has sent until its end."""
        sums = [[0] * self.schedule.size]
        for found in self._messages:
            now = list(sums[-1])
            for message in found:
                now[message.src] += self.amount.of(message.chunk.tolist())
            sums.append(now)
        return sums
