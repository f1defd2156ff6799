"""The proof: it accepts what is right, refuses what is wrong, and names what went wrong first."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from coursekit.schedule import (
    Schedule,
    ScheduleError,
    Transfer,
    WrongSchedule,
    build,
    prove,
    trace,
)
from tests.schedule_help import UnreadError, has_race, in_step, out_of_step, schedules

LEAN = [
    ("all_reduce", "ring"), ("all_reduce", "tree"), ("all_reduce", "double_tree"),
    ("all_reduce", "recursive_doubling"), ("all_reduce", "halving_doubling"),
    ("all_reduce", "chain"), ("all_reduce", "two_level"), ("all_gather", "ring"),
    ("all_gather", "recursive_doubling"), ("all_gather", "bruck"), ("reduce_scatter", "ring"),
    ("reduce_scatter", "halving"), ("broadcast", "binomial"), ("broadcast", "chain"),
    ("reduce", "binomial"), ("reduce", "chain"), ("reduce", "reduce_scatter_gather"),
    ("all_to_all", "pairwise"), ("all_to_all", "bruck"), ("scatter", "binomial"),
    ("gather", "linear"), ("barrier", "dissemination"),
]  # fmt: skip


def wrong(schedule: Schedule) -> WrongSchedule:
    with pytest.raises(WrongSchedule) as error:
        prove(schedule)
    return error.value


def refusal(schedule: Schedule) -> WrongSchedule | None:
    try:
        prove(schedule)
    except WrongSchedule as error:
        return error
    return None


def right(schedule: Schedule) -> bool:
    """What a run with numbers says."""
    try:
        return not has_race(schedule) and in_step(schedule)
    except UnreadError:
        return False


def with_rows(schedule: Schedule, rows) -> Schedule:
    return dataclasses.replace(schedule, transfers=rows)


@pytest.mark.parametrize(("collective", "algorithm"), LEAN)
@pytest.mark.parametrize("size", [4, 5, 6])
def test_no_transfer_can_be_left_out(collective: str, algorithm: str, size: int) -> None:
    built = build(collective, algorithm, size)
    for number in range(len(built)):
        error = wrong(with_rows(built, np.delete(built.transfers, number)))
        assert error.kind in {"unread", "unfinished"}
        assert error.kind == "unread" or error.holds != error.wants
        assert f"rank {error.rank}" in str(error)


@pytest.mark.parametrize(("collective", "algorithm"), LEAN[:-1])
def test_no_transfer_can_be_done_twice(collective: str, algorithm: str) -> None:
    built = build(collective, algorithm, 5)
    for row in built.transfers:
        error = wrong(with_rows(built, np.append(built.transfers, row)))
        assert error.kind == ("twice" if row["op"] else "race")
        assert (error.step, error.rank, error.chunk) == (row["step"], row["dst"], row["into"])


@pytest.mark.parametrize(("collective", "algorithm"), LEAN[:-1])
def test_a_transfer_that_goes_elsewhere(collective: str, algorithm: str) -> None:
    built = build(collective, algorithm, 5)
    harmless = 0
    for number in range(len(built)):
        for shift in range(1, 5):
            rows = built.transfers.copy()
            rows["dst"][number] = (rows["dst"][number] + shift) % 5
            changed = with_rows(built, rows)
            assert (refusal(changed) is None) == right(changed)
            harmless += right(changed)
    # A contribution may skip the ranks between, if one adds it later; no copy may go elsewhere.
    assert harmless <= (2 * len(built) if built.transfers["op"].any() else 0)


@st.composite
def mutants(draw: st.DrawFn) -> Schedule:
    """A schedule with one or two numbers of its transfers changed."""
    built = draw(schedules(most=7))
    assume(len(built) and built.collective != "barrier")
    rows = built.transfers.copy()
    tops = {"src": built.size, "dst": built.size, "op": 2, "chunk": built.slots,
            "into": built.slots, "step": built.step_count + 1}  # fmt: skip
    for _ in range(draw(st.integers(1, 2))):
        number = draw(st.integers(0, len(rows) - 1))
        kind = draw(st.sampled_from([*tops, "drop", "again"]))
        if kind == "drop":
            rows = np.delete(rows, number)
        elif kind == "again":
            rows = np.append(rows, rows[number])
            rows["step"][-1] = draw(st.integers(0, built.step_count))
        else:
            rows[kind][number] = draw(st.integers(0, tops[kind] - 1))
        assume(len(rows))
    return with_rows(built, rows)


@given(mutants())
@settings(max_examples=600, deadline=None)
def test_the_proof_agrees_with_a_run_with_numbers(changed: Schedule) -> None:
    error = refusal(changed)
    assert (error is None) == right(changed), error
    if error is not None:
        assert error.kind in {"unread", "race", "twice", "mixed", "unfinished"}
        assert 0 <= error.rank < changed.size
        assert 0 <= error.chunk < changed.slots
        if error.kind == "unfinished":
            have = trace(changed)[-1][error.rank][error.chunk]
            assert (have.contributors if have else ()) == error.holds


@given(schedules(most=9), st.integers())
@settings(max_examples=150, deadline=None)
def test_ranks_may_drift_apart(built: Schedule, seed: int) -> None:
    if built.collective != "barrier":
        assert out_of_step(built, seed)


def test_a_race_is_one_when_ranks_drift_apart() -> None:
    swap = Schedule("all_to_all", "mine", 2, 2, [
        (0, 0, 0, 0, "copy", 2), (0, 1, 1, 1, "copy", 3),
        (0, 0, 1, 1, "copy", 0), (0, 1, 0, 0, "copy", 1),
        (1, 0, 0, 1, "copy", 3), (1, 1, 1, 0, "copy", 2),
    ])  # fmt: skip
    assert in_step(swap)
    assert {out_of_step(swap, seed) for seed in range(30)} == {True, False}
    error = wrong(swap)
    assert (error.kind, error.step, error.rank, error.chunk) == ("race", 0, 0, 1)
    assert "rank 0 sends it while a copy of it arrives" in str(error)


def ring(size: int, chunk, steps: int | None = None) -> Schedule:
    """A learner's all-reduce: `chunk(rank, step)` is what a rank sends, first adding, then not."""
    half = size - 1
    rows = [
        Transfer(step, rank, (rank + 1) % size, chunk(rank, step) % size, op)
        for step in range(2 * half if steps is None else steps)
        for op in ["reduce" if step < half else "copy"]
        for rank in range(size)
    ]
    return Schedule("all_reduce", "mine", size, size, rows)


