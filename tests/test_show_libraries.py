"""The table of NCCL's algorithms, and measured libraries in one figure with where lines cross."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import coursekit
from coursekit import show
from coursekit.cost import nccl
from coursekit.cost.nccl import NcclError
from coursekit.measure import MeasureError, Row, Sweep
from coursekit.show.libraries import COLUMNS, ROWS, STATES


@pytest.fixture(autouse=True)
def english() -> Iterator[None]:
    yield
    coursekit.language("en")


def states(figure) -> dict[tuple[str, str], str]:
    heat = figure.data[0]
    return {
        (row, column): STATES[z]
        for row, line in zip(ROWS, heat.z, strict=True)
        for column, z in zip(heat.x, line, strict=True)
    }


def stuck(figure) -> list[str]:
    names = zip(ROWS, figure.layout.yaxis.ticktext, strict=True)
    return [name for name, words in names if "nothing left" in words]


def test_a_cell_is_empty_exactly_where_nccl_has_no_kernel() -> None:
    told = states(show.algorithms_table())
    for collective in ROWS:
        have = {name for name in COLUMNS if told[collective, name] != "none"}
        assert have == set(nccl.served[collective])
    assert told["all_reduce", "NVLS"] == "on"
    assert told["all_reduce", "CollNetChain"] == "off"


def test_what_a_machine_leaves_off_is_a_circle_with_its_reason() -> None:
    figure = show.algorithms_table(nvls=False)
    assert states(figure)["all_gather", "NVLS"] == "off"
    whys = dict(zip(COLUMNS, figure.data[0].customdata[0], strict=True))
    assert "Hopper" in whys["NVLS"]
    assert states(show.algorithms_table(nodes=2))["all_reduce", "NVLSTree"] == "on"


@pytest.mark.parametrize(
    ("algo", "version"),
    [("Tree", "2.21"), ("Tree", "2.27"), ("ring,tree;allreduce:tree", "2.30"), ("NVLS", "2.31")],
)
def test_red_rows_are_the_collectives_left_without_an_algorithm(algo: str, version: str) -> None:
    figure = show.algorithms_table(algo, version)
    assert set(stuck(figure)) == set(nccl.left_without(algo, version=version))
    assert states(figure)["all_reduce", "Ring"] == "excluded"


def test_words_are_in_the_learners_language() -> None:
    coursekit.language("zh")
    figure = show.algorithms_table("Tree", "2.27")
    assert "NCCL_ALGO=Tree" in figure.layout.title.text
    assert any("\u6392\u9664" in note.text for note in figure.layout.annotations)


def test_a_text_that_nccl_refuses_is_its_error() -> None:
    with pytest.raises(NcclError, match="must be one of Tree, Ring"):
        show.algorithms_table("Rings", "2.27")


def row(name: str, size: int, time: float) -> Row:
    return Row(size, size // 4, "float32", "sum", name, time, time * 0.9, time * 1.2, 1.0, 1.5, 0)


TIMES = {"library": (500, 900), "ring": (300, 700), "mpi:default": (9, 90)}
TIMES |= {"mpi:recursive_doubling": (10, 160), "mpi:ring": (20, 80)}
SWEEP = Sweep(
    "all_reduce",
    4,
    "gloo",
    tuple(row(n, s, t) for n, ts in TIMES.items() for s, t in zip((1024, 16384), ts, strict=True)),
)


def test_times_between_sizes_lie_on_straight_lines_of_logarithmic_axes() -> None:
    assert SWEEP.time_at("mpi:ring", 4096) == pytest.approx(40)
    assert SWEEP.time_at("mpi:ring", 1024) == pytest.approx(20)
    with pytest.raises(MeasureError, match="one that was measured"):
        SWEEP.time_at("tree", 4096)


def test_lines_cross_where_they_are_equal() -> None:
    at = SWEEP.crossing("mpi:recursive_doubling", "mpi:ring")
    assert at == pytest.approx(4096)
    assert SWEEP.crossing("mpi:ring", "mpi:recursive_doubling") is None
    assert SWEEP.crossing("library", "mpi:ring") is None


def test_one_disturbed_size_does_not_move_the_crossing() -> None:
    times = {"one": (1, 2, 4, 8, 16, 32), "other": (2, 3, 3, 3, 30, 5)}
    rows = [row(n, 4**i, t) for n, ts in times.items() for i, t in enumerate(ts, 4)]
    at = Sweep("all_reduce", 4, "gloo", tuple(rows)).crossing("one", "other")
    assert at is not None
    assert 4**5 < at < 4**6


def test_a_colour_is_an_algorithm_and_a_shape_a_library() -> None:
    figure = show.libraries(SWEEP)
    drawn = {trace.name: trace for trace in figure.data}
    assert list(drawn) == [
        "gloo",
        "ring · course, over gloo",
        "Open MPI",
        "recursive_doubling · Open MPI",
        "ring · Open MPI",
    ]
    one, other = drawn["ring · course, over gloo"], drawn["ring · Open MPI"]
    assert one.line.color == other.line.color
    assert one.marker.symbol != other.marker.symbol
    assert list(other.y) == [20, 80]


def test_the_ring_stands_at_the_measured_crossing_and_the_line_at_the_predicted_one() -> None:
    pair = ("mpi:recursive_doubling", "mpi:ring")
    figure = show.libraries(SWEEP, cross=pair, predicted=8192)
    assert figure.data[-1].x == (4096,)
    assert figure.data[-1].text == ("4 KiB",)
    assert figure.layout.shapes[0].x0 == 8192
    assert len(show.libraries(SWEEP, cross=pair[::-1]).data) == len(TIMES)
    assert not show.libraries(SWEEP, predicted=1 << 30).layout.shapes


def test_some_of_the_lines_have_an_axis_of_their_own() -> None:
    names = ["mpi:ring", "mpi:default"]
    figure = show.libraries(SWEEP, names)
    assert [trace.name for trace in figure.data] == ["ring \N{MIDDLE DOT} Open MPI", "Open MPI"]
    assert figure.layout.yaxis.range[1] < show.libraries(SWEEP).layout.yaxis.range[1]
    with pytest.raises(ValueError, match="names must be of library, ring, "):
        show.libraries(SWEEP, ["tree"])


def test_an_empty_sweep_is_an_error() -> None:
    with pytest.raises(ValueError, match="must have rows"):
        show.libraries(Sweep("all_reduce", 4, "gloo", ()))
