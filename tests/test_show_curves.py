"""The curves show what was measured, and what the fit predicts, in all three measures."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest

import coursekit
from coursekit import cost, measure, show
from coursekit.schedule import build
from coursekit.show._axes import size_axis, size_label, time_label

SIZES = [8 * 4**power for power in range(11)]
NAMES = ("library", "ring", "recursive_doubling")
ALPHA_US, BETA_NS = 40.0, 0.5
MESSAGE = measure.Fit(ALPHA_US, BETA_NS, (39, 41), (0.4, 0.6), 0.02)


@pytest.fixture(autouse=True)
def english() -> Iterator[None]:
    yield
    coursekit.language("en")


def row(size: int, algorithm: str, wrong: int = 0, collective: str = "all_reduce") -> measure.Row:
    time = 100 * (1 + NAMES.index(algorithm)) + size / 2000
    band = cost.algbw(size, time * 1e-6)
    bus = cost.busbw(collective, 4, size, time * 1e-6)
    return measure.Row(
        size, size // 4, "float32", "sum", algorithm, time, 0.8 * time, 1.5 * time, band, bus, wrong
    )


def swept(backend: str = "gloo", names: tuple[str, ...] = NAMES, ranks: int = 4) -> measure.Sweep:
    rows = tuple(row(size, name) for size in SIZES for name in names)
    return measure.Sweep("all_reduce", ranks, backend, rows)


def points(figure: Any) -> dict[str, Any]:
    """The measured traces: those with bars."""
    return {trace.name: trace for trace in figure.data if trace.error_y.array is not None}


def lines(figure: Any) -> dict[str, Any]:
    return {trace.name: trace for trace in figure.data if trace.mode == "lines"}


def halves(figure: Any) -> dict[str, Any]:
    return {trace.name: trace for trace in figure.data if trace.mode == "lines+text"}


def test_points_are_the_rows_with_their_spread() -> None:
    sweep = swept()
    drawn = points(show.curves(sweep))
    assert list(drawn) == list(NAMES)
    for name, trace in drawn.items():
        rows = sweep.of(name)
        assert list(trace.x) == [r.size for r in rows]
        assert list(trace.y) == pytest.approx([r.time_us for r in rows], rel=1e-4)
        assert list(trace.error_y.array) == pytest.approx(
            [r.high_us - r.time_us for r in rows], rel=1e-4
        )
        assert list(trace.error_y.arrayminus) == pytest.approx(
            [r.time_us - r.low_us for r in rows], rel=1e-4
        )
        told = [[c[0], *c[1:]] for c in trace.customdata]
        assert told[0][0] == "8 B"
        assert [c[1:] for c in told] == [
            pytest.approx([r.time_us, r.low_us, r.high_us, r.algbw, r.busbw, r.wrong], rel=1e-5)
            for r in rows
        ]


def test_buttons_show_bandwidths_and_turn_their_bars_round() -> None:
    sweep = swept()
    figure = show.curves(sweep, fit=MESSAGE)
    buttons = figure.layout.updatemenus[0].buttons
    assert [button.label for button in buttons] == ["time", "algbw", "busbw"]
    at = [trace.name for trace in figure.data].index("ring", len(NAMES))
    rows = sweep.of("ring")
    for button, field in zip(buttons[1:], ("algbw", "busbw"), strict=True):
        data, layout = button.args
        values = [getattr(r, field) for r in rows]
        assert data["y"][at] == pytest.approx(values, rel=1e-4)
        # The shortest time is the highest bandwidth.
        up = [v * (r.time_us / r.low_us - 1) for v, r in zip(values, rows, strict=True)]
        assert data["error_y.array"][at] == pytest.approx(up, rel=1e-3)
        assert layout["yaxis.type"] == "linear"
        assert layout["yaxis.range"][1] > max(values)
    assert buttons[0].args[1]["yaxis.type"] == "log"
    assert buttons[2].args[1]["yaxis.title.text"] == "busbw = 1.5 × algbw, GB/s"
    first = [list(trace.y) for trace in figure.data]
    assert [list(y) for y in buttons[0].args[0]["y"]] == first
    assert all(len(b.args[0]["y"]) == len(figure.data) for b in buttons)


def test_lines_are_the_price_of_the_schedule_with_the_alpha_and_beta_of_a_message() -> None:
    sweep = swept()
    drawn = lines(show.curves(sweep, fit=MESSAGE))
    assert list(drawn) == list(NAMES)
    for name, trace in drawn.items():
        predicted = dict(zip(trace.x, trace.y, strict=True))
        assert set(SIZES) <= set(predicted)
        for size in SIZES:
            time = MESSAGE.time_us(size)
            if name != "library":
                priced = cost.price(build("all_reduce", name, 4), size)
                time = priced.time(ALPHA_US * 1e-6, BETA_NS * 1e-9) * 1e6
            assert predicted[size] == pytest.approx(time, rel=1e-4)


def test_a_fit_that_knows_its_schedule_predicts_the_other_algorithms() -> None:
    sweep = swept()
    ring = measure.fit(sweep, "ring")
    figure = show.curves(sweep, fit=ring)
    drawn = lines(figure)
    assert list(drawn) == ["ring", "recursive_doubling"]
    for name, trace in drawn.items():
        expected = [ring.predict("all_reduce", name, x, 4) for x in trace.x]
        assert list(trace.y) == pytest.approx(expected, rel=1e-4)
    assert halves(figure)["ring"].x[0] == pytest.approx(ring.n_half, rel=1e-4)
    library = measure.fit(sweep, "library")
    assert list(lines(show.curves(sweep, fit=library))) == ["library"]
    both = {"library": library, "message": ring}
    assert list(lines(show.curves(sweep, fit=both))) == list(NAMES)


def test_a_mapping_has_a_fit_of_its_own_for_each_algorithm() -> None:
    sweep = swept()
    own = {name: measure.fit(sweep.of(name)) for name in ("library", "ring")}
    drawn = lines(show.curves(sweep, fit=own))
    assert list(drawn) == ["library", "ring"]
    for name, trace in drawn.items():
        assert list(trace.y) == pytest.approx([own[name].time_us(x) for x in trace.x], rel=1e-4)
    mixed = lines(show.curves(sweep, fit={"library": own["library"], "message": MESSAGE}))
    assert list(mixed) == list(NAMES)
    ring = cost.closed_form("all_reduce", "ring", 4, 8).time(ALPHA_US * 1e-6, BETA_NS * 1e-9)
    assert mixed["ring"].y[0] == pytest.approx(ring * 1e6, rel=1e-4)


def test_dotted_lines_stand_at_n_half_and_never_at_the_same_height_when_near() -> None:
    drawn = halves(show.curves(swept(), fit=MESSAGE))
    assert list(drawn["library"].x) == [MESSAGE.n_half] * 2
    alpha, beta = ALPHA_US * 1e-6, BETA_NS * 1e-9
    for name in ("ring", "recursive_doubling"):
        half = cost.n_half(alpha, beta, "all_reduce", name, 4)
        assert drawn[name].x[0] == pytest.approx(half, rel=1e-4)
        assert drawn[name].text[1] == f"n½ = {size_label(half)}"
        assert drawn[name].line.dash == "dot"
    assert len({trace.y[1] for trace in drawn.values()}) == 3


def test_n_half_outside_of_what_was_measured_is_not_drawn() -> None:
    far = measure.Fit(1e6, 0.001, (1, 1), (1, 1), 0.1)
    flat = measure.Fit(10.0, 0.0, (10, 10), (0, 0), 0.1)
    for fit in (far, flat):
        figure = show.curves(swept(), fit=fit)
        assert halves(figure) == {}
        assert len(lines(figure)) == 3


def test_several_sweeps_keep_colours_and_say_their_backend() -> None:
    figure = show.curves(swept("gloo"), swept("mpi"), fit=[MESSAGE, None])
    drawn = points(figure)
    assert [*drawn][:3] == [f"{name} · gloo" for name in NAMES]
    assert [*drawn][3:] == [f"{name} · mpi" for name in NAMES]
    assert drawn["ring · gloo"].error_y.color == drawn["ring · mpi"].error_y.color
    assert drawn["ring · gloo"].error_y.color != drawn["library · gloo"].error_y.color
    assert drawn["ring · gloo"].marker.symbol != drawn["ring · mpi"].marker.symbol
    assert [*lines(figure)] == [f"{name} · gloo" for name in NAMES]
    assert drawn["ring · mpi"].mode == "lines+markers"
    assert drawn["ring · gloo"].mode == "markers"
    assert figure.layout.title.text == "all_reduce, 4 ranks: measured (points), predicted (lines)"


def test_sweeps_of_different_ranks_or_of_the_same_kind_are_told_apart() -> None:
    figure = show.curves(swept(names=("ring",)), swept(names=("ring",), ranks=8))
    assert list(points(figure)) == ["ring · gloo · 4 ranks", "ring · gloo · 8 ranks"]
    same = show.curves(swept(names=("ring",)), swept(names=("ring",)))
    assert list(points(same)) == ["ring · gloo #1", "ring · gloo #2"]


def test_wrong_results_are_marked() -> None:
    rows = [row(size, "ring", wrong=size == 32) for size in SIZES[:3]]
    trace = points(show.curves(measure.Sweep("all_reduce", 4, "gloo", tuple(rows))))["ring"]
    assert list(trace.marker.symbol) == ["circle", "x", "circle"]


def test_the_axis_counts_in_units_of_1024() -> None:
    axis = show.curves(swept()).layout.xaxis
    ticks = dict(zip(axis.tickvals, axis.ticktext, strict=True))
    assert ticks[1024] == "1 KiB"
    assert ticks[1 << 20] == "1 MiB"
    assert axis.type == "log"
    assert 10 ** axis.range[0] < 8
    assert 10 ** axis.range[1] > SIZES[-1]
    assert size_axis(8, 64)["ticktext"] == ["8 B", "16 B", "32 B", "64 B"]


@pytest.mark.parametrize(
    ("nbytes", "said"),
    [(8, "8 B"), (1000, "1000 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (1048570, "1 MiB"),
     (100 << 20, "100 MiB"), (16 << 30, "16 GiB")],
)  # fmt: skip
def test_sizes_as_people_say_them(nbytes: int, said: str) -> None:
    assert size_label(nbytes) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(2.5e-7, "250 ns"), (5e-6, "5 µs"), (9.999999e-4, "1 ms"), (0.012, "12 ms"), (3.25, "3.25 s")],
)
def test_times_as_people_say_them(seconds: float, said: str) -> None:
    assert time_label(seconds) == said


def test_a_stored_figure_is_small_and_has_no_packed_numbers() -> None:
    own = [{name: measure.fit(sweep.of(name)) for name in NAMES} for sweep in (swept(), swept())]
    text = show.curves(swept("gloo"), swept("mpi"), fit=own).to_json()
    assert len(text) < 60_000
    assert "bdata" not in text
    assert "NaN" not in text


def test_the_figure_speaks_the_learners_language() -> None:
    coursekit.language("zh")
    figure = show.curves(swept(), fit=MESSAGE)
    labels = [button.label for button in figure.layout.updatemenus[0].buttons]
    assert labels == ["\u65f6\u95f4", "\u7b97\u6cd5\u5e26\u5bbd", "\u603b\u7ebf\u5e26\u5bbd"]
    text = json.dumps(json.loads(figure.to_json()), ensure_ascii=False)
    assert "predicted" not in text
    assert "measured" not in text
    assert "\u9884\u6d4b" in text


def test_one_rank_has_a_time_and_no_bus_bandwidth() -> None:
    figure = show.curves(swept(names=("ring",), ranks=1), fit=MESSAGE)
    busbw = figure.layout.updatemenus[0].buttons[2].args
    assert lines(figure) == {}
    assert set(busbw[0]["y"][0]) == {0}
    assert all(math.isfinite(end) for end in busbw[1]["yaxis.range"])


@pytest.mark.parametrize(
    ("sweeps", "fit", "said"),
    [
        ((), None, "at least one sweep, got none; try curves"),
        ((swept(), MESSAGE), None, "a fit goes in by name, .* try fit="),
        (([1],), None, "curves draw sweeps, got list; try curves"),
        ((measure.Sweep("all_reduce", 4, "gloo", ()),), None, "must have rows to be drawn, got"),
        ((swept(),), [MESSAGE, MESSAGE], "one for each sweep, got 2 for 1"),
        ((swept(),), {"tree": MESSAGE}, "one of library, ring, .* got 'tree'"),
        (
            (swept(),),
            {"message": measure.fit(swept(), "library")},
            "must know a schedule, .* like=",
        ),
        ((swept(),), 3.5, "must come from measure.fit, got float"),
        ((swept(),), {"ring": 3.5}, "must come from measure.fit, got float"),
    ],
)
def test_what_cannot_be_drawn_is_told(sweeps: Any, fit: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        show.curves(*sweeps, fit=fit)
