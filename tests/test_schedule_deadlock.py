"""Ranks that wait for each other are named, and only they."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from coursekit.schedule import Deadlock, Schedule, ScheduleError, build, deadlock, programs
from tests.schedule_help import schedules


def cycle(program, **how) -> tuple[int, ...]:
    found = deadlock(program, **how)
    assert isinstance(found, Deadlock)
    return found.cycle


def test_everyone_sends_first() -> None:
    program = [[("send", (rank + 1) % 4), ("recv", (rank - 1) % 4)] for rank in range(4)]
    found = deadlock(program)
    assert found is not None
    assert found.cycle == (0, 1, 2, 3)
    assert str(found).splitlines()[:2] == [
        "deadlock: ranks 0 -> 1 -> 2 -> 3 -> 0 wait for each other",
        "  rank 0 waits in its call 0, send to rank 1",
    ]
    # Small messages hide the fault; everyone receiving first does not.
    assert deadlock(program, buffered=True) is None
    assert cycle([list(reversed(calls)) for calls in program], buffered=True) == (0, 3, 2, 1)


def test_even_ranks_send_first() -> None:
    for size in (4, 5):
        program = []
        for rank in range(size):
            calls = [("send", (rank + 1) % size), ("recv", (rank - 1) % size)]
            program.append(calls if rank % 2 == 0 else calls[::-1])
        assert deadlock(program) is None
    program[0] = program[0][::-1]
    assert deadlock(program) is None


def test_only_the_ranks_of_the_circle_are_named() -> None:
    program = [
        [("recv", 1)],
        [("recv", 2), ("send", 0)],
        [("send", 3), ("send", 1)],
        [("recv", 4), ("recv", 2)],
        [("send", 2), ("send", 3)],
    ]
    found = deadlock(program)
    assert found is not None
    assert found.cycle == (2, 3, 4)
    assert {wait.rank for wait in found.waits} == {0, 1, 2, 3, 4}


def test_a_message_that_nobody_sends() -> None:
    found = deadlock([[("recv", 1)], [], [("recv", 1, 7)]])
    assert found is not None
    assert (found.cycle, found.finished) == ((), (1,))
    assert str(found) == (
        "hang: rank 1 came to the end, others still wait\n"
        "  rank 0 waits in its call 0, receive from rank 1\n"
        "  rank 2 waits in its call 0, receive from rank 1, tag 7"
    )


def test_tags_must_match() -> None:
    assert deadlock([[("send", 1, 1)], [("recv", 0, 1)]]) is None
    assert cycle([[("send", 1, 1)], [("recv", 0, 2)]]) == (0, 1)
    crossed = [[("send", 1, 1), ("send", 1, 2)], [("recv", 0, 2), ("recv", 0, 1)]]
    assert cycle(crossed) == (0, 1)
    assert deadlock(crossed, buffered=True) is None


def test_calls_posted_together() -> None:
    together = [[[("send", (rank + 1) % 3), ("recv", (rank - 1) % 3)]] for rank in range(3)]
    assert deadlock(together) is None
    assert deadlock(together, buffered=True) is None
    first_alone = [*together[:2], [("send", 0), ("recv", 1)]]
    assert deadlock(first_alone) is None
    both_alone = [[("send", 1), ("recv", 2)], [("send", 2), ("recv", 0)], *together[2:]]
    assert deadlock(both_alone) is None
    missing = [[[("send", 1), ("recv", 1)]], [("recv", 0), ("recv", 0), ("send", 0)]]
    assert cycle(missing) == (0, 1)


def test_a_rank_goes_on_after_it_has_posted() -> None:
    early = []
    for rank in range(4):
        left, right = (rank - 1) % 4, (rank + 1) % 4
        early.append([("irecv", left), ("send", right), ("wait", 0)])
    assert deadlock(early) is None
    assert deadlock(early, buffered=True) is None
    late = [[("isend", calls[1][1]), ("recv", calls[0][1]), ("wait", 0)] for calls in early]
    assert deadlock(late) is None


def test_it_waits_where_it_says_and_nowhere_else() -> None:
    program = [
        [("isend", 1), ("irecv", 2, 5), ("wait", 0), ("recv", 1)],
        [("irecv", 0), ("recv", 0), ("wait", 0)],
        [("isend", 1, 9)],
    ]
    found = deadlock(program)
    assert found is not None
    assert (found.cycle, found.finished) == ((0, 1), (2,))
    assert [tuple(wait) for wait in found.waits] == [(0, 2, "recv", 1, 0), (1, 1, "recv", 0, 0)]
    both = deadlock([[("isend", 1), ("irecv", 2), ("wait", 0, 1)], [("recv", 2)], []])
    assert both is not None
    assert [(wait.rank, wait.number) for wait in both.waits] == [(0, 0), (0, 1), (1, 0)]


def test_receives_posted_together_take_messages_in_order() -> None:
    ahead = [("irecv", 0), ("irecv", 0), ("wait", 1), ("send", 0), ("wait", 0)]
    assert deadlock([[("send", 1), ("recv", 1), ("send", 1)], ahead]) is not None
    assert deadlock([[("send", 1), ("send", 1), ("recv", 1)], ahead]) is None


def test_a_message_to_oneself() -> None:
    assert deadlock([[("irecv", 0), ("send", 0), ("wait", 0)]]) is None
    found = deadlock([[("send", 0), ("recv", 0)], []])
    assert str(found) == (
        "deadlock: rank 0 waits for itself\n  rank 0 waits in its call 0, send to rank 0"
    )
    assert deadlock([[("send", 0), ("recv", 0)]], buffered=True) is None


@given(schedules(most=9))
@settings(max_examples=60, deadline=None)
def test_no_schedule_deadlocks(built: Schedule) -> None:
    assert deadlock(built) is None
    assert deadlock(programs(built, blocking=True), buffered=True) is None


def test_a_schedule_one_call_after_another() -> None:
    blocking = programs(build("all_reduce", "ring", 5), blocking=True)
    assert cycle(blocking) == (0, 1, 2, 3, 4)
    assert deadlock(programs(build("all_reduce", "chain", 5, segments=1), blocking=True)) is None
    assert len(programs(build("all_reduce", "ring", 5))[0]) == 8


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ([[("push", 1)], []], "send, recv, isend, irecv or wait, got 'push' of rank 0"),
        ([[("send", 2)], []], "the peer of rank 0 must be a whole number from 0 to 1, got 2"),
        ([[("send", -1)], []], "the peer of rank 0 must be a whole number from 0 to 1, got -1"),
        ([[("wait",)], []], r"a wait must name calls.* got \('wait',\) of rank 0 after 0 calls"),
        ([[("send", 1), ("wait", 1)], []], r"got \('wait', 1\) of rank 0 after 1 calls"),
        ([["send"], []], r"a call must be like \('send', 1\), got 'send' of rank 0"),
        ([[7], []], "a call must be like"),
        ([[[7]], []], "a call must be like"),
    ],
)
def test_calls_that_are_none(program, told: str) -> None:
    with pytest.raises(ScheduleError, match=told):
        deadlock(program)
