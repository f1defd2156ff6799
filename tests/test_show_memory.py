"""Figures show the numbers they were given, in the learner's language, and stay small."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import plotly.graph_objects as go
import plotly.io as pio
import pytest

import coursekit
from coursekit import plan, show
from coursekit.show._template import BAD, GOOD, INK, PALETTE

LEDGER = plan.ledger(plan.models("llama2-7b", "llama2-70b", "gpt3-175b"))


@pytest.fixture(autouse=True)
def english() -> Iterator[None]:
    yield
    coursekit.language("en")


def bars(traces: Any) -> dict[str, list[float]]:
    return {trace.name: list(trace.y) for trace in traces if isinstance(trace, go.Bar)}


def test_every_frame_shows_its_row_of_the_ledger() -> None:
    figure = show.memory_bars(LEDGER)
    assert [frame.name for frame in figure.frames] == [str(strategy) for strategy in LEDGER]
    for frame, row in zip(figure.frames, LEDGER.values(), strict=True):
        shown = bars(frame.data)
        assert list(shown) == ["weights", "gradients", "optimizer states"]
        sums = [sum(parts) for parts in zip(*shown.values(), strict=True)]
        assert sums == pytest.approx([memory.gb for memory in row.values()], abs=0.01)
        colours = [GOOD if memory.fits() else BAD for memory in row.values()]
        assert list(frame.data[-1].textfont.color) == colours
        assert len(frame.data) == len(figure.data)
    assert bars(figure.data) == bars(figure.frames[0].data)


def test_the_slider_reaches_every_frame_and_each_model_has_its_button() -> None:
    figure = show.memory_bars(LEDGER)
    reached = [step.args[0][0] for step in figure.layout.sliders[0].steps]
    assert reached == [frame.name for frame in figure.frames]
    labels = [button.label for button in figure.layout.updatemenus[0].buttons]
    assert labels == ["all models", "Llama-2 7B", "Llama-2 70B", "GPT-3 175B"]


def test_buttons_and_frames_do_not_touch_the_same_things() -> None:
    figure = show.memory_bars(LEDGER)
    moved = {key for button in figure.layout.updatemenus[0].buttons for key in button.args[0]}
    assert moved == {"xaxis.range", "yaxis.range"}
    changed = {key for frame in figure.frames for key in frame.layout.to_plotly_json()}
    assert changed == {"title"}


def test_the_line_stands_at_the_limit() -> None:
    figure = show.memory_bars(LEDGER, limit=40e9)
    line = figure.layout.shapes[0]
    assert (line.y0, line.y1) == (40, 40)
    assert figure.layout.annotations[0].text == "40 GB"


def test_activations_are_drawn_when_there_are_some() -> None:
    memory = plan.gpu_memory("llama2-7b", micro_batch=1, sequence=4096)
    figure = show.memory_bars({plan.Strategy(): {"Llama-2 7B": memory}})
    assert list(bars(figure.data)) == ["weights", "gradients", "optimizer states", "activations"]


def test_the_figure_speaks_the_learners_language() -> None:
    coursekit.language("zh")
    text = show.memory_bars(LEDGER).to_json()
    assert "weights" not in text
    assert json.loads(text)["data"][0]["name"] == "\u6743\u91cd"


def test_a_stored_figure_is_small_and_readable() -> None:
    text = show.memory_bars(LEDGER).to_json()
    assert len(text) < 60_000
    assert "bdata" not in text


def test_no_ledger_no_figure() -> None:
    with pytest.raises(ValueError, match="a ledger must have a strategy, got none; try plan"):
        show.memory_bars({})


def test_figures_are_stored_as_plotly_data_only() -> None:
    assert pio.renderers.default == "plotly_mimetype"
    bundle = pio.renderers["plotly_mimetype"].to_mimebundle(show.memory_bars(LEDGER).to_dict())
    assert list(bundle) == ["application/vnd.plotly.v1+json"]


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("colour", [INK, GOOD, BAD, *PALETTE])
@pytest.mark.parametrize("page", ["#ffffff", "#111111"])
def test_colours_stand_out_from_light_and_dark_pages(colour: str, page: str) -> None:
    """WCAG asks for a contrast of 3 between a page and a graphical object or large text."""
    dark, light = sorted([luminance(colour), luminance(page)])
    least = 2.4 if colour in PALETTE else 3.0
    assert (light + 0.05) / (dark + 0.05) >= least


def test_before_after_shows_every_value_and_its_sources() -> None:
    figure = show.before_after([[1, 2], [10, 20], [100, 200]], [[111, 222]] * 3)
    words = [note.text for note in figure.layout.annotations]
    assert [words.count(f"<b>{v}</b>") for v in (1, 20, 200, 111, 222)] == [1, 1, 1, 3, 3]
    # Six boxes of one colour, six of three bands each.
    assert len(figure.layout.shapes) == 6 + 6 * 3


def test_before_after_takes_other_sources() -> None:
    sources = [[[0], [1]], [[0], [1]]]
    figure = show.before_after([[1], [2]], [[1, 2], [1, 2]], "all_gather", sources)
    colours = [shape.fillcolor for shape in figure.layout.shapes]
    assert colours == [PALETTE[0], PALETTE[1], *[PALETTE[0], PALETTE[1]] * 2]


def test_before_after_draws_nothing_where_nothing_is_promised() -> None:
    after = [[1111, None], [None, None]]
    figure = show.before_after([[1], [1110]], after, "reduce", show.digit_owners(after))
    dotted = [shape for shape in figure.layout.shapes if shape.line.dash == "dot"]
    assert len(dotted) == 3
    assert len(figure.layout.shapes) == 2 + 3 + 4


def test_digits_tell_whose_values_are_in_a_box() -> None:
    assert show.digit_owners([[1, 220, 0], [None, 4004]]) == [[[0], [1, 2], []], [[], [0, 3]]]


def test_before_after_wants_as_many_rows() -> None:
    with pytest.raises(ValueError, match="one row a rank, got 1 and 2 rows"):
        show.before_after([[1]], [[1], [2]])


def test_compute_vs_communication_shows_milliseconds() -> None:
    rows = [{"n": n, "alone": n * 1e-3, "split": n * 5e-4, "gather": 2e-3} for n in (64, 128)]
    figure = show.compute_vs_communication(rows)
    assert [list(trace.y) for trace in figure.data] == [[64, 128], [32, 64], [2, 2]]
    with pytest.raises(ValueError, match="got none of gather"):
        show.compute_vs_communication([{"n": 1, "alone": 1, "split": 1}])


def test_the_explorer_starts_with_the_same_figure_and_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[go.Figure] = []
    monkeypatch.setattr("IPython.display.display", lambda what: shown.append(what))
    box = show.memory_explorer()
    sliders = {slider.description: slider for slider in box.children[1].children}
    assert list(sliders) == ["DP", "TP", "PP", "ZeRO"]
    assert bars(shown[-1].data) == bars(show.memory_bars(LEDGER).frames[1].data)
    sliders["ZeRO"].value = 1
    assert bars(shown[-1].data) == bars(show.memory_bars(LEDGER).frames[2].data)


def test_the_explorer_says_what_cannot_be(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("IPython.display.display", lambda what: None)
    odd = plan.Model("odd", 3, 96, 3, 3, 96, 96)
    monkeypatch.setattr("coursekit.show._explorer.models", lambda *names: {"odd": odd})
    box = show.memory_explorer(plan.Strategy(tp=2))
    assert box is not None
    assert "tp must divide the model's 3 heads" in capsys.readouterr().out
