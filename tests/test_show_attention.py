"""The ring attention player shows who has what, and counts as the ranks multiply."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import coursekit
from coursekit import parallel, show


@pytest.fixture(autouse=True)
def english() -> Iterator[None]:
    yield
    coursekit.language("en")


def cut(length, size, zigzag=False):
    return [parallel.places(length, r, size, zigzag=zigzag).tolist() for r in range(size)]


def grid(figure, step):
    return [list(row) for row in figure.frames[step].data[0].z]


def done(figure, step):
    size = len(figure.frames[0].data[1].z)
    return sum(cell is not None and cell < 2 * size for row in grid(figure, step) for cell in row)


@pytest.mark.parametrize("zigzag", [False, True])
@pytest.mark.parametrize(("length", "size"), [(8, 1), (16, 4), (37, 4), (32, 8)])
def test_bars_end_where_the_package_counts(length, size, zigzag) -> None:
    figure = show.ring_attention_player(cut(length, size, zigzag))
    work, wait = figure.frames[-1].data[2:]
    assert list(work.x) == parallel.pairs(length, size, zigzag=zigzag)
    # All ranks are ready together: who has less to do waits.
    assert len({a + b for a, b in zip(work.x, wait.x, strict=True)}) == 1


def test_zigzag_leaves_nobody_waiting() -> None:
    plain = show.ring_attention_player(cut(32, 4))
    even = show.ring_attention_player(cut(32, 4, True))
    assert list(plain.frames[-1].data[3].x) == [192, 128, 64, 0]
    assert list(even.frames[-1].data[3].x) == [0] * 4
    assert "256 pairs in all, ranks busy 62%" in plain.layout.title.text
    assert "160 pairs in all, ranks busy 100%" in even.layout.title.text


def test_every_seen_pair_is_done_once_and_no_hidden_one() -> None:
    figure = show.ring_attention_player(cut(16, 4, True))
    assert done(figure, 0) == 0
    last = grid(figure, 4)
    assert all(
        (cell is None) == (k > q) for q, row in enumerate(last) for k, cell in enumerate(row)
    )
    assert done(figure, 4) == 16 * 17 // 2
    new = [sum(cell in (1, 3, 5, 7) for row in grid(figure, s) for cell in row) for s in range(5)]
    assert sum(new) == 16 * 17 // 2


def test_without_a_mask_all_pairs_are_done() -> None:
    figure = show.ring_attention_player(cut(16, 4), causal=False)
    assert [done(figure, step) for step in range(5)] == [0, 64, 128, 192, 256]
    assert list(figure.frames[-1].data[2].x) == [64] * 4


def test_a_row_has_the_colour_of_the_rank_of_its_query() -> None:
    places = cut(16, 4, True)
    last = grid(show.ring_attention_player(places), 4)
    for rank, part in enumerate(places):
        assert all(cell // 2 == rank for q in part for cell in last[q] if cell is not None)


def test_blocks_go_round() -> None:
    figure = show.ring_attention_player(cut(8, 4))
    told = [[row[0] for row in frame.data[1].text] for frame in figure.frames]
    assert told[0] == told[1] == ["K0 V0", "K1 V1", "K2 V2", "K3 V3"]
    assert told[2] == ["K3 V3", "K0 V0", "K1 V1", "K2 V2"]
    assert told[4] == ["K1 V1", "K2 V2", "K3 V3", "K0 V0"]


def test_another_order_is_shown_as_it_is() -> None:
    figure = show.ring_attention_player(cut(4, 2), order=[[1, 0]])
    assert [row[0] for row in figure.frames[-1].data[1].text] == ["K1 V1", "K0 V0"]
    assert list(figure.frames[-1].data[2].x) == [0, 4]
    assert len(figure.frames) == 2


def test_the_first_picture_is_the_first_frame() -> None:
    figure = show.ring_attention_player(cut(16, 4))
    for shown, frame in zip(figure.data, figure.frames[0].data, strict=True):
        key = "z" if shown.type == "heatmap" else "x"
        assert str(shown[key]) == str(frame[key])
    reached = [step.args[0][0] for step in figure.layout.sliders[0].steps]
    assert reached == [frame.name for frame in figure.frames]


def test_it_speaks_the_learners_language_and_stays_small() -> None:
    coursekit.language("zh")
    text = show.ring_attention_player(cut(32, 4, True)).to_json()
    assert "pairs" not in text
    assert len(text) < 35_000


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: show.ring_attention_player([]), "1 to 8 ranks, got 0"),
        (lambda: show.ring_attention_player([[n] for n in range(9)]), "1 to 8 ranks, got 9"),
        (lambda: show.ring_attention_player([[0, 1], [1, 2]]), "each once, ascending"),
        (lambda: show.ring_attention_player([[1, 0]]), "each once, ascending"),
        (lambda: show.ring_attention_player([list(range(65))]), "at most 64 positions, got 65"),
        (lambda: show.ring_attention_player([[0], [1]], order=[[0, 2]]), "one of 2 ranks"),
    ],
)
def test_what_cannot_be_drawn_is_refused(call, told) -> None:
    with pytest.raises(ValueError, match=told):
        call()
