"""Plans beside each other: memory against time, bytes by group and wire, seconds by cause."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil, log10
from typing import Any

import plotly.graph_objects as go

from coursekit.i18n import text
from coursekit.plan import Outcome, Search
from coursekit.show._axes import digits
from coursekit.show._template import BAD, GOOD, INK, PALETTE, button_row, figure
from coursekit.show._tint import bands, tint

GB = 1e9
GROUPS = ("tp", "cp", "ep", "pp", "dp")
# A group has one colour in all figures; what is no message is grey or the palette's rest.
COLOURS = {
    **dict(zip(GROUPS, PALETTE, strict=False)),
    "compute": PALETTE[7],
    "bubble": tint(INK, 0.35),
    "optimizer": PALETTE[6],
    "beside": PALETTE[5],
}
# Plans slower than this many times the best are of no interest, and many.
SLOWEST = 2.0

Outcomes = Mapping[str, Outcome] | Iterable[Outcome]


def pareto(search: Search, slowest: float = SLOWEST) -> go.Figure:
    """A point a plan: memory of its fullest GPU, and the seconds of a step.

    Parameters
    ----------
    search : Search
        From `coursekit.plan.best`.
    slowest : float
        Plans slower than so many times the best are left out.

    Raises
    ------
    PlanError
        No plan fits.
    """
    best = search.best
    most = slowest * best.seconds.total
    near = [o for o in search.outcomes if o.seconds.total <= most]
    room = search.job.machine.room / GB
    front = _front(near)
    drawn = figure(
        title={"text": _pareto_title(search)},
        height=520,
        margin={"t": 112, "r": 96, "b": 84},
        xaxis={"title": {"text": text("plans.memory")}, "range": [0, room * 1.06]},
        yaxis={"title": {"text": text("plans.step")}},
        legend={"x": 0.01, "y": 0.02, "yanchor": "bottom", "orientation": "v"},
        annotations=[_count(search, len(near))],
    )
    drawn.add_scatter(
        name=text("plans.plan"), x=[_gb(o) for o in near], y=[_total(o) for o in near],
        mode="markers", customdata=[_causes(o) for o in near],
        hovertemplate="%{customdata}<br>%{y} s, %{x} GB<extra></extra>",
        marker={"size": 9, "line": {"width": 0.5, "color": INK}, **_degree_colours(near, "tp")},
        showlegend=False,
    )  # fmt: skip
    drawn.add_scatter(
        name=text("plans.front"), x=[_gb(o) for o in front], y=[_total(o) for o in front],
        mode="lines", line={"color": INK, "width": 2, "shape": "hv"}, hoverinfo="skip",
    )  # fmt: skip
    drawn.add_scatter(
        name=f"{text('plans.best')}: {best.plan}", x=[_gb(best)], y=[_total(best)], mode="markers",
        marker={"symbol": "star", "size": 20, "color": BAD, "line": {"width": 1, "color": INK}},
        hoverinfo="skip",
    )  # fmt: skip
    told = text("plans.room", room=f"{room:.0f}")
    drawn.add_vline(
        x=room, line={"color": BAD, "dash": "dash"}, annotation_text=told,
        annotation_font_color=BAD, annotation_position="bottom left",
    )  # fmt: skip
    buttons = [_degree_button(near, degree) for degree in ("tp", "pp", "dp", "zero")]
    drawn.update_layout(updatemenus=[button_row(buttons, 1.0, below=6)])
    return drawn


def _pareto_title(search: Search) -> str:
    return text("plans.pareto", model=search.job.model.title, gpus=f"{search.gpus:,}")


def _count(search: Search, drawn: int) -> dict[str, Any]:
    big = sum(reason.startswith("it does not fit") for reason in search.rejected.values())
    words = text(
        "plans.told", drawn=drawn, slow=len(search.outcomes) - drawn, big=big,
        broken=len(search.rejected) - big,
    )  # fmt: skip
    place = {"x": 0, "xref": "paper", "xanchor": "left", "y": 0, "yref": "paper", "yshift": -62}
    return {"text": words, "showarrow": False, "yanchor": "top", **place}


def _front(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Plans that nothing beats in both, from the least memory up."""
    found: list[Outcome] = []
    for each in sorted(outcomes, key=lambda o: (o.memory.total, o.seconds.total)):
        if not found or each.seconds.total < found[-1].seconds.total:
            found.append(each)
    return found