def test_a_learners_ring() -> None:
    prove(ring(4, lambda rank, step: rank - step + (step >= 3) * 4))


def test_off_by_one() -> None:
    prove(ring(4, lambda rank, step: rank + 1 - step))  # only the names of the chunks differ
    error = wrong(ring(4, lambda rank, step: rank - step + (step >= 3)))
    assert error.kind == "unfinished"
    assert error.wants == (0, 1, 2, 3)


def test_the_last_step_forgotten() -> None:
    error = wrong(ring(4, lambda rank, step: rank - step, steps=5))
    assert (error.kind, error.step, error.rank, error.chunk) == ("unfinished", 1, 0, 2)
    assert error.holds == (0, 2, 3)
    assert error.wants == (0, 1, 2, 3)
    assert "chunk 2 of rank 0, step 1: rank 0 ends with what ranks 0, 2-3 contributed" in str(error)
    assert "rank 1 is missing" in str(error)


def test_sent_before_it_was_received() -> None:
    rows = [(0, 0, 1, 0), (0, 1, 0, 1), (0, 1, 2, 0), (1, 1, 2, 1), (1, 2, 0, 2), (1, 2, 1, 2)]
    error = wrong(Schedule("all_gather", "mine", 3, 3, rows))
    assert (error.kind, error.step, error.rank, error.chunk) == ("unread", 0, 1, 0)
    assert "rank 1 sends it to rank 2, but has not received it yet" in str(error)
    error = wrong(Schedule("all_gather", "mine", 2, 2, [(0, 0, 1, 0, "reduce")]))
    assert (error.kind, error.rank) == ("unread", 1)
    assert "adds to it, but has not received it yet" in str(error)


