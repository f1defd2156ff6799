"""Figures of plans show the ranks, memory, bytes and seconds that the planner says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import coursekit
from coursekit import plan, show
from coursekit.plan import Plan

EIGHT_BY_EIGHT = Plan(dp=2, tp=8, pp=4)
LLAMA = plan.job("llama2-7b", "a100")
SIX = [Plan(64), Plan(64, zero=3, micro_batch=16), Plan(8, 8), EIGHT_BY_EIGHT, Plan(8, 2, 4),
       Plan(8, 1, 8)]  # fmt: skip


@pytest.fixture(autouse=True)
def english() -> Iterator[None]:
    yield
    coursekit.language("en")


@pytest.fixture(scope="module")
def search() -> plan.Search:
    return plan.best("course-100b", 64, "a100")


def evaluated(*plans: Plan) -> list[plan.Outcome]:
    return [plan.evaluate(LLAMA, each) for each in plans]


def points(figure: Any) -> Any:
    (found,) = (trace for trace in figure.data if "markers" in trace.mode and trace.x[0] is not None
                and trace.hovertext is not None)  # fmt: skip
    return found


def segments(trace: Any) -> list[list[tuple[int, int, int]]]:
    """The groups that a trace joins by lines."""
    groups: list[list[tuple[int, int, int]]] = [[]]
    for place in zip(trace.x, trace.y, trace.z, strict=True):
        if place[0] is None:
            groups.append([])
        else:
            groups[-1].append(place)
    return groups[:-1]


def test_ranks_stand_where_a_mesh_of_torch_would_put_them() -> None:
    dots = points(show.rank_cube(EIGHT_BY_EIGHT))
    places = list(zip(dots.z, dots.y, dots.x, strict=True))
    # init_device_mesh with (pp, dp, tp) numbers its places in this order.
    assert places == [(p, d, t) for p in range(4) for d in range(2) for t in range(8)]
    assert dots.hovertext[13] == "rank 13<br>node 1, GPU 5"
    assert list(dots.text) == [str(rank) for rank in range(64)]


@pytest.mark.parametrize(
    ("kind", "count", "title"),
    [
        ("TP", 8, "TP: 8 groups of 8, each inside one node"),
        ("PP", 16, "PP: 16 groups of 4, each over 4 nodes"),
        ("DP", 32, "DP: 32 groups of 2, each over 2 nodes"),
        ("node", 8, "8 nodes of 8 GPUs"),
    ],
)
def test_a_button_joins_and_colours_one_kind_of_group(kind: str, count: int, title: str) -> None:
    figure = show.rank_cube(EIGHT_BY_EIGHT)
    (button,) = (b for b in figure.layout.updatemenus[0].buttons if b.label == kind)
    change, words = button.args
    assert words == {"title.text": title}
    on = [trace for trace, seen in zip(figure.data, change["visible"], strict=True) if seen]
    lines = segments(on[0])
    assert len(lines) == count
    colours = change["marker.color"][-1]
    dots = points(figure)
    at = dict(zip(zip(dots.x, dots.y, dots.z, strict=True), colours, strict=True))
    assert all(len({at[place] for place in group}) == 1 for group in lines)
    # The chosen rank's three groups stay.
    assert [trace.name for trace in on[1:4]] == [
        "rank 0, TP: 0\N{EN DASH}7", "rank 0, PP: 0, 16, 32, 48", "rank 0, DP: 0, 8",
    ]  # fmt: skip


def test_groups_of_any_rank_and_of_context_parallelism() -> None:
    figure = show.rank_cube(Plan(dp=2, tp=2, pp=2, cp=2), node=4, rank=13)
    names = {t.name.split(": ")[0][-2:]: t.name.split(": ")[1] for t in figure.data if t.name}
    assert names == {
        "TP": "12\N{EN DASH}13", "CP": "13, 15", "PP": "5, 13", "DP": "9, 13",
    }  # fmt: skip
    assert figure.layout.scene.yaxis.title.text.startswith("CP × DP")
    assert show.rank_cube({"tp": 8, "pp": 8, "dp": 8}, rank=100).data[-1].mode == "markers"


@pytest.mark.parametrize(
    ("degrees", "rank", "told"),
    [
        ({"tp": 8, "pp": 16, "dp": 128}, 0, "at most 1024 ranks, got rank 0 of 16384"),
        ({"tp": 8}, 8, "got rank 8 of 8"),
        ({"tp": 8, "ep": 8}, 0, "degrees must be of tp, cp, dp, pp, got ep"),
    ],
)
def test_what_cannot_be_a_cube_is_refused(degrees: dict[str, int], rank: int, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        show.rank_cube(degrees, rank=rank)


def test_every_plan_is_a_point_and_nothing_beats_the_front(search: plan.Search) -> None:
    figure = show.pareto(search)
    dots, front, star = figure.data
    best = search.best
    near = [o for o in search.outcomes if o.seconds.total <= 2 * best.seconds.total]
    assert len(dots.x) == len(near) > 300
    assert list(dots.x[:3]) == [pytest.approx(o.memory.gb, rel=1e-3) for o in near[:3]]
    assert list(front.x) == sorted(front.x)
    assert list(front.y) == sorted(front.y, reverse=True)
    for gb, step in zip(dots.x, dots.y, strict=True):
        assert any(x <= gb and y <= step for x, y in zip(front.x, front.y, strict=True))
    assert star.name == f"best: {best.plan}"
    assert (star.x[0], star.y[0]) == (
        pytest.approx(best.memory.gb, rel=1e-3), pytest.approx(best.seconds.total, rel=1e-3),
    )  # fmt: skip
    words = {note.text for note in figure.layout.annotations}
    left = len(search.outcomes) - len(near)
    broken = sum(bool(plan.broken_rule(search.job, p)) for p in search.rejected)
    assert (
        f"{len(near)} plans; {left} slower ones are left out, "
        f"{len(search.rejected) - broken} do not fit, {broken} break a rule"
    ) in words
    assert "room 76 GB" in words


def test_buttons_colour_by_a_degree(search: plan.Search) -> None:
    figure = show.pareto(search)
    dots = figure.data[0]
    for button, degree in zip(
        figure.layout.updatemenus[0].buttons, ("tp", "pp", "dp", "zero"), strict=True
    ):
        looks, traces = button.args
        assert list(traces) == [0]
        values = [int(v) for v in looks["marker.colorbar"][0]["ticktext"]]
        told = [values[int(number)] for number in looks["marker.color"][0]]
        near = search.outcomes[: len(told)]
        assert told == [getattr(o.plan, degree) for o in near]
        assert len(told) == len(dots.x)
    with pytest.raises(plan.PlanError, match="no plan fits"):
        show.pareto(replace(search, outcomes=[]))


def test_bars_are_the_bytes_of_each_group_and_wire() -> None:
    outcomes = evaluated(*SIX)
    figure = show.volumes(outcomes)
    names = {"TP (tensor)": "tp", "PP (pipeline)": "pp", "DP (data)": "dp"}
    for number, outcome in enumerate(outcomes):
        drawn = {
            (names[t.name], "network" if t.yaxis == "y2" else "link"): t.y[number]
            for t in figure.data
            if t.type == "bar" and t.y[number] is not None
        }
        assert drawn == {
            (row.group, row.wire): pytest.approx(row.bytes / 1e9, rel=1e-3) for row in outcome.sent
        }
    totals = [t for t in figure.data if t.type == "scatter"]
    assert [t.y[3] for t in totals] == [pytest.approx(962.1, rel=1e-3), pytest.approx(4.73, 1e-3)]
    linear, log = figure.layout.updatemenus[0].buttons
    assert (linear.args[0]["barmode"], log.args[0]["barmode"]) == ("stack", "group")
    assert log.args[0]["yaxis2.type"] == "log"


def test_bars_are_the_seconds_and_what_is_hidden_stands_apart() -> None:
    outcomes = {"chapter": plan.evaluate(LLAMA, EIGHT_BY_EIGHT), "lines": evaluated(SIX[-1])[0]}
    figure = show.seconds(outcomes)
    for number, outcome in enumerate(outcomes.values()):
        step = [t.x[number] for t in figure.data if t.offsetgroup == "step"]
        assert sum(step) == pytest.approx(outcome.seconds.total, rel=2e-3)
        hidden = [t.x[number] for t in figure.data if t.offsetgroup == "hidden"]
        assert hidden == [pytest.approx(outcome.seconds.hidden, rel=1e-3)]
    assert list(figure.data[-1].text) == [
        f"<b>{o.seconds.total:.3g} s</b>" for o in outcomes.values()
    ]


def test_nothing_to_draw_is_refused() -> None:
    for draw in (show.volumes, show.seconds):
        with pytest.raises(ValueError, match=r"needs an outcome, got none; try plan\.evaluate"):
            draw([])


def test_figures_speak_the_learners_language_and_stay_small(search: plan.Search) -> None:
    coursekit.language("zh")
    outcomes = evaluated(*SIX)
    figures = [show.rank_cube(EIGHT_BY_EIGHT), show.pareto(search), show.volumes(outcomes),
               show.seconds(outcomes)]  # fmt: skip
    for figure, most in zip(figures, (20_000, 100_000, 8_000, 8_000), strict=True):
        text = figure.to_json()
        assert not re.search(r"tensor\)|inside|bubble\b|memory of|seconds a|groups of", text)
        assert len(text) < most
        assert "bdata" not in text
    assert len(show.rank_cube({"tp": 8, "pp": 8, "dp": 8}).to_json()) < 100_000