def _degree_colours(outcomes: Sequence[Outcome], degree: str) -> dict[str, Any]:
    """Solid colours for the values of a degree, told on a bar at the side."""
    values = sorted({getattr(o.plan, degree) for o in outcomes})
    shades = [PALETTE[n % len(PALETTE)] for n in range(len(values))]
    bar = {
        "title": {"text": degree.upper() if degree != "zero" else "ZeRO"},
        "tickvals": [n + 0.5 for n in range(len(values))],
        "ticktext": [str(v) for v in values],
        "thickness": 14,
        "outlinewidth": 0,
    }
    # The middle of each band, so that no rounding puts a point into the next one.
    numbers = [values.index(getattr(o.plan, degree)) + 0.5 for o in outcomes]
    limits = {"cmin": 0, "cmax": len(values)}
    return {"color": numbers, "colorscale": bands(shades), "colorbar": bar, **limits}


def _degree_button(outcomes: Sequence[Outcome], degree: str) -> dict[str, Any]:
    name = degree.upper() if degree != "zero" else "ZeRO"
    looks = {f"marker.{key}": [value] for key, value in _degree_colours(outcomes, degree).items()}
    label = text("plans.colour", degree=name)
    return {"label": label, "method": "restyle", "args": [looks, [0]]}


def _causes(outcome: Outcome) -> str:
    """A plan and the three things that its time goes to."""
    parts = sorted(outcome.seconds.parts.items(), key=lambda part: -part[1])[:3]
    told = ", ".join(f"{_word(name)} {value:.3g}" for name, value in parts if value)
    return f"<b>{outcome.plan}</b><br>{told}"


def volumes(outcomes: Outcomes) -> go.Figure:
    """Bytes that a GPU sends in a step, stacked by group: above inside nodes, below between them.

    On the logarithmic scale groups stand beside each other, since heights do not add up there.

    Parameters
    ----------
    outcomes : mapping or list of Outcome
        From `coursekit.plan.evaluate`; a mapping's keys are the names to show.

    Raises
    ------
    ValueError
        There is none.
    """
    named = _named(outcomes, "volumes", 14)
    wires = ("link", "network")
    sums = {w: [sum(r.bytes for r in o.sent if r.wire == w) for o in named.values()] for w in wires}
    drawn = figure(
        title={"text": text("plans.volumes")},
        barmode="stack",
        bargap=0.35,
        height=600,
        margin={"t": 112},
        yaxis={"title": {"text": text("plans.link")}, "domain": [0.55, 1], **_reach(sums["link"])},
        yaxis2={"title": {"text": text("plans.network")}, "domain": [0, 0.45], "anchor": "x2",
                **_reach(sums["network"])},
        xaxis={"showticklabels": False, "anchor": "y"},
        xaxis2={"anchor": "y2", "matches": "x"},
        legend={"x": 1, "xanchor": "right", "traceorder": "normal"},
    )  # fmt: skip
    for axis, wire in zip(("", "2"), wires, strict=True):
        for group in GROUPS:
            _add_group(drawn, named, group, wire, axis)
        drawn.add_scatter(
            x=list(named), y=[digits(total / GB) for total in sums[wire]], mode="text",
            text=[f"<b>{total / GB:,.3g}</b>" if total else "0" for total in sums[wire]],
            textposition="top center", xaxis=f"x{axis}", yaxis=f"y{axis}", hoverinfo="skip",
            showlegend=False, cliponaxis=False,
        )  # fmt: skip
    drawn.update_layout(updatemenus=[button_row(_scales(sums), 1.0, below=6)])
    return drawn


def _add_group(
    drawn: go.Figure, named: Mapping[str, Outcome], group: str, wire: str, axis: str
) -> None:
    bytes_ = [
        sum(r.bytes for r in o.sent if (r.group, r.wire) == (group, wire)) for o in named.values()
    ]
    if not any(bytes_):
        return
    shown = {trace.name for trace in drawn.data}
    name = text(f"plans.{group}")
    drawn.add_bar(
        name=name, x=list(named), y=[digits(b / GB) if b else None for b in bytes_],
        xaxis=f"x{axis}", yaxis=f"y{axis}", marker={"color": COLOURS[group]}, legendgroup=group,
        showlegend=name not in shown, hovertemplate="%{y} GB",
    )  # fmt: skip