def test_added_twice() -> None:
    error = wrong(ring(3, lambda rank, step: rank, steps=2))
    assert (error.kind, error.step, error.rank, error.chunk) == ("twice", 1, 0, 2)
    assert error.holds == (0, 2)
    assert "adds what rank" in str(error)
    assert "a second time" in str(error)


def test_garbage_that_nobody_uses_is_no_fault() -> None:
    rows = [(0, 0, 1, 0, "reduce"), (1, 1, 0, 0, "reduce"), (2, 1, 0, 0)]
    prove(Schedule("all_reduce", "mine", 2, 1, rows))
    mixed = [(0, 0, 1, 0, "reduce", 1), (1, 0, 1, 1, "copy", 1), (1, 0, 1, 0)]
    prove(Schedule("broadcast", "mine", 2, 2, [(0, 0, 1, 1, "copy", 0), *mixed[1:]]))


def test_different_chunks_added() -> None:
    rows = [(0, 1, 0, 1, "reduce", 0), (1, 0, 1, 0), (0, 0, 1, 1, "reduce"), (1, 1, 0, 1)]
    error = wrong(Schedule("all_reduce", "mine", 2, 2, rows))
    assert (error.kind, error.step, error.rank, error.chunk) == ("mixed", 0, 0, 0)
    assert "adds chunk 1 to chunk 0" in str(error)


def test_a_block_in_another_place() -> None:
    rows = [(0, 0, 1, 0, "copy", 1)]
    error = wrong(Schedule("scatter", "mine", 2, 2, rows))
    assert "ends with chunk 0 of the input in place of chunk 1" in str(error)
    error = wrong(Schedule("scatter", "mine", 2, 2))
    assert (error.step, error.rank, error.chunk, error.holds) == (None, 1, 1, ())
    assert "never written: rank 1 ends without having received it" in str(error)


def test_a_barrier_that_a_rank_leaves_too_early() -> None:
    built = build("barrier", "dissemination", 5)
    error = wrong(with_rows(built, built.transfers[:-5]))
    assert error.wants == tuple(range(5))
    assert "rank 0 ends having heard of ranks 0, 2-4 only" in str(error)


def test_custom_schedules_are_proved_as_what_they_are_meant_to_be() -> None:
    rows = [(0, 0, 1, 0)]
    custom = Schedule("custom", "mine", 2, 1, rows)
    with pytest.raises(ScheduleError, match=r"got custom; try prove\(schedule, 'all_reduce'\)"):
        prove(custom)
    assert prove(custom, "broadcast").schedule.root == 0
    with pytest.raises(WrongSchedule):
        prove(custom, "broadcast", root=1)
    with pytest.raises(WrongSchedule):
        prove(custom, "all_reduce")
    with pytest.raises(ScheduleError, match="multiple of its size"):
        prove(custom, "all_gather")
    from_two = build("broadcast", "binomial", 4, root=2)
    assert prove(from_two, "broadcast").schedule == from_two
    assert str(prove(from_two)).startswith("proved: <Schedule broadcast binomial from root 2")


def test_trace_shows_who_is_in_each_chunk() -> None:
    states = trace(build("all_reduce", "ring", 3))
    assert len(states) == 5
    assert [chunk.contributors for chunk in states[0][1] if chunk] == [(1,)] * 3
    assert states[1][1][2].contributors == (0, 1)
    assert all(chunk.contributors == (0, 1, 2) for row in states[-1] for chunk in row)
    gathered = trace(build("all_gather", "ring", 3))
    assert [[chunk is None for chunk in row] for row in gathered[0]] == [
        [rank != chunk for chunk in range(3)] for rank in range(3)
    ]
    faulty = trace(ring(3, lambda rank, step: rank, steps=2))
    assert faulty[-1][0][2].fault.kind == "twice"
    told = trace(build("barrier", "dissemination", 4))
    assert [state[0][0].contributors for state in told] == [(0,), (0, 3), (0, 1, 2, 3)]
