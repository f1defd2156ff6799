"""Sliders that count anew: the only place in lesson 00 where a figure needs the kernel."""

from __future__ import annotations

from functools import partial
from typing import Any

from coursekit.i18n import text
from coursekit.plan import PlanError, Strategy, ledger, models
from coursekit.show.memory import memory_bars

# Equal blocks whose number the sliders' degrees divide.
COMPARED = ("llama2-7b", "llama2-70b", "gpt3-175b")
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

    start = start or Strategy(dp=8)
    most = {"dp": 1024, "tp": 16, "pp": 16}
    options = {name: [power for power in POWERS if power <= top] for name, top in most.items()}
    controls = {
        name: widgets.SelectionSlider(
            options=choices,
            value=getattr(start, name),
            description={"zero": "ZeRO"}.get(name, name.upper()),
            continuous_update=False,
            layout=widgets.Layout(width="215px"),
            style={"description_width": "42px"},
        )
        for name, choices in {**options, "zero": [0, 1, 2, 3]}.items()
    }
    picture = widgets.interactive_output(partial(_draw, limit), controls)
    row = widgets.HBox([*controls.values()], layout=widgets.Layout(flex_flow="row wrap"))
    return widgets.VBox([widgets.HTML(f"<b>{text('memory.explore')}</b>"), row, picture])


def _draw(limit: float, **degrees: int) -> None:
    from IPython.display import display

    try:
        rows = ledger(models(*COMPARED), [Strategy(**degrees)])
    except PlanError as error:
        print(error)
        return
    drawn = memory_bars(rows, limit)
    # With one strategy there is nothing to slide over.
    drawn.update_layout(sliders=[], margin={"b": 48}, height=430)
    drawn.frames = []
    display(drawn)  # type: ignore[no-untyped-call]
