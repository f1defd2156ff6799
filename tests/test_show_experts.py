"""Token flows and loads show the counts they were given."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

import coursekit
from coursekit import show
from coursekit.show._template import BAD

SENT = [[3, 1, 0, 2], [0, 2, 2, 2]]


@pytest.fixture(autouse=True)
def english() -> Iterator[None]:
    yield
    coursekit.language("en")


def flows(figure):
    link = figure.data[0].link
    return dict(zip(zip(link.source, link.target, strict=True), link.value, strict=True))


def test_flows_are_the_counts() -> None:
    figure = show.token_flow(SENT)
    wanted = {(r, 2 + e): n for r, row in enumerate(SENT) for e, n in enumerate(row) if n}
    assert flows(figure) == wanted
    assert figure.layout.title.text == "Where 12 tokens go"


def test_dropped_tokens_flow_by_themselves() -> None:
    figure = show.token_flow(SENT, dropped=[4, 0])
    assert flows(figure)[(0, 6)] == 4
    assert (1, 6) not in flows(figure)
    assert figure.data[0].node.color[6] == BAD
    assert figure.layout.title.text == "Where 12 tokens go; 4 find no room (25%)"
    words = [note.text for note in figure.layout.annotations]
    assert "dropped (4)" in words
    # What rank 0 routes is what it sends and what it drops.
    assert words.count("<b>rank 0 (10)</b>") == 1


def test_experts_stand_beside_the_ranks_that_hold_them() -> None:
    figure = show.token_flow(SENT)
    words = [note.text for note in figure.layout.annotations]
    assert words[3:5] == ["<b>rank 0 (6)</b>", "<b>rank 1 (6)</b>"]
    assert words[5:9] == ["expert 0 (3)", "expert 1 (3)", "expert 2 (2)", "expert 3 (4)"]
    assert words[9:] == ["<b>rank 0 (6)</b>", "<b>rank 1 (6)</b>"]
    colours = figure.data[0].node.color
    assert list(colours[2:]) == [colours[0]] * 2 + [colours[1]] * 2
    assert [shape.fillcolor for shape in figure.layout.shapes] == list(colours[:2])


def test_boxes_lie_in_order_and_apart() -> None:
    figure = show.token_flow([[0, 9, 1, 1]])
    y = figure.data[0].node.y[1:]
    assert sorted(y) == list(y)
    assert len(set(y)) == 4


def test_many_experts_find_room() -> None:
    figure = show.token_flow([[1] * 64, [2] * 64])
    y = figure.data[0].node.y[2:]
    assert sorted(y) == list(y)
    assert 0 < y[0] < y[-1] < 1


def test_load_over_ranks() -> None:
    figure = show.load(SENT, holders=2)
    cells = figure.data[0]
    assert [list(row) for row in cells.z] == [[3, 0], [1, 2], [0, 2], [2, 2]]
    assert list(cells.y)[1:3] == ["expert 1, rank 0", "expert 2, rank 1"]
    # 4 tokens where the mean is 3; both ranks have 6.
    told = "busiest expert 1.33 × the mean; busiest rank 1.00 × the mean"
    assert told in figure.layout.title.text


def test_load_over_steps() -> None:
    figure = show.load([[4, 0], [3, 1], [2, 2]], over="steps")
    assert [list(row) for row in figure.data[0].z] == [[4, 3, 2], [0, 1, 2]]
    assert "2.00 in the first step, 1.00 in the last" in figure.layout.title.text
    assert figure.layout.xaxis.title.text == "step"


def test_no_tokens_are_no_imbalance() -> None:
    assert "1.00" in show.load([[0, 0]]).layout.title.text


def test_figures_speak_the_learners_language() -> None:
    coursekit.language("zh")
    for figure in (show.token_flow(SENT, dropped=[1, 1]), show.load(SENT, over="steps")):
        text = figure.to_json()
        assert "expert " not in text
        assert "token \\u6570" in text


def test_figures_are_small() -> None:
    many = [[n % 7 for n in range(64)] for _ in range(8)]
    assert len(show.token_flow(many).to_json()) < 60_000
    assert len(show.load([[1] * 8] * 40, over="steps").to_json()) < 6_000


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: show.token_flow([]), "one row a rank, each with a number an expert, got rows of"),
        (lambda: show.token_flow([[1, 2], [1]]), r"got rows of \[1, 2\]; take Routed.load"),
        (lambda: show.token_flow([[1, -2]]), "numbers from 0 up"),
        (lambda: show.token_flow([[1, 1, 1]] * 2), "divide the 3 experts, got 2; take 4 experts"),
        (lambda: show.token_flow(SENT, dropped=[1]), r"a rank, got \[1\] for 2"),
        (lambda: show.token_flow([[0, 0]]), "a flow needs tokens, got none"),
        (lambda: show.load(SENT, over="days"), "over must be ranks or steps, got 'days'"),
        (lambda: show.load(SENT, holders=3), "divide the 4 experts, got 3; take 6"),
        (lambda: show.load([[1] * 65]), "at most 64 experts, got 65"),
    ],
)
def test_what_cannot_be_drawn_is_refused(call, told) -> None:
    with pytest.raises(ValueError, match=told):
        call()


def test_no_torch_is_imported() -> None:
    code = "import sys; from coursekit import show; print('torch' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False"
