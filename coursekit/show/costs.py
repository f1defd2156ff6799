"""What every all-reduce algorithm is predicted to take, over message size."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from coursekit.cost import Cost, CostError, closed_form, crossover
from coursekit.i18n import text
from coursekit.schedule import algorithms, options
from coursekit.show._axes import colour, digits, size_axis, size_label, time_axis, time_label
from coursekit.show._template import INK, figure

COLLECTIVE = "all_reduce"
LARGEST = 1 << 34
# Whole octaves and one size between each: lines on logarithmic axes bend slowly.
SIZES = (1, *(size for power in range(1, 34) for size in (1 << power, 3 << (power - 1))), LARGEST)


@dataclass(frozen=True)
class Setting:
    """A machine, a message, and the algorithms to compare. Units: bytes and seconds."""

    size: int
    alpha: float
    beta: float
    nbytes: int
    names: tuple[str, ...]
    segments: int

    def cost(self, algorithm: str, nbytes: int) -> Cost:
        """The closed form."""
        return closed_form(COLLECTIVE, algorithm, self.size, nbytes, **self._given(algorithm))

    def times(self, algorithm: str, sizes: Sequence[float]) -> list[float]:
        """Seconds for each size; one closed form serves all, since it is linear in the bytes."""
        whole = self.cost(algorithm, 1 << 60)
        fixed, slope = whole.alphas * self.alpha, whole.betas / (1 << 60) * self.beta
        return [fixed + slope * size for size in sizes]

    def fastest(self) -> str:
        """The fastest algorithm for the message."""
        return min(self.names, key=lambda name: self.times(name, [self.nbytes])[0])

    def order(self) -> list[tuple[str, float]]:
        """The fastest algorithms from small to large, each with the bytes from which on it is."""
        ends = {name: tuple(self.times(name, [1, LARGEST])) for name in self.names}
        out = [(min(ends, key=lambda name: ends[name]), 1.0)]
        while after := self._next(*out[-1], ends):
            out.append(after)
        return out

    def _next(
        self, name: str, since: float, ends: dict[str, tuple[float, ...]]
    ) -> tuple[str, float] | None:
        """Who overtakes first: of those that gain on `name` with every byte."""
        gain = {other: ends[other][1] - ends[other][0] for other in ends}
        crossings = [
            (at, gain[other], other)
            for other in self.names
            if gain[other] < gain[name]
            and (at := self._crossing(name, other)) is not None
            and since <= at < LARGEST
        ]
        if not crossings:
            return None
        at, _, other = min(crossings)
        return other, at

    def _crossing(self, one: str, other: str) -> float | None:
        given = {**self._given(one), **self._given(other)}
        return crossover(one, other, self.size, self.alpha, self.beta, 0.0, COLLECTIVE, **given)

    def _given(self, algorithm: str) -> dict[str, int]:
        own = options(COLLECTIVE, algorithm, self.size)
        return {"segments": self.segments} if "segments" in own else {}


def setting(
    size: int,
    alpha: float,
    beta: float,
    nbytes: int,
    names: Sequence[str] | None,
    segments: int,
) -> Setting:
    """Checked; raises as `cost_curves` does."""
    known = algorithms(COLLECTIVE)
    chosen = known if names is None else list(dict.fromkeys(names))
    if isinstance(names, str) or not chosen or set(chosen) - set(known):
        raise ValueError(
            f"algorithms must be a list of some of {', '.join(known)}, got {names!r}; "
            "leave it out for all of them"
        )
    if isinstance(size, bool) or not isinstance(size, int) or size < 2:
        raise CostError(f"size must be a whole number of ranks from 2 up, got {size!r}; try 8")
    if isinstance(nbytes, bool) or not isinstance(nbytes, int) or not 1 <= nbytes <= LARGEST:
        raise CostError(
            f"nbytes must be a whole number from 1 to {LARGEST} (16 GiB), got {nbytes!r}; "
            "try 1 << 20"
        )
    options(COLLECTIVE, "chain", size, segments=segments)  # it knows what segments may be
    made = Setting(size, alpha, beta, nbytes, tuple(chosen), segments)
    made.cost(chosen[0], nbytes).time(alpha, beta)  # it knows what alpha and beta may be
    if not (alpha > 0 and beta > 0):
        raise CostError(
            f"alpha and beta must be above 0 on logarithmic axes, got {alpha!r}, {beta!r}; "
            "try 5e-6 and 1e-10"
        )
    return made


def cost_curves(
    size: int = 8,
    alpha: float = 5e-6,
    beta: float = 1e-10,
    *,
    nbytes: int = 1 << 20,
    algorithms: Sequence[str] | None = None,
    segments: int = 8,
) -> go.Figure:
    """Predicted time of every all-reduce algorithm, from 1 B to 16 GiB; logarithmic axes.

    A broad band lies under the fastest one, rings stand where it changes (`cost.crossover`), a
    dotted line at the chosen size. Adding is taken to cost nothing.

    Parameters
    ----------
    size : int
        Ranks, from 2 up.
    alpha, beta : float
        Seconds a message, and seconds a byte (1e-10 for 10 GB/s).
    nbytes : int
        The chosen message size, of the whole buffer.
    algorithms : sequence of str, optional
        Some of ``coursekit.schedule.algorithms("all_reduce")``; all by default.
    segments : int
        How many the pipelines (chain, double_tree) cut the buffer into.

    Raises
    ------
    ValueError
        A number or a name that cannot be; CostError and ScheduleError are such.

    Examples
    --------
    >>> show.cost_curves(64, 5e-6, 1 / 12e9, nbytes=1 << 20)
    """
    return draw(setting(size, alpha, beta, nbytes, algorithms, segments))


def draw(chosen: Setting) -> go.Figure:
    """The figure of a setting."""
    order = chosen.order()
    title = text(
        "costs.title",
        size=chosen.size,
        alpha=time_label(chosen.alpha),
        bandwidth=f"{1e-9 / chosen.beta:.4g} GB/s",
    )
    drawn = figure(
        height=500,
        title={
            "text": f"{title}<br><span style='font-size:13px'>{order_words(order)}</span>",
            "y": 0.955,
        },
        margin={"t": 108, "b": 56},
        legend={"y": 1.01},
        xaxis={**size_axis(1, LARGEST), "title": {"text": text("costs.size")}},
        yaxis=_time_axis(chosen),
    )
    drawn.add_trace(_band(chosen, order))
    labels = [size_label(size) for size in SIZES]
    for name in chosen.names:
        drawn.add_scatter(
            name=name,
            x=SIZES,
            y=[digits(1e6 * time) for time in chosen.times(name, SIZES)],
            mode="lines",
            line={"color": colour(COLLECTIVE, name), "width": 2},
            text=labels,
            hovertemplate=f"<b>{name}</b><br>%{{text}}: %{{y:,}} µs<extra></extra>",
        )
    _mark_crossings(drawn, chosen, order)
    _mark_chosen(drawn, chosen)
    return drawn


def order_words(order: Sequence[tuple[str, float]]) -> str:
    """Which algorithm is fastest from where to where."""
    if len(order) == 1:
        return text("costs.one", algorithm=order[0][0])
    words = [
        text(
            f"costs.{'between' if number else 'first'}",
            algorithm=name,
            since=size_label(since),
            nbytes=size_label(until),
        )
        for number, ((name, since), (_, until)) in enumerate(itertools.pairwise(order))
    ]
    words.append(text("costs.last", algorithm=order[-1][0]))
    return text("costs.fastest_by_size", words=text("costs.joint").join(words))


def _time_axis(chosen: Setting) -> dict[str, object]:
    times = [time for name in chosen.names for time in chosen.times(name, [1, LARGEST])]
    least, most = 1e6 * min(times) / 2.5, 1e6 * max(times) * 4
    return {**time_axis(least, most), "title": {"text": text("costs.time")}}


def _band(chosen: Setting, order: Sequence[tuple[str, float]]) -> go.Scatter:
    """Under the fastest: through all sizes and the crossings themselves."""
    sizes = sorted({*map(float, SIZES), *(at for _, at in order)})
    best = [min(chosen.times(name, [size])[0] for name, _ in order) for size in sizes]
    return go.Scatter(
        name=text("costs.fastest"),
        x=[digits(size, 8) for size in sizes],
        y=[digits(1e6 * time) for time in best],
        mode="lines",
        line={"color": "rgba(127, 134, 143, 0.35)", "width": 12},
        hoverinfo="skip",
    )


def _mark_crossings(drawn: go.Figure, chosen: Setting, order: Sequence[tuple[str, float]]) -> None:
    changes = order[1:]
    drawn.add_scatter(
        name="",
        x=[digits(at, 8) for _, at in changes],
        y=[digits(1e6 * chosen.times(name, [at])[0]) for name, at in changes],
        mode="markers+text",
        marker={"symbol": "circle-open", "size": 13, "color": INK, "line": {"width": 2.5}},
        text=[size_label(at) for _, at in changes],
        textposition="bottom right",
        textfont={"color": INK},
        hovertext=[
            text("costs.cross", nbytes=size_label(at), algorithm=name) for name, at in changes
        ],
        hovertemplate="%{hovertext} (%{x:,.0f} B)<extra></extra>",
        showlegend=False,
    )


def _mark_chosen(drawn: go.Figure, chosen: Setting) -> None:
    name = chosen.fastest()
    time = chosen.cost(name, chosen.nbytes).time(chosen.alpha, chosen.beta)
    words = text(
        "costs.chosen", nbytes=size_label(chosen.nbytes), algorithm=name, time=time_label(time)
    )
    drawn.add_vline(x=chosen.nbytes, line={"color": INK, "width": 1.5, "dash": "dot"})
    drawn.add_scatter(
        x=[chosen.nbytes],
        y=[digits(1e6 * time)],
        mode="markers",
        marker={"size": 12, "color": colour(COLLECTIVE, name), "line": {"width": 2, "color": INK}},
        hovertemplate=f"{words}<extra></extra>",
        showlegend=False,
    )
    right = chosen.nbytes < 1 << 17
    drawn.add_annotation(
        text=f"<b>{words}</b>",
        x=math.log10(chosen.nbytes),  # plotly wants it so on logarithmic axes
        xref="x",
        y=0.99,
        yref="paper",
        xanchor="left" if right else "right",
        xshift=6 if right else -6,
        yanchor="top",
        showarrow=False,
    )