def _reach(sums: Sequence[float]) -> dict[str, Any]:
    """From nothing, with room for a total above the highest bar."""
    return {"range": [0, 1.18 * max(max(sums) / GB, 1e-6)]}


def _scales(sums: Mapping[str, Sequence[float]]) -> list[dict[str, Any]]:
    axes = {"link": "yaxis", "network": "yaxis2"}
    linear: dict[str, Any] = {"barmode": "stack"}
    log: dict[str, Any] = {"barmode": "group"}
    for wire, axis in axes.items():
        linear |= {f"{axis}.type": "linear", f"{axis}.range": _reach(sums[wire])["range"],
                   f"{axis}.tickmode": "auto"}  # fmt: skip
        highest = ceil(log10(max(max(sums[wire]) / GB, 1)) + 0.2)
        log |= {f"{axis}.type": "log", f"{axis}.range": [-1, highest],
                f"{axis}.tickmode": "linear", f"{axis}.dtick": 1}  # fmt: skip
    words = (("plans.linear", linear), ("plans.log", log))
    return [{"label": text(w), "method": "relayout", "args": [change]} for w, change in words]


def seconds(outcomes: Outcomes) -> go.Figure:
    """A bar a plan: what a step's seconds go to; below it, pale, the messages that are hidden.

    Parameters
    ----------
    outcomes : mapping or list of Outcome
        From `coursekit.plan.evaluate`; a mapping's keys are the names to show.

    Raises
    ------
    ValueError
        There is none.
    """
    named = _named(outcomes, "seconds", 30)
    totals = [o.seconds.total for o in named.values()]
    drawn = figure(
        title={"text": text("plans.seconds")},
        barmode="relative",
        bargap=0.3,
        height=190 + 62 * len(named),
        margin={"t": 112},
        xaxis={"title": {"text": text("plans.axis")}, "range": [0, 1.12 * max(totals)]},
        yaxis={"autorange": "reversed", "showgrid": False},
        legend={"x": 0, "traceorder": "normal"},
    )
    for part in ("compute", "bubble", *GROUPS, "optimizer", "beside"):
        values = [o.seconds.parts[part] for o in named.values()]
        if any(v > 0.001 * t for v, t in zip(values, totals, strict=True)):
            _add_bar(drawn, named, _word(part), values, COLOURS[part], "step")
    hidden = [o.seconds.hidden for o in named.values()]
    if any(hidden):
        _add_bar(drawn, named, text("plans.hidden"), hidden, tint(GOOD, 0.45), "hidden")
    drawn.add_scatter(
        x=[digits(total) for total in totals], y=list(named), mode="text",
        text=[f"<b>{total:.3g} s</b>" for total in totals], textposition="middle right",
        hoverinfo="skip", showlegend=False, cliponaxis=False,
    )  # fmt: skip
    return drawn


def _add_bar(
    drawn: go.Figure, named: Mapping[str, Outcome], name: str, values: Sequence[float],
    colour: str, row: str,
) -> None:  # fmt: skip
    drawn.add_bar(
        name=name, y=list(named), x=[digits(v, 4) for v in values], orientation="h",
        marker={"color": colour}, offsetgroup=row, hovertemplate="%{x} s",
    )  # fmt: skip


def _named(outcomes: Outcomes, what: str, most: int) -> dict[str, Outcome]:
    """By the words below or beside a bar, each in short lines."""
    pairs = (
        outcomes.items() if isinstance(outcomes, Mapping) else [(str(o.plan), o) for o in outcomes]
    )
    named = {_wrap(name, most): outcome for name, outcome in pairs}
    if not named:
        raise ValueError(f"{what} needs an outcome, got none; try plan.evaluate(job, plan)")
    return named


def _wrap(name: str, most: int) -> str:
    lines = [""]
    for word in name.split():
        fits = len(lines[-1]) + len(word) < most or not lines[-1]
        lines = [*lines[:-1], f"{lines[-1]} {word}".strip()] if fits else [*lines, word]
    return "<br>".join(lines)


def _word(part: str) -> str:
    return text(f"plans.{part}")


def _gb(outcome: Outcome) -> float:
    return digits(outcome.memory.gb, 4)


def _total(outcome: Outcome) -> float:
    return digits(outcome.seconds.total, 4)
