"""Recorded programs, run again: correct ones get through, and of a hang the truth is told."""

import pytest
import torch

from coursekit import measure, schedule
from coursekit.comm import Log, connect, execute, merge, record
from coursekit.comm._log import Event, Range

from .ranks_help import clean_ranks

# ruff: noqa: F821 - rank, size and dist are names of the ranks


@pytest.fixture(scope="module")
def four():
    with clean_ranks(4, backend="gloo") as ranks:
        yield ranks


@pytest.fixture(scope="module")
def three():
    with clean_ranks(3, backend="gloo") as ranks:
        yield ranks


def receives_ahead(buffer):
    left, right = (rank - 1) % size, (rank + 1) % size
    parts = [torch.empty_like(buffer) for _ in range(size - 1)]
    posted = [dist.irecv(part, left) for part in parts]
    travelling = buffer.clone()
    for request, part in zip(posted, parts, strict=True):
        dist.send(travelling, right)
        request.wait()
        buffer += part
        travelling = part


def waits_late(buffer):
    """Rank 0 posts a receive first, is served by rank 2 before, and waits at its end."""
    early, other = torch.empty_like(buffer), torch.empty_like(buffer)
    if rank == 0:
        request = dist.irecv(early, 1)
        dist.recv(other, 2)
        dist.send(buffer, 1)
        request.wait()
    elif rank == 1:
        dist.recv(other, 0)
        dist.send(buffer, 0)
    elif rank == 2:
        dist.send(buffer, 0)


def test_receives_that_are_posted_ahead_are_no_deadlock(four):
    ring = schedule.build("all_reduce", "ring", 4)
    own = measure.record_own(four, receives_ahead)
    schedule.prove(own.schedule)
    assert own.deadlock_if_unbuffered is None
    late = measure.record_own(four, waits_late, collective="custom")
    assert len(late.times) == 3
    assert late.deadlock_if_unbuffered is None
    ours = measure.record_own(four, lambda x: execute(ring, connect(), x))
    assert len(ours.times) == 24
    assert ours.deadlock_if_unbuffered is None


def runs_them_all(plans):
    """Every schedule, recorded; the length is one that all chunks divide."""
    logs = []
    for built in plans:
        x = torch.ones(4 * built.chunks)
        out = torch.zeros_like(x) if built.output else None
        with record(x, output=out) as log:
            execute(built, connect(), x, output=out)
        logs.append(log)
    return logs


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_no_schedule_that_is_executed_deadlocks_if_unbuffered(count):
    names = [(c, n) for c in schedule.algorithms() for n in schedule.algorithms(c)]
    plans = [schedule.build(*name, count) for name in names]
    with clean_ranks(count, backend="gloo") as ranks:
        logs = zip(*ranks.run(runs_them_all, plans), strict=True)
    found = {}
    for name, built, mine in zip(names, plans, logs, strict=True):
        recorded = merge(mine, built.collective, root=built.root)
        assert len(recorded.times) >= built.count().messages > 0
        found[name] = recorded.deadlock_if_unbuffered
    assert found == dict.fromkeys(names)


def sends_first(buffer):
    other = torch.empty_like(buffer)
    dist.send(buffer, (rank + 1) % size)
    dist.recv(other, (rank - 1) % size)


def test_a_ring_of_sends_is_a_deadlock(four):
    recorded = measure.record_own(four, sends_first, timeout=3, collective="custom")
    assert recorded.deadlock == recorded.deadlock_if_unbuffered
    assert recorded.deadlock.cycle == (0, 1, 2, 3)
    assert str(recorded.deadlock).splitlines()[1] == "  rank 0 waits in its call 0, send to rank 1"


def test_a_hang_names_its_own_circle_and_not_what_was_only_posted(three):
    def stuck(buffer):
        part = torch.empty_like(buffer)
        if rank == 0:
            dist.irecv(part, 1, tag=5)
            dist.recv(buffer, 2)
        elif rank == 1:
            dist.recv(buffer, 0)
        else:
            dist.isend(buffer, 1, tag=7)
            dist.recv(buffer, 0)

    recorded = measure.record_own(three, stuck, timeout=3, collective="custom")
    assert recorded.deadlock.cycle == (0, 2)
    assert [wait[:4] for wait in recorded.deadlock.waits] == [
        (0, 1, "recv", 2),
        (1, 0, "recv", 0),
        (2, 1, "recv", 0),
    ]


def test_a_hang_tells_of_messages_that_nobody_waited_for(three):
    def stuck(buffer):
        if rank == 0:
            dist.send(buffer[:4], 1)
        elif rank == 1:
            dist.irecv(buffer[:4], 0)
            dist.recv(buffer, 2)

    recorded = measure.record_own(three, stuck, timeout=3, collective="custom")
    assert recorded.unmatched == [
        "rank 1: bytes 0 to 16 of the buffer, received from rank 0, was sent, but not waited for",
        "rank 1: bytes 0 to 144 of the buffer, received from rank 2, never came",
    ]
    assert recorded.times == []
    assert str(recorded.deadlock) == (
        "hang: ranks 0, 2 came to the end, others still wait\n"
        "  rank 1 waits in its call 1, receive from rank 2"
    )


def test_what_was_not_waited_for_takes_the_message_that_came_first():
    logs = [Log(rank, 2, 4, 4, 2) for rank in range(2)]
    for place in (Range(0, 0, 4), Range(0, 4, 8)):
        logs[0].finish(logs[0].add(Event("send", place, peer=1)))
    logs[1].add(Event("recv", Range(0, 0, 4), peer=0))
    logs[1].finish(logs[1].add(Event("recv", Range(0, 4, 8), peer=0)))
    recorded = merge(logs, "custom")
    assert recorded.schedule.transfers["chunk"].tolist() == [1]
    assert [words.split(", ", 1)[1] for words in recorded.unmatched] == [
        "received from rank 0, was sent, but not waited for"
    ]


def test_a_hang_of_a_rank_that_never_began_keeps_the_dtype(three):
    def late(buffer):
        dist.recv(buffer, (rank + 1) % size)

    def hold():
        import time

        from coursekit.measure import _own

        if rank == 2:
            _own.values = lambda *_: time.sleep(60)

    three.run(hold)
    recorded = measure.record_own(three, late, 6, dtype="float64", timeout=3)
    assert recorded.itemsize == 8
    assert recorded.notes == [
        "rank 2: what it had done is not known: it had not begun, or runs on another machine"
    ]
    assert recorded.deadlock.finished == ()
    assert "rank 1 waits in its call 0, receive from rank 2" in str(recorded.deadlock)
