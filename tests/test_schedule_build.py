"""Every algorithm builds, for every size, a schedule that is right."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coursekit import schedule as sch
from coursekit.schedule import Schedule, ScheduleError, Transfer, build, prove
from tests.schedule_help import PAIRS, in_step, schedules

# Counts of the textbook: sources stand at the builders.
STEPS = {
    ("all_reduce", "ring"): {2: 2, 4: 6, 7: 12},
    ("all_reduce", "tree"): {2: 2, 4: 4, 7: 6},
    ("all_reduce", "recursive_doubling"): {2: 1, 4: 2, 7: 4},
    ("all_reduce", "halving_doubling"): {2: 2, 4: 4, 7: 6},
    ("all_gather", "bruck"): {2: 1, 4: 2, 7: 3},
    ("all_to_all", "bruck"): {2: 1, 4: 2, 7: 3},
    ("barrier", "dissemination"): {2: 1, 4: 2, 7: 3},
}


@pytest.mark.parametrize(("collective", "algorithm"), PAIRS)
def test_right_for_every_size(collective: str, algorithm: str) -> None:
    for size in range(1, 34):
        built = build(collective, algorithm, size)
        assert prove(built).schedule == built
        assert (built.size, built.collective, built.algorithm) == (size, collective, algorithm)
        assert all(len(step) for step in built.steps())
    assert not build(collective, algorithm, 1).count().messages


@given(schedules(most=40))
@settings(max_examples=200, deadline=None)
def test_right_for_every_root_segments_and_groups(built: Schedule) -> None:
    prove(built)
    if built.collective != "barrier":
        assert in_step(built)


@given(schedules(most=12), st.randoms())
@settings(max_examples=100, deadline=None)
def test_other_ranks_in_the_same_places(built: Schedule, chance) -> None:
    order = list(range(built.size))
    chance.shuffle(order)
    moved = built.relabel(order)
    prove(moved)
    inverse = [order.index(rank) for rank in range(built.size)]
    assert moved.relabel(inverse) == built
    links = np.ix_(order, order)
    assert np.array_equal(moved.matrix()[links], built.matrix())


def test_a_ring_goes_round_in_the_order_given() -> None:
    ring = build("all_reduce", "ring", 4).relabel([0, 2, 1, 3])
    assert {(row.src, row.dst) for row in ring} == {(0, 2), (2, 1), (1, 3), (3, 0)}
    with pytest.raises(ScheduleError, match=r"each of 4 ranks once, got \[0, 1, 2, 2\]"):
        ring.relabel([0, 1, 2, 2])


@pytest.mark.parametrize("pair", STEPS)
def test_steps(pair: tuple[str, str]) -> None:
    assert {size: build(*pair, size).step_count for size in STEPS[pair]} == STEPS[pair]


def test_ring_of_four() -> None:
    ring = build("all_reduce", "ring", 4)
    counts = ring.count()
    assert counts.steps == 6
    assert counts.messages_sent.tolist() == counts.sent.tolist() == [6] * 4
    assert counts.reductions.tolist() == [3] * 4
    assert next(iter(ring)) == Transfer(0, 0, 1, 3, "reduce", 3)
    assert str(ring).splitlines()[:2] == [
        "<Schedule all_reduce ring: 4 ranks, 4 chunks, 24 transfers in 6 steps>",
        "step 0: 0->1 +3  1->2 +0  2->3 +1  3->0 +2",
    ]
    assert ring.table(1).splitlines()[-1] == "... to step 5; table(None) shows all"


def test_all_trees_send_as_much_as_the_ring() -> None:
    for size in (2, 5, 8):
        for algorithm in ("ring", "tree", "double_tree", "chain"):
            built = build("all_reduce", algorithm, size)
            assert built.count(size * 160).total == 2 * (size - 1) * size * 160


def test_a_thousand_ranks() -> None:
    ring = build("all_reduce", "ring", 1024)
    assert len(ring) == 2 * 1023 * 1024
    assert set(ring.count().sent) == {2 * 1023}
    assert build("all_to_all", "bruck", 256).step_count == 8


@pytest.mark.parametrize("size", [2, 3, 4, 5, 6, 9, 16, 33])
def test_two_trees_share_the_work(size: int) -> None:
    first, second = sch.tree_parents(size)
    for parents in (first, second):
        assert (parents == -1).sum() == 1
        assert sch.tree_depths(parents).max() == (size - 1).bit_length()
        assert np.bincount(parents[parents >= 0]).max() <= 2
    inner = [set(parents[parents >= 0].tolist()) for parents in (first, second)]
    roots = {int(np.flatnonzero(parents == -1)[0]) for parents in (first, second)}
    assert inner[0] & inner[1] <= roots
    sent = build("all_reduce", "double_tree", size, segments=4).count().sent
    assert sent.max() <= 4 * 4  # twice the buffer, which has 8 chunks


def test_between_groups_little_is_sent() -> None:
    built = build("all_reduce", "two_level", 8, groups=2)
    links = built.matrix(8 * 12)
    assert links[:4, 4:].sum(axis=1).tolist() == [2 * 96 // 8] * 4
    assert build("all_reduce", "two_level", 7).step_count == 12  # one group: the plain ring


@given(st.integers(0, 300), st.integers(1, 40))
def test_chunks_are_cut_as_numpy_cuts(count: int, chunks: int) -> None:
    bounds = sch.chunk_bounds(count, chunks)
    parts = np.array_split(np.arange(count), chunks)
    assert np.diff(bounds).tolist() == [len(part) for part in parts]
    assert (bounds[0], bounds[-1]) == (0, count)


@pytest.mark.parametrize("elements", [0, 1, 7])
def test_buffers_shorter_than_chunks(elements: int) -> None:
    counts = build("all_reduce", "ring", 4).count(elements, itemsize=4)
    assert counts.unit == "bytes"
    assert counts.total == 2 * 3 * 4 * elements


@given(schedules(most=9))
@settings(max_examples=60, deadline=None)
def test_counts_add_up(built: Schedule) -> None:
    counts = built.count()
    rows = [row for row in built if row.src != row.dst]
    messages = {(row.step, row.src, row.dst, row.op) for row in rows}
    for rank in range(built.size):
        assert counts.sent[rank] == sum(row.src == rank for row in rows)
        assert counts.received[rank] == sum(row.dst == rank for row in rows)
        adds = sum(row.dst == rank and row.op == "reduce" for row in rows)
        assert counts.reduced[rank] == counts.reductions[rank] == adds
        assert counts.messages_sent[rank] == sum(message[1] == rank for message in messages)
        assert counts.messages_received[rank] == sum(message[2] == rank for message in messages)
    assert counts.steps == len({row.step for row in rows})
    assert built.matrix().sum(axis=1).tolist() == counts.sent.tolist()
    assert built.matrix().sum(axis=0).tolist() == counts.received.tolist()
    assert built.matrix(messages=True).sum() == counts.messages == len(messages)
    assert [(m.step, m.src, m.dst, m.op) for m in built.messages()] == sorted(
        messages, key=lambda m: (*m[:3], m[3] == "reduce")
    )
    assert sum(len(m.chunk) for m in built.messages()) == len(rows)
    assert built.count(built.chunks * 5, itemsize=2).sent.tolist() == (counts.sent * 10).tolist()
    assert "messages sent" in str(counts)


def test_given_lengths_of_chunks() -> None:
    ring = build("reduce_scatter", "ring", 3)
    assert ring.count([5, 0, 1]).sent.tolist() == [1 + 0, 5 + 1, 0 + 5]
    with pytest.raises(ScheduleError, match="each of 3 chunks, got 2"):
        ring.count([5, 1])
    with pytest.raises(ScheduleError, match=r"equally long, got \[2, 1, 1\] bytes; try 3 elements"):
        build("all_to_all", "pairwise", 3).count(4)


def test_a_schedule_stays_as_it_is() -> None:
    ring = build("all_reduce", "ring", 3)
    with pytest.raises(ValueError, match="read-only"):
        ring.transfers["src"][0] = 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        ring.size = 4  # type: ignore[misc]
    mixed = Schedule("all_reduce", "ring", 3, 3, list(reversed(list(ring))))
    assert mixed == ring
    assert hash(mixed) == hash(ring)
    assert mixed != build("all_reduce", "chain", 3, segments=3)
    assert ring != "ring"


def test_transfers_may_be_tuples() -> None:
    both = Schedule("broadcast", "mine", 2, 1, [(0, 0, 1, 0)])
    assert prove(both).schedule.root == 0
    assert repr(both) == (
        "<Schedule broadcast mine from root 0: 2 ranks, 1 chunk, 1 transfer in 1 step>"
    )
    assert str(build("all_reduce", "ring", 1)).endswith("1 rank, 1 chunk, 0 transfers in 0 steps>")
    table = build("all_to_all", "pairwise", 2).table()
    assert table.splitlines()[1] == "step 0: 0->1 =1:2  1->0 =0:3"


def test_a_huge_schedule_is_sorted_too() -> None:
    rows = [Transfer(2**30, 1, 0, 2**20), Transfer(2**30, 0, 1, 2**21), Transfer(3, 0, 1, 5)]
    huge = Schedule("custom", "mine", 2**20, 2**22, rows)
    assert [row.step for row in huge] == [3, 2**30, 2**30]
    assert [row.src for row in huge] == [0, 0, 1]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (("all_reduze", "ring", 4), "must be known, got 'all_reduze'; did you mean all_reduce"),
        (("all_reduce", "rings", 4), "must be known, got 'rings'; did you mean ring"),
        (("all_reduce", "zzz", 4), "there are chain, double_tree"),
        (("all_reduce", "ring", 0), "size must be a whole number from 1 up, got 0"),
        (("all_reduce", "ring", True), "size must be a whole number from 1 up, got True"),
        (("all_reduce", "ring", 2.0), "size must be a whole number from 1 up, got 2.0"),
    ],
)  # fmt: skip
def test_wrong_names_and_sizes(call: tuple[str, str, int], told: str) -> None:
    with pytest.raises(ScheduleError) as error:
        build(*call)
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("algorithm", "option", "told"),
    [
        ("ring", {"segments": 4}, "got 'segments'; there are none"),
        ("chain", {"segment": 4}, "did you mean segments"),
        ("chain", {"segments": 0}, "segments must be a whole number from 1 up, got 0"),
        ("two_level", {"groups": 9}, "groups must be a whole number from 1 to 8, got 9"),
        ("ring", {"root": 0}, "got 'root'"),
    ],
)
def test_wrong_options(algorithm: str, option: dict[str, int], told: str) -> None:
    with pytest.raises(ScheduleError, match=told):
        build("all_reduce", algorithm, 8, **option)
    with pytest.raises(ScheduleError, match="root must be a whole number from 0 to 3, got 4"):
        build("broadcast", "binomial", 4, root=4)


@pytest.mark.parametrize("name", ["all_reduce", "AllReduce", "all-reduce", "Allreduce"])
def test_one_collective_has_many_names(name: str) -> None:
    assert build(name, "ring", 2).collective == "all_reduce"
    assert sch.collective_name("Bcast") == "broadcast"
    assert sch.collective_name("Reduce_scatter_block") == "reduce_scatter"


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ((0, 0, 4, 0), r"dst must be from 0 to 3, got 4 in transfer 0: Transfer\(step=0"),
        ((0, -1, 1, 0), "src must be from 0 to 3, got -1"),
        ((-1, 0, 1, 0), "step must be at least 0, got -1"),
        ((0, 0, 1, 4), "chunk must be from 0 to 3, got 4"),
        ((0, 0, 1, 0, "copy", 9), "into must be from 0 to 3, got 9"),
        ((0, 0, 1, 0, "add"), "op must be copy or reduce, got 'add'"),
        ((0, 0), r"must be \(step, src, dst, chunk, op, into\), got \(0, 0\)"),
        ((0, 0, 1, 1.5), "chunk must be a whole number"),
    ],
)
def test_wrong_transfers(row: tuple[object, ...], told: str) -> None:
    with pytest.raises(ScheduleError, match=told):
        Schedule("all_reduce", "mine", 4, 4, [row])


def test_wrong_schedules() -> None:
    with pytest.raises(ScheduleError, match="multiple of its size, got 3 chunks for 2 ranks"):
        Schedule("all_gather", "mine", 2, 3)
    with pytest.raises(ScheduleError, match="all_reduce must have no root, got 1"):
        Schedule("all_reduce", "mine", 2, 2, root=1)
    with pytest.raises(ScheduleError, match=r"of schedule\.DTYPE, got int64"):
        Schedule("all_reduce", "mine", 2, 2, np.zeros((2, 5), dtype=np.int64))
    with pytest.raises(ScheduleError, match="rank must be a whole number from 0 to 1"):
        Schedule("all_reduce", "mine", 2, 2).of(2)
