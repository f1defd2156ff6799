"""Sliders over the cost model: who is fastest on which machine. Needs a running kernel."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence
from typing import Any

from coursekit.cost import CostError, formula
from coursekit.i18n import text
from coursekit.schedule import ScheduleError, algorithms
from coursekit.show._axes import colour, size_label, time_label
from coursekit.show.costs import COLLECTIVE, LARGEST, Setting, draw, setting

MOST_RANKS = 1024
GREEK = (("alpha", "α"), ("beta", "β"), ("gamma", "γ"))


def explore(
    size: int = 8,
    alpha: float = 5e-6,
    beta: float = 1e-10,
    *,
    nbytes: int = 1 << 20,
    algorithms: Sequence[str] | None = None,
    segments: int = 8,
) -> Any:
    """Move ranks, message, latency and bandwidth; the figure and the formula follow.

    It starts from `cost_curves` of the same arguments, which a notebook stores above it: widgets
    are not stored. Needs a running kernel.

    Parameters
    ----------
    size : int
        Ranks, from 2 to 1024; sliders go to the nearest place they have.
    alpha, beta : float
        Seconds a message, and seconds a byte.
    nbytes : int
        Message size, of the whole buffer, up to 16 GiB.
    algorithms : sequence of str, optional
        Those ticked at first; all by default.
    segments : int
        How many the pipelines (chain, double_tree) cut the buffer into.

    Raises
    ------
    ValueError
        As `cost_curves`.
    """
    start = setting(size, alpha, beta, nbytes, algorithms, segments)
    if size > MOST_RANKS:
        raise CostError(f"size must be from 2 to {MOST_RANKS} here, got {size}; try cost_curves")
    return _Panel(start).box


def rank_choices() -> list[int]:
    """2 to 1024, each at most an eighth above the one before; powers of two and what is between."""
    octaves = (range(1 << p, 1 << (p + 1), max(1, (1 << p) // 8)) for p in range(1, 10))
    return [*(size for octave in octaves for size in octave), MOST_RANKS]


def words(chosen: Setting, name: str) -> str:
    """The formula of an algorithm, and the same with the numbers of the setting, as HTML."""
    cost = chosen.cost(name, chosen.nbytes)
    latency, moving = cost.alphas * chosen.alpha, cost.betas * chosen.beta
    lines = [f"<b style='color:{colour(COLLECTIVE, name)}'>{html.escape(name)}</b>"]
    general, source = parted(formula(COLLECTIVE, name))
    if general:
        note = text("costs.source", source=html.escape(source))
        lines.append(f"<code>T = {html.escape(general)}</code> &nbsp; {note}")
        if re.search(r"\bg\b", general):
            lines.append(text("costs.groups"))
        if re.search(r"\b[qp]\b", general) and chosen.size & (chosen.size - 1):
            lines.append(text("costs.powers"))
    lines.append(
        f"<code>T = {cost.alphas:,} × {time_label(chosen.alpha)} + {cost.betas:,} B ÷ "
        f"{1e-9 / chosen.beta:.4g} GB/s</code>"
    )
    said = text("costs.parts", latency=time_label(latency), transfer=time_label(moving))
    lines.append(f"{said}<b>{time_label(latency + moving)}</b>")
    return f"<div style='line-height: 1.6'>{'<br>'.join(lines)}</div>"


def parted(told: str) -> tuple[str, str]:
    """T and the source out of `cost.formula`; no T where it tells only bounds."""
    first = told.splitlines()[0].removesuffix(".")
    found = re.match(r"T = ([^:;]+)", first)
    if found is None:
        return "", ""
    general = found[1].split(", for every")[0].split(", g groups")[0]
    for name, letter in GREEK:
        general = general.replace(name, letter)
    return general.strip(), first.rsplit(";", 1)[-1].strip()


class _Panel:
    """The controls, and what they change."""

    def __init__(self, start: Setting) -> None:
        import ipywidgets as widgets  # type: ignore[import-untyped]

        self.start = start
        self.sliders = _sliders(start)
        self.boxes = {
            name: widgets.Checkbox(
                value=name in start.names,
                description=name,
                indent=False,
                layout=widgets.Layout(width="max-content", margin="2px 14px 2px 2px"),
            )
            for name in algorithms(COLLECTIVE)
        }
        self.formula = widgets.Dropdown(
            options=[(text("costs.of_fastest"), ""), *((n, n) for n in algorithms(COLLECTIVE))],
            description=text("costs.formula"),
            style={"description_width": "110px"},
            layout=widgets.Layout(width="330px"),
        )
        self.said = widgets.HTML()
        self.picture = widgets.Output(layout=widgets.Layout(min_height="505px"))
        row = widgets.Layout(flex_flow="row wrap", width="100%")
        self.box = widgets.VBox(
            [
                widgets.HTML(f"<b>{text('costs.panel')}</b>"),
                widgets.HBox([*self.sliders.values(), self.formula], layout=row),
                widgets.HBox([*self.boxes.values()], layout=row),
                self.picture,
                self.said,
            ]
        )
        for control in (*self.sliders.values(), *self.boxes.values(), self.formula):
            control.observe(self._follow, "value")
        self._show(start)

    def _follow(self, _: Any) -> None:
        names = [name for name, box in self.boxes.items() if box.value]
        if not names:
            self.picture.clear_output()
            self.said.value = text("costs.none")
            return
        value = {name: slider.value for name, slider in self.sliders.items()}
        try:
            self._show(
                setting(
                    value["ranks"],
                    value["alpha"] * 1e-6,
                    1e-9 / value["bandwidth"],
                    value["message"],
                    names,
                    value["segments"],
                )
            )
        except (CostError, ScheduleError) as error:
            self.said.value = html.escape(str(error))

    def _show(self, chosen: Setting) -> None:
        from IPython.display import display

        self.said.value = words(chosen, self.formula.value or chosen.fastest())
        self.picture.clear_output(wait=True)
        with self.picture:
            display(draw(chosen))  # type: ignore[no-untyped-call]


def _sliders(start: Setting) -> dict[str, Any]:
    import ipywidgets as widgets

    look = {
        "continuous_update": False,
        "layout": widgets.Layout(width="330px"),
        "style": {"description_width": "110px"},
    }

    def steps(key: str, options: list[Any], value: int) -> Any:
        pairs = [each if isinstance(each, tuple) else (str(each), each) for each in options]
        nearest = min((v for _, v in pairs), key=lambda v: abs(math.log(v / value)))
        return widgets.SelectionSlider(
            options=pairs, value=nearest, description=text(f"costs.{key}"), **look
        )

    def logs(key: str, value: float, least: int, most: int) -> Any:
        return widgets.FloatLogSlider(
            value=min(max(value, 10.0**least), 10.0**most),
            base=10,
            min=least,
            max=most,
            step=0.05,
            readout_format=".3g",
            description=text(f"costs.{key}"),
            **look,
        )

    powers = [1 << p for p in range(LARGEST.bit_length())]
    return {
        "ranks": steps("ranks", list(rank_choices()), start.size),
        "message": steps("message", [(size_label(n), n) for n in powers], start.nbytes),
        "alpha": logs("alpha", start.alpha * 1e6, -1, 4),
        "bandwidth": logs("bandwidth", 1e-9 / start.beta, -2, 3),
        "segments": steps("segments", [1 << p for p in range(13)], start.segments),
    }
