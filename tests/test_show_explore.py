"""The cost figure is the closed forms; the panel starts from it and follows its sliders."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import plotly.graph_objects as go
import pytest

import coursekit
from coursekit import cost, show
from coursekit.schedule import algorithms
from coursekit.show._cost_explorer import parted, rank_choices

ALPHA, BETA = 5e-6, 1 / 12e9
NAMES = algorithms("all_reduce")


@pytest.fixture(autouse=True)
def english() -> Iterator[None]:
    yield
    coursekit.language("en")


def lines(figure: Any) -> dict[str, Any]:
    return {trace.name: trace for trace in figure.data if trace.name in NAMES}


def crossings(figure: Any) -> Any:
    (trace,) = (trace for trace in figure.data if trace.marker.symbol == "circle-open")
    return trace


@pytest.mark.parametrize("size", [2, 6, 64, 1000])
def test_lines_are_the_closed_forms(size: int) -> None:
    drawn = lines(show.cost_curves(size, ALPHA, BETA))
    assert list(drawn) == NAMES
    for name, trace in drawn.items():
        assert trace.x[0] == 1
        assert trace.x[-1] == 1 << 34
        for nbytes, time in list(zip(trace.x, trace.y, strict=True))[::7]:
            form = cost.closed_form("all_reduce", name, size, nbytes)
            assert time == pytest.approx(1e6 * form.time(ALPHA, BETA), rel=1e-3)


def test_the_fastest_at_the_chosen_size_is_named() -> None:
    for nbytes in (1, 1 << 10, 1 << 20, 1 << 34):
        times = {
            name: cost.closed_form("all_reduce", name, 64, nbytes).time(ALPHA, BETA)
            for name in NAMES
        }
        best = min(times, key=lambda name: times[name])
        figure = show.cost_curves(64, ALPHA, BETA, nbytes=nbytes)
        said = figure.layout.annotations[0].text
        assert f"{best} is fastest" in said
        assert figure.layout.shapes[0].x0 == nbytes


@pytest.mark.parametrize("size", [7, 64, 1000])
def test_rings_stand_where_the_fastest_changes(size: int) -> None:
    figure = show.cost_curves(size, ALPHA, BETA)
    trace = crossings(figure)
    assert len(trace.x) >= 1
    assert list(trace.x) == sorted(trace.x)
    drawn = lines(figure)
    assert all(f"to {label}" in figure.layout.title.text for label in trace.text)
    for at, words in zip(trace.x, trace.hovertext, strict=True):
        after = words.split(" on ")[1].split(" is ")[0]
        others = [cost.crossover(after, name, size, ALPHA, BETA) for name in drawn]
        assert any(other == pytest.approx(at, rel=1e-6) for other in others if other)


def test_between_rings_one_algorithm_stays_the_fastest() -> None:
    figure = show.cost_curves(1000, 2e-6, 1 / 50e9)
    ends = [1.0, *crossings(figure).x, float(1 << 34)]
    for low, high in itertools.pairwise(ends):
        inside = {
            min(
                NAMES,
                key=lambda n: cost.closed_form("all_reduce", n, 1000, at).time(2e-6, 1 / 50e9),
            )
            for at in (int(low * (high / low) ** share) for share in (0.1, 0.5, 0.9))
        }
        assert len(inside) == 1
    assert len(ends) == 4


def test_only_the_algorithms_asked_for() -> None:
    figure = show.cost_curves(8, ALPHA, BETA, algorithms=["ring", "tree"])
    assert list(lines(figure)) == ["ring", "tree"]
    expected = cost.crossover("ring", "tree", 8, ALPHA, BETA)
    assert list(crossings(figure).x) == pytest.approx([expected], rel=1e-6)
    alone = show.cost_curves(8, ALPHA, BETA, algorithms=["ring"])
    assert "ring is fastest at every size" in alone.layout.title.text
    assert len(crossings(alone).x or ()) == 0


def test_segments_reach_the_pipelines() -> None:
    drawn = lines(show.cost_curves(8, ALPHA, BETA, segments=64))
    form = cost.closed_form("all_reduce", "chain", 8, 1 << 30, segments=64)
    at = list(drawn["chain"].x).index(1 << 30)
    assert drawn["chain"].y[at] == pytest.approx(1e6 * form.time(ALPHA, BETA), rel=1e-4)


def test_a_stored_figure_is_small_and_has_no_packed_numbers() -> None:
    text = show.cost_curves(1000).to_json()
    assert len(text) < 60_000
    assert "bdata" not in text


def test_the_figure_speaks_the_learners_language() -> None:
    coursekit.language("zh")
    figure = show.cost_curves(64, ALPHA, BETA)
    assert "\u9884\u6d4b\u65f6\u95f4" in figure.layout.title.text
    assert "\u66f4\u5927\u65f6\u662f halving_doubling" in figure.layout.title.text
    assert "fastest" not in figure.to_json()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"size": 1}, "from 2 up, got 1; try 8"),
        ({"size": 2.5}, "from 2 up, got 2.5"),
        ({"alpha": -1.0}, "alpha must be seconds"),
        ({"alpha": 0.0}, "above 0 on logarithmic axes, got 0.0"),
        ({"beta": float("nan")}, "beta must be seconds a byte"),
        ({"nbytes": 0}, "from 1 to 17179869184 .16 GiB., got 0"),
        ({"nbytes": 1 << 35}, "from 1 to"),
        ({"algorithms": ["bruck"]}, "some of ring, tree, .* got .'bruck'."),
        ({"algorithms": []}, "leave it out for all of them"),
        ({"algorithms": "ring"}, "must be a list"),
        ({"segments": 0}, "segments must be"),
    ],
)
def test_what_cannot_be_is_told(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        show.cost_curves(**given)
    with pytest.raises(ValueError, match=said):
        show.explore(**given)


def test_the_panel_has_ranks_up_to_its_slider() -> None:
    with pytest.raises(ValueError, match="from 2 to 1024 here, got 2048; try cost_curves"):
        show.explore(2048)
    choices = rank_choices()
    assert (choices[0], choices[-1]) == (2, 1024)
    assert choices == sorted(set(choices))
    assert {3, 5, 6, 7, 12, 24, 96, 768} | {1 << p for p in range(1, 11)} <= set(choices)


def test_the_formula_comes_apart() -> None:
    assert parted(cost.formula("all_reduce", "ring")) == (
        "2(n-1) α + 2 (n-1)/n N β + (n-1)/n N γ",
        "Patarasuk & Yuan 2009",
    )
    assert parted(cost.formula("all_reduce", "tree")) == (
        "2L (α + N β) + L N γ",
        "Thakur et al. 2005",
    )
    assert parted(cost.formula("all_reduce", "chain")) == ("", "")


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[go.Figure]:
    figures: list[go.Figure] = []
    monkeypatch.setattr("IPython.display.display", figures.append)
    return figures


def controls(box: Any) -> dict[str, Any]:
    return {each.description: each for row in box.children[1:3] for each in row.children}


def test_the_panel_starts_from_the_stored_figure_and_follows(shown: list[go.Figure]) -> None:
    box = show.explore(64, ALPHA, BETA)
    assert shown[-1] == show.cost_curves(64, ALPHA, BETA)
    moved = controls(box)
    moved["ranks K"].value = 96
    moved["message S"].value = 1 << 30
    moved["latency α, µs"].value = 20.0
    moved["1/β, GB/s"].value = 100.0
    moved["segments"].value = 32
    moved["tree"].value = False
    assert shown[-1] == show.cost_curves(
        96, 20.0 * 1e-6, 1e-9 / 100.0, nbytes=1 << 30, segments=32,
        algorithms=[name for name in NAMES if name != "tree"],
    )  # fmt: skip


def test_the_panel_writes_the_formula_and_its_numbers(shown: list[go.Figure]) -> None:
    box = show.explore(6, ALPHA, BETA, nbytes=1 << 20)
    moved, said = controls(box), box.children[-1]
    moved["formula of"].value = "ring"
    assert "T = 2(n-1) α + 2 (n-1)/n N β + (n-1)/n N γ" in said.value
    assert "Patarasuk &amp; Yuan 2009" in said.value
    form = cost.closed_form("all_reduce", "ring", 6, 1 << 20)
    assert f"T = {form.alphas} × 5 µs + {form.betas:,} B ÷ 12 GB/s" in said.value
    assert "powers of two" not in said.value
    moved["formula of"].value = "halving_doubling"
    assert "powers of two" in said.value
    moved["formula of"].value = "chain"
    assert "chain" in said.value
    assert "γ" not in said.value
    moved["formula of"].value = ""
    (best,) = [name for name in NAMES if name in shown[-1].layout.annotations[0].text]
    assert best in said.value


def test_the_panel_needs_an_algorithm(shown: list[go.Figure]) -> None:
    box = show.explore(8, ALPHA, BETA, algorithms=["ring"])
    controls(box)["ring"].value = False
    assert box.children[-1].value == "Choose at least one algorithm."
    controls(box)["tree"].value = True
    assert list(lines(shown[-1])) == ["tree"]
