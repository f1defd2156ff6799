"""The matrix shows every byte from rank to rank, side by side in one scale."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import coursekit
from coursekit import measure, show
from coursekit.schedule import build

KIB = 1024


@pytest.fixture(autouse=True)
def english() -> Iterator[None]:
    yield
    coursekit.language("en")


def heats(figure: Any) -> list[Any]:
    return [trace for trace in figure.data if trace.type == "heatmap"]


def totals(figure: Any) -> list[list[str]]:
    return [list(trace.text) for trace in figure.data if trace.type == "scatter"]


def bytes_of(trace: Any) -> list[list[int]]:
    return [[n or 0 for n in row] for row in trace.z]


def headings(figure: Any) -> list[str]:
    return [note.text for note in figure.layout.annotations]


def test_cells_have_their_bytes_and_zeros_stay_empty() -> None:
    (heat,) = heats(figure := show.matrix([[0, 3 * KIB], [512, 0]]))
    assert [list(row) for row in heat.z] == [[None, 3072], [512, None]]
    assert [list(row) for row in heat.text] == [["", "3<br>KiB"], ["512<br>B", ""]]
    assert totals(figure) == [["3 KiB", "512 B"]]
    assert headings(figure) == ["3.5 KiB in all"]
    assert "rank %{y} → rank %{x}" in heat.hovertemplate
    assert "%{z:,} B" in heat.hovertemplate
    # Rank 0 is the first row, at the top.
    assert figure.layout.yaxis.range[0] > figure.layout.yaxis.range[1]


def test_arrays_lists_and_traffic_are_the_same() -> None:
    table = np.array([[0, 5, 0], [0, 0, 6], [7, 0, 0]], dtype=np.int64)
    traffic = measure.Traffic(3, wire=table, why="")
    for what in (table, table.tolist(), table.astype(float), traffic, SimpleNamespace(wire=table)):
        (heat,) = heats(show.matrix(what))
        assert bytes_of(heat) == table.tolist()


@pytest.mark.parametrize("size", [2, 4, 5, 8])
def test_schedules_show_what_they_will_send(size: int) -> None:
    names = ("ring", "tree", "recursive_doubling")
    schedules = [build("all_reduce", name, size) for name in names]
    figure = show.matrix(*schedules, elements=1000, itemsize=8)
    for heat, schedule in zip(heats(figure), schedules, strict=True):
        assert bytes_of(heat) == schedule.matrix(1000, 8).tolist()
    assert [words.split("<br>")[0] for words in headings(figure)] == [f"<b>{n}</b>" for n in names]


def test_ring_tree_and_doubling_differ_and_share_one_scale() -> None:
    names = ("ring", "tree", "recursive_doubling")
    figure = show.matrix(*(build("all_reduce", name, 8) for name in names), elements=1 << 20)
    drawn = [bytes_of(heat) for heat in heats(figure)]
    assert drawn[0] != drawn[1] != drawn[2] != drawn[0]
    assert [sum(n > 0 for row in table for n in row) for table in drawn] == [8, 14, 24]
    assert {heat.coloraxis for heat in heats(figure)} == {"coloraxis"}
    assert figure.layout.coloraxis.cmax == max(n for t in drawn for row in t for n in row)
    assert figure.layout.coloraxis.cmin == 0
    ring, tree, _ = totals(figure)
    assert set(ring) == {"7 MiB"}
    assert tree[:2] == ["12 MiB", "4 MiB"]


def test_names_stand_above() -> None:
    figure = show.matrix([[0, 1], [1, 0]], [[0, 2], [2, 0]], names=["wire", "predicted"])
    assert headings(figure) == ["<b>wire</b><br>2 B in all", "<b>predicted</b><br>4 B in all"]


def test_large_matrices_lose_their_numbers_not_their_bytes() -> None:
    for size, has_totals in ((16, True), (17, False), (64, False)):
        schedule = build("all_reduce", "double_tree", size)
        figure = show.matrix(schedule, elements=1 << 20)
        (heat,) = heats(figure)
        assert heat.text is None
        assert bool(totals(figure)) is has_totals
        assert bytes_of(heat) == schedule.matrix(1 << 20, 4).tolist()
    three = [build("all_reduce", "ring", 9)] * 3
    assert totals(show.matrix(*three, elements=1 << 20)) == []


def test_more_than_three_begin_another_row() -> None:
    figure = show.matrix(*[[[0, 1], [1, 0]]] * 5)
    assert len(heats(figure)) == 5
    tops = {round(axis.domain[1], 3) for axis in figure.select_yaxes()}
    assert len(tops) == 2
    assert len({axis.scaleanchor for axis in figure.select_yaxes()}) == 5


def test_the_scale_has_round_ticks() -> None:
    bar = show.matrix([[0, 7 << 20], [1, 0]]).layout.coloraxis.colorbar
    assert list(bar.ticktext) == ["0 B", "2 MiB", "4 MiB", "6 MiB"]
    assert list(bar.tickvals) == [0, 2 << 20, 4 << 20, 6 << 20]
    nothing = show.matrix([[0, 0], [0, 0]])
    assert nothing.layout.coloraxis.cmax == 1
    assert headings(nothing) == ["0 B in all"]


def test_the_figure_speaks_the_learners_language() -> None:
    coursekit.language("zh")
    figure = show.matrix([[0, 1], [1, 0]])
    assert figure.layout.title.text.startswith("\u6bcf\u4e2a rank")
    assert figure.layout.xaxis.title.text == "\u63a5\u6536\u65b9 rank"
    assert figure.layout.xaxis.ticktext[-1] == "\u5171\u53d1\u9001"


def test_a_stored_figure_is_small_and_has_no_packed_numbers() -> None:
    figures = [
        show.matrix(build("all_to_all", "pairwise", 64), elements=1 << 20),
        show.matrix(*(build("all_reduce", n, 32) for n in ("ring", "tree", "recursive_doubling")),
                    elements=1 << 20),
    ]  # fmt: skip
    for figure in figures:
        text = figure.to_json()
        assert len(text) < 60_000
        assert "bdata" not in text


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ([[1, 2]], "K x K numbers of bytes, .* got 1 x 2"),
        ([1, 2], "got 2; try matrix"),
        ([], "got list"),
        ("ring", "got str"),
        ([[1, 2], [3]], "got list"),
        (None, "got NoneType"),
        ([[0, -1], [0, 0]], "from 0 up"),
        ([[0, float("nan")], [0, 0]], "from 0 up"),
        (np.zeros((65, 65)), "up to 64 ranks, got 65"),
        (build("all_reduce", "ring", 2), "got no elements; try matrix"),
        (measure.Traffic(2, why="bytes went through shared memory"), "went through shared memory"),
    ],
)
def test_what_cannot_be_drawn_is_told(what: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        show.matrix(what)


def test_something_to_draw_and_as_many_names() -> None:
    with pytest.raises(ValueError, match="got nothing; try matrix"):
        show.matrix()
    with pytest.raises(ValueError, match="one a matrix, got 1 for 2"):
        show.matrix([[0]], [[0]], names=["a"])
