"""The player shows what `trace` says, for every schedule, and keeps figures small."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import plotly.graph_objects as go
import pytest

import coursekit
from coursekit import schedule, show
from coursekit.i18n import text
from coursekit.schedule import Schedule, Transfer, build, trace

NONE = {"custom"}
EVERY = [
    (collective, name)
    for collective in schedule.COLLECTIVES
    if collective not in NONE
    for name in schedule.algorithms(collective)
]


@pytest.fixture(autouse=True)
def english() -> Iterator[None]:
    yield
    coursekit.language("en")


def ranks_in(row: Any, size: int, slot: int) -> list[int]:
    """The ranks whose colour a chunk shows, from the numbers of its bands."""
    bands = row[slot * (size + 1) : slot * (size + 1) + size]
    return sorted({band for band in bands if band < size})


def words(figure: go.Figure) -> list[str]:
    """What each frame says."""
    return [frame.data[-1].text[0] for frame in figure.frames]


@pytest.mark.parametrize(("collective", "name"), EVERY)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8])
def test_each_frame_shows_whose_numbers_are_where(collective: str, name: str, size: int) -> None:
    made = build(collective, name, size)
    figure = show.player(made)
    states = trace(made)
    assert len(figure.frames) == made.step_count + 1
    for frame, state in zip(figure.frames, states, strict=True):
        for row, held in zip(frame.data[0].z, state, strict=True):
            for slot, content in enumerate(held):
                expected = [] if content is None else list(content.contributors)
                assert ranks_in(row, size, slot) == expected


def test_with_many_ranks_a_chunk_counts_its_contributions() -> None:
    made = build("all_reduce", "ring", 16)
    figure = show.player(made)
    for frame, state in zip(figure.frames, trace(made), strict=True):
        for row, held in zip(frame.data[0].z, state, strict=True):
            counts = [len(content.contributors) for content in held if content is not None]
            assert [value + 1 for value in row[::2]] == counts


@pytest.mark.parametrize(
    ("made", "kilobytes"),
    [
        (build("all_reduce", "ring", 4), 16),
        (build("all_reduce", "tree", 8), 16),
        (build("all_reduce", "ring", 8), 60),
        (build("all_reduce", "ring", 16), 140),
    ],
)
def test_a_figure_is_small(made: Schedule, kilobytes: int) -> None:
    assert len(show.player(made).to_json()) < kilobytes * 1000


def test_amounts_are_those_of_count() -> None:
    made = build("all_reduce", "ring", 4)
    figure = show.player(made, elements=1 << 20, itemsize=4)
    assert words(figure)[:2] == ["before the first step", "step 1 of 6: 4 messages of 1 MiB each"]
    sent = made.count(1 << 20, 4).sent
    assert list(figure.frames[-1].data[-2].text) == [f"{s / 2**20:.0f} MiB" for s in sent]


def test_arrows_are_the_messages_of_the_step() -> None:
    figure = show.player(build("all_reduce", "ring", 4))
    for step, frame in enumerate(figure.frames):
        _, halo, adds, stores, *_ = frame.data
        heads = [sum(1 for size in trace.marker.size if size) for trace in (halo, adds, stores)]
        assert heads == [[0, 0, 0], [4, 4, 0], [4, 0, 4]][(step > 0) + (step > 3)]


def test_what_is_wrong_at_the_end_is_red() -> None:
    right = build("all_reduce", "ring", 3)
    figure = show.player(Schedule("all_reduce", "short", 3, 3, right.transfers[:-2]))
    last = figure.frames[-1].data[0].z
    red = [(r, s) for r in range(3) for s in range(3) if last[r][s * 4] == 4]
    assert red == [(0, 1), (2, 0)]
    assert all(4 not in row for row in figure.frames[0].data[0].z)


def test_a_chunk_used_before_it_came_is_red_when_it_happens() -> None:
    early = Schedule("broadcast", "early", 2, 1, [Transfer(0, 1, 0, 0)], root=0)
    assert show.player(early).frames[1].data[0].z[0][0] == 3


def test_what_the_prover_refuses_is_red_in_its_step() -> None:
    wrong = [Transfer(0, 1, 2, 0), Transfer(1, 0, 1, 0), Transfer(1, 0, 2, 0), Transfer(1, 0, 3, 0)]
    early = Schedule("broadcast", "early", 4, 1, wrong, root=0)
    with pytest.raises(schedule.WrongSchedule) as refused:
        schedule.prove(early)
    frame = show.player(early).frames[refused.value.step + 1]
    assert frame.data[0].z[refused.value.rank][0] == 5


def test_a_recording_counts_its_own_chunks() -> None:
    class Recorded:
        schedule = build("all_gather", "ring", 2)
        lengths = (9, 1)

    figure = show.player(Recorded(), elements=10)
    assert list(figure.frames[-1].data[-2].text) == ["36 B", "4 B"]


def test_a_recording_plays_like_its_schedule() -> None:
    class Recorded:
        schedule = build("all_gather", "ring", 4)

    assert show.player(Recorded()).to_json() == show.player(Recorded.schedule).to_json()


def test_compare_keeps_the_shorter_one_at_its_end() -> None:
    ring, doubling = build("all_reduce", "ring", 4), build("all_reduce", "recursive_doubling", 4)
    figure = show.compare(ring, doubling, names=["a ring", "doubling"])
    assert len(figure.frames) == 7
    assert len(json.loads(figure.to_json())["frames"][0]["data"]) == 12
    second = [frame.data[-1].text[0] for frame in figure.frames]
    assert second[2:] == [second[2]] * 5
    titles = [note.text for note in figure.layout.annotations]
    assert "a ring, 4 ranks: 6 steps" in titles
    assert "doubling, 4 ranks: 2 steps" in titles


def test_the_legend_explains_the_arrows_that_occur() -> None:
    sums, whole = build("reduce_scatter", "ring", 4), build("all_gather", "ring", 4)
    listed = [
        [trace.name for trace in figure.data if trace.showlegend]
        for figure in (show.player(sums), show.player(whole), show.compare(sums, whole))
    ]
    assert listed == [["is added"], ["is stored"], ["is added", "is stored"]]


def test_words_follow_the_language() -> None:
    made = build("all_to_all", "pairwise", 4)
    english = show.player(made)
    coursekit.language("zh")
    chinese = show.player(made)
    each = text("player.messages", count=4, amount=text("player.chunk"))
    expected = text("player.line", step=text("player.step", step=1, steps=3), what=each)
    assert words(chinese)[1] == expected != words(english)[1]
    notes = [note.text for note in chinese.layout.annotations]
    assert text("player.output") in notes
    buttons = [figure.layout.updatemenus[0].buttons[0].label for figure in (english, chinese)]
    assert buttons[1] == text("player.play") != buttons[0]


def test_what_cannot_be_played_is_refused() -> None:
    with pytest.raises(ValueError, match="takes a Schedule or a recording, got str"):
        show.player("ring")
    with pytest.raises(ValueError, match="at most 64 ranks, got 65"):
        show.player(build("all_reduce", "tree", 65))
    with pytest.raises(ValueError, match="build the same algorithm for fewer ranks"):
        show.player(build("all_reduce", "ring", 64))
    with pytest.raises(ValueError, match="two or three schedules, got 1"):
        show.compare(build("all_reduce", "ring", 4))
    with pytest.raises(ValueError, match="one a schedule, got 1 for 2"):
        show.compare(*[build("all_reduce", "ring", 2)] * 2, names=["one"])
