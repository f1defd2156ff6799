"""Sliders that count anew: the only place in lesson 00 where a figure needs the kernel."""

from __future__ import annotations

from typing import Any

from coursekit.i18n import text
from coursekit.plan import PlanError, Strategy, ledger, models

POWERS = tuple(2**power for power in range(11))


def memory_explorer(start: Strategy | None = None, limit: float = 80e9) -> Any:
    """Choose degrees and stage; the bars of every model follow. Needs a running kernel.

    Parameters
    ----------
    start : Strategy, optional
        Where the sliders stand at first; plain data parallelism on 8 GPUs unless given.
    limit : float
        Bytes that the GPU has.
    """
    import ipywidgets as widgets  # type: ignore[import-untyped]

    from coursekit.show.memory import memory_bars

    start = start or Strategy(dp=8)

    def degree(name: str, value: int, most: int) -> Any:
        options = [power for power in POWERS if power <= most]
        return widgets.SelectionSlider(
            options=options, value=value, description=name, continuous_update=False
        )

    def draw(**degrees: int) -> None:
        from IPython.display import display

        try:
            rows = ledger(models(), [Strategy(**degrees)])
        except PlanError as error:
            print(error)
            return
        drawn = memory_bars(rows, limit)
        # With one strategy there is nothing to slide over.
        drawn.update_layout(sliders=[], margin={"b": 48}, height=430)
        drawn.frames = []
        display(drawn)  # type: ignore[no-untyped-call]

    controls = {
        "dp": degree("DP", start.dp, 1024),
        "tp": degree("TP", start.tp, 16),
        "pp": degree("PP", start.pp, 16),
        "zero": widgets.SelectionSlider(
            options=[0, 1, 2, 3], value=start.zero, description="ZeRO", continuous_update=False
        ),
    }
    title = widgets.HTML(f"<b>{text('memory.explore')}</b>")
    picture = widgets.interactive_output(draw, controls)
    return widgets.VBox([title, widgets.HBox([*controls.values()], layout=_wrap(widgets)), picture])


def _wrap(widgets: Any) -> Any:
    return widgets.Layout(flex_flow="row wrap")
