"""Figures of pipelines show what the simulator or the ranks' clocks say, in both languages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

import coursekit
from coursekit import pipeline, show
from coursekit.measure import Span
from coursekit.show._pipeline_live import CASES


@pytest.fixture(autouse=True)
def english() -> Iterator[None]:
    yield
    coursekit.language("en")


def shown(traces: Any, axis: str = "y") -> set[tuple[str, int, int, float, float]]:
    """Of each bar: the colour's name, rank, micro-batch, start, end."""
    return {
        (trace.name, rank, int(number), start, start + length)
        for trace in traces
        if trace.base is not None and (trace.yaxis or "y") == axis
        for rank, number, start, length in zip(
            trace.y, trace.text, trace.base, trace.x, strict=True
        )
    }


def wanted(time: pipeline.Timeline, names: dict[str, str]) -> set[tuple[str, int, int, Any, Any]]:
    return {(names[b.action.phase], b.rank, b.action.micro_batch, b.start, b.end)
            for b in time.bars}  # fmt: skip


WHOLE = {"F": "forward", "B": "backward"}
HALVES = {"F": "forward", "I": "backward for the input", "W": "backward for the weights"}


def bars_only(figure: Any) -> list[Any]:
    return [trace for trace in figure.data if trace.type == "bar"]


def test_every_action_of_every_schedule_is_a_bar() -> None:
    first, second = pipeline.build("1f1b", 4, 8), pipeline.build("zb-h1", 4, 8)
    figure = show.schedule(first, second)
    assert shown(bars_only(figure), "y") == wanted(pipeline.simulate(first), WHOLE)
    assert shown(bars_only(figure), "y2") == wanted(pipeline.simulate(second), HALVES)
    assert [note.text for note in figure.layout.annotations] == [
        "<b>1f1b</b>: idle 27% of the time, at most 4 in flight",
        "<b>zb-h1</b>: idle 11% of the time, at most 4 in flight",
    ]
    legend = [trace.name for trace in figure.data if trace.showlegend]
    assert legend == ["idle", "forward", "backward", "backward for the input",
                      "backward for the weights"]  # fmt: skip


def test_chunks_have_their_own_shade_and_their_part_of_a_peak() -> None:
    figure = show.schedule(pipeline.build("interleaved", 4, 8, 2))
    colours = {trace.name: trace.marker.color for trace in bars_only(figure)}
    assert list(colours) == ["idle", "forward", "forward, chunk 1", "backward", "backward, chunk 1"]
    assert len(set(colours.values())) == 5
    assert figure.layout.annotations[0].text.endswith("at most 5.5 in flight")


def test_grey_reaches_from_the_start_to_the_end_on_every_rank() -> None:
    figure = show.schedule(pipeline.build("gpipe", 4, 8))
    assert list(figure.data[0].x) == [33] * 4
    assert list(figure.layout.yaxis.ticktext) == [f"rank {rank}" for rank in range(4)]
    assert figure.layout.xaxis.title.text == "time (one forward of a rank = 1)"


def spans(made: pipeline.PipelineSchedule, unit: float = 0.01) -> list[list[Span]]:
    """As if ranks had measured what is simulated, from second 5 on."""
    told: list[list[Span]] = [[] for _ in range(made.ranks)]
    for bar in pipeline.simulate(made).bars:
        start, end = 5 + unit * bar.start, 5 + unit * bar.end
        told[bar.rank] += [
            Span(bar.rank, "communicate", "wait", start - 0.001, start, "0F0"),
            Span(bar.rank, "compute", "forward", start, end, str(bar.action)),
        ]
    return told


def test_measured_spans_stand_beside_what_is_simulated_in_milliseconds() -> None:
    made = pipeline.build("1f1b", 4, 8)
    simulated = pipeline.simulate(made, 10, 20)
    figure = show.schedule(simulated, spans(made))
    assert shown(bars_only(figure), "y2") == wanted(simulated, WHOLE)
    assert [note.text for note in figure.layout.annotations] == [
        "<b>simulated</b>: idle 27% of the time, at most 4 in flight",
        "<b>measured</b>: idle 27% of the time, at most 4 in flight",
    ]
    assert figure.layout.xaxis.title.text == "time (ms)"


def test_what_is_no_step_of_a_pipeline_is_refused() -> None:
    with pytest.raises(ValueError, match=r"labelled such as 2F5, got \[''\]; run clock\.clear"):
        show.schedule([[Span(0, "compute", "forward", 0, 1)]])
    with pytest.raises(ValueError, match=r"got 0 and 0 names; try show\.schedule"):
        show.schedule()
    with pytest.raises(ValueError, match="got 1 and 2 names"):
        show.schedule(pipeline.build("1f1b", 2, 2), names=["a", "b"])


def test_the_slider_has_every_case_at_every_number() -> None:
    numbers = (1, 2, 4, 8, 16)
    figure = show.pipelines(micro_batches=numbers)
    assert [frame.name for frame in figure.frames] == [str(m) for m in numbers]
    assert [step.args[0][0] for step in figure.layout.sliders[0].steps] == list(map(str, numbers))
    buttons = figure.layout.updatemenus[0].buttons
    assert len(buttons) == len(CASES)
    for button, (name, ranks, chunks) in zip(buttons, CASES, strict=True):
        visible = button.args[0]["visible"]
        assert len(visible) == len(figure.data)
        assert button.args[1]["yaxis.range"] == [ranks - 0.5, -0.5]
        for m, frame in zip(numbers, figure.frames, strict=True):
            assert len(frame.data) == len(figure.data)
            mine = [trace for trace, on in zip(frame.data, visible, strict=True) if on]
            starts = [start for trace in mine[1:-1] for start in trace.base]
            (words,) = mine[-1].text
            if name == "interleaved" and m % ranks:
                assert not starts
                assert "m must be a multiple of 4" in words
                continue
            phases = 3 if name == "zb-h1" else 2
            assert len(starts) == phases * m * ranks * chunks
            lost = pipeline.simulate(pipeline.build(name, ranks, m, chunks)).bubble
            assert f"idle {float(lost / (1 + lost)):.0%} of the time" in words


def test_the_list_and_the_slider_do_not_touch_the_same_things() -> None:
    figure = show.pipelines()
    changed = {key for frame in figure.frames for t in frame.data for key in t.to_plotly_json()}
    assert changed == {"type", "x", "y", "base", "text"}
    axes = {key for frame in figure.frames for key in frame.layout.to_plotly_json()}
    assert axes == {"xaxis"}
    moved = {key for button in figure.layout.updatemenus[0].buttons for key in button.args[1]}
    assert all(key.startswith("yaxis.") for key in moved)


def test_the_figure_starts_with_the_frame_that_the_slider_says() -> None:
    figure = show.pipelines()
    frame = figure.frames[figure.layout.sliders[0].active]
    assert [list(t.x) for t in frame.data] == [list(t.x) for t in figure.data]
    assert frame.layout.xaxis.range == figure.layout.xaxis.range


def test_curves_are_the_formulas_and_points_the_measurements() -> None:
    cases = [("1f1b", 4, 1), ("interleaved", 4, 2), ("zb-h1", 4, 1)]
    figure = show.bubble(cases, (1, 2, 4, 8), measured={cases[0]: {4: 0.45}})
    lines = {trace.name: dict(zip(trace.x, trace.y, strict=True)) for trace in figure.data}
    assert lines == {
        "1f1b, p = 4": {1: 75, 2: 60, 4: 42.86, 8: 27.27},
        "1f1b, p = 4, measured": {4: 45},
        "interleaved, p = 4, v = 2": {4: 27.27, 8: 15.79},
        "zb-h1, p = 4": {4: 20, 8: 11.11},
    }
    for empty in (lambda: show.bubble([]), lambda: show.pipelines(())):
        with pytest.raises(ValueError, match="needs cases and numbers"):
            empty()


def test_figures_speak_the_learners_language_and_stay_small() -> None:
    coursekit.language("zh")
    made = pipeline.build("interleaved", 4, 8, 2)
    figures = [show.schedule(made, pipeline.build("zb-h1", 4, 8)), show.pipelines(),
               show.bubble(CASES)]  # fmt: skip
    for figure, most in zip(figures, (12_000, 60_000, 8_000), strict=True):
        text = figure.to_json()
        assert not re.search("forward|backward|idle|micro-batch|measured", text)
        assert len(text) < most
        assert "bdata" not in text


def test_the_explorer_follows_and_says_what_cannot_be(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr("IPython.display.display", lambda what: drawn.append(what))
    box = show.pipeline_explorer()
    controls = {control.description: control for control in box.children[1].children}
    assert "at most 4 in flight" in drawn[-1].layout.annotations[0].text
    controls["schedule"].value = "gpipe"
    assert "at most 8 in flight" in drawn[-1].layout.annotations[0].text
    controls["micro-batches m"].value = 16
    assert list(drawn[-1].data[0].x) == [57] * 4
    controls["message"].value = 1.0
    assert list(drawn[-1].data[0].x) == [57 + 6] * 4
    controls["chunks v"].value = 2
    assert "only interleaved has several chunks" in capsys.readouterr().out
