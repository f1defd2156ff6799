"""Recording: what learners wrote becomes a schedule; what is wrong with it is named."""

import numpy as np
import pytest
import torch

from coursekit import measure, schedule
from coursekit.comm import CommError, Log, connect, execute, merge, record
from coursekit.ranks import RankFailed

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


def exchange(outgoing, dest, incoming, source):
    for request in [dist.isend(outgoing, dest), dist.irecv(incoming, source)]:
        request.wait()


def scatter_half(buffer):
    chunks = buffer.tensor_split(size)
    for step in range(size - 1):
        target = chunks[(rank - step - 1) % size]
        arrived = torch.empty_like(target)
        exchange(chunks[(rank - step) % size], (rank + 1) % size, arrived, (rank - 1) % size)
        target += arrived


def gather_half(buffer, shift=1, steps=None):
    chunks = buffer.tensor_split(size)
    for step in range(size - 1 if steps is None else steps):
        outgoing, target = chunks[(rank + shift - step) % size], chunks[(rank - step) % size]
        if shift == 0:
            target = chunks[(rank - step - 1) % size]
        exchange(outgoing, (rank + 1) % size, target, (rank - 1) % size)


def ring(buffer):
    scatter_half(buffer)
    gather_half(buffer)


def off_by_one(buffer):
    scatter_half(buffer)
    gather_half(buffer, shift=0)


def forgets_the_last(buffer):
    scatter_half(buffer)
    gather_half(buffer, steps=size - 2)


def batched(buffer):
    chunks = buffer.tensor_split(size)
    left, right = (rank - 1) % size, (rank + 1) % size
    for step in range(2 * (size - 1)):
        adds = step < size - 1
        target = chunks[(rank - step - 1) % size]
        landing = torch.empty_like(target) if adds else target
        ops = [
            dist.P2POp(dist.isend, chunks[(rank - step) % size], right),
            dist.P2POp(dist.irecv, landing, left),
        ]
        for request in dist.batch_isend_irecv(ops):
            request.wait()
        if adds:
            torch.add(target, landing, out=target)


def blocking(buffer):
    """Even ranks send first, odd ranks receive first; the sum is written back by assignment."""
    chunks = buffer.tensor_split(size)
    left, right = (rank - 1) % size, (rank + 1) % size
    for step in range(2 * (size - 1)):
        own, other = (rank - step) % size, (rank - step - 1) % size
        landing = torch.empty_like(chunks[other])
        outgoing = chunks[own].clone()
        if rank % 2 == 0:
            dist.send(outgoing, right)
        dist.recv(landing, left)
        if rank % 2:
            dist.send(outgoing, right)
        chunks[other][:] = chunks[other] + landing if step < size - 1 else landing


def through_root(buffer):
    part = torch.empty_like(buffer)
    if rank == 0:
        for source in range(1, size):
            dist.recv(part, source)
            buffer += part
        for dest in range(1, size):
            dist.send(buffer, dest)
    else:
        dist.send(buffer, 0)
        dist.recv(buffer, 0)


def from_anybody(buffer):
    part = torch.empty_like(buffer)
    if rank == 0:
        for _ in range(1, size):
            dist.recv(part)
            buffer.add_(part)
    else:
        dist.send(buffer, 0)


def doubling(buffer):
    distance = 1
    while distance < size:
        arrived = torch.empty_like(buffer)
        exchange(buffer, rank ^ distance, arrived, rank ^ distance)
        buffer += arrived
        distance *= 2


def passes_on(buffer):
    """Every rank's buffer goes round whole: what arrives is added, and sent on as it came."""
    travelling = buffer.clone()
    for _ in range(size - 1):
        arrived = torch.empty_like(travelling)
        exchange(travelling, (rank + 1) % size, arrived, (rank - 1) % size)
        buffer[:] = buffer + arrived
        travelling = arrived


def receives_first(buffer):
    arrived = torch.empty_like(buffer)
    dist.recv(arrived, (rank - 1) % size)
    dist.send(buffer, (rank + 1) % size)


@pytest.mark.parametrize("own", [ring, batched, blocking])
@pytest.mark.parametrize("count", [48, 10, 5])
def test_every_way_to_write_a_ring_gives_the_same_schedule(four, own, count):
    recorded = measure.record_own(four, own, count)
    schedule.prove(recorded.schedule)
    built = schedule.build("all_reduce", "ring", 4)
    assert recorded.lengths == tuple(np.diff(schedule.chunk_bounds(count, 4)))
    assert (recorded.schedule.matrix() == built.matrix()).all()
    counted = recorded.schedule.count(count)
    assert counted.messages_sent.tolist() == [6] * 4
    assert counted.total == built.count(count).total
    assert recorded.schedule.scratch == 0
    assert (recorded.unmatched, recorded.notes, recorded.deadlock) == ([], [], None)


def test_the_recorded_ring_has_six_steps_and_its_times(four):
    recorded = measure.record_own(four, ring)
    assert recorded.schedule.step_count == 6
    assert len(recorded.times) == 24
    assert {(src, dst) for _, src, dst, *_ in recorded.times} == {(0, 1), (1, 2), (2, 3), (3, 0)}
    assert all(0 <= began < arrived for *_, began, arrived in recorded.times)


@pytest.mark.parametrize("name", schedule.algorithms("all_reduce"))
@pytest.mark.parametrize("ranks", ["three", "four"])
def test_what_execute_sends_is_what_the_schedule_says(request, ranks, name):
    ranks = request.getfixturevalue(ranks)
    built = schedule.build("all_reduce", name, ranks.size)
    recorded = measure.record_own(ranks, lambda x: execute(built, connect(), x), 240)
    schedule.prove(recorded.schedule)
    assert (recorded.schedule.matrix(recorded.lengths) == built.matrix(240)).all()
    counts = recorded.schedule.count(), built.count()
    assert counts[0].messages_sent.tolist() == counts[1].messages_sent.tolist()


@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter"])
@pytest.mark.parametrize("size_of", ["three", "four"])
def test_other_collectives_are_proved_as_what_they_are(request, collective, size_of):
    ranks = request.getfixturevalue(size_of)
    for name in schedule.algorithms(collective):
        built = schedule.build(collective, name, ranks.size)
        recorded = measure.record_own(
            ranks, lambda x, s=built: execute(s, connect(), x), collective=collective
        )
        schedule.prove(recorded.schedule)


def test_all_to_all_has_two_buffers(four):
    built = schedule.build("all_to_all", "pairwise", 4)

    def work():
        x, out = torch.arange(8) + 10 * rank, torch.zeros(8, dtype=torch.int64)
        with record(x, output=out) as log:
            execute(built, connect(), x, output=out)
        return log

    recorded = merge(four.run(work), "all_to_all")
    schedule.prove(recorded.schedule)
    assert (recorded.schedule.matrix(8) == built.matrix(8)).all()


def test_through_one_root_is_one_message_after_another(four):
    recorded = measure.record_own(four, through_root)
    schedule.prove(recorded.schedule)
    counted = recorded.schedule.count(48)
    assert (counted.steps, counted.sent.tolist()) == (6, [144, 48, 48, 48])


def test_receives_from_anybody_learn_who_it_was(four):
    recorded = measure.record_own(four, from_anybody, collective="reduce", root=0)
    schedule.prove(recorded.schedule)
    assert recorded.schedule.count().messages_sent.tolist() == [0, 1, 1, 1]


def test_recursive_doubling_has_two_steps(four):
    recorded = measure.record_own(four, doubling)
    schedule.prove(recorded.schedule)
    assert recorded.schedule.count(48).sent.tolist() == [96] * 4
    assert recorded.schedule.step_count == 2


def test_what_is_passed_on_stays_beside_the_buffer(four):
    recorded = measure.record_own(four, passes_on)
    schedule.prove(recorded.schedule)
    assert recorded.schedule.scratch > 0
    assert recorded.schedule.count(48).sent.tolist() == [144] * 4


@pytest.mark.parametrize(
    ("own", "says"),
    [
        (off_by_one, "rank 0 ends with what rank 3 contributed; ranks 0-2 are missing"),
        (forgets_the_last, "chunk 2 of rank 0, step 1: rank 0 ends with what ranks 0, 2-3"),
    ],
)
def test_the_first_wrong_chunk_of_a_wrong_ring_is_named(four, own, says):
    recorded = measure.record_own(four, own)
    with pytest.raises(schedule.WrongSchedule, match=says):
        schedule.prove(recorded.schedule)


def test_a_deadlock_names_its_circle_and_the_ranks_go_on(four):
    recorded = measure.record_own(four, receives_first, timeout=3)
    assert recorded.deadlock is not None
    assert set(recorded.deadlock.cycle) == {0, 1, 2, 3}
    assert "rank 0 waits in its call 0, receive from rank 3" in str(recorded.deadlock)
    assert len(recorded.unmatched) == 4
    assert "received from rank 3, never came" in recorded.unmatched[0]
    assert type(recorded.error).__name__ == "RanksHung"
    assert measure.record_own(four, ring).deadlock is None


def test_a_message_that_nobody_receives_is_named(three):
    def lost(buffer):
        if rank == 0:
            dist.isend(buffer[:4], 1, tag=7)
            dist.send(buffer[4:8], 1)
        elif rank == 1:
            dist.recv(buffer[4:8], 0)

    recorded = measure.record_own(three, lost)
    assert recorded.unmatched == [
        "rank 0: bytes 0 to 16 of the buffer, sent to rank 1, tag 7, was never received"
    ]


def test_an_operation_that_cannot_be_followed_is_said(three):
    def clamps(buffer):
        buffer.clamp_(max=2)

    recorded = measure.record_own(three, clamps)
    assert recorded.notes[0] == (
        "rank 0: torch's clamp_ changed memory in a way that is not followed"
    )


def test_wrong_numbers_are_told_even_if_all_messages_went_right(four):
    def spoils(buffer):
        ring(buffer)
        buffer[3] = -1.0

    def averages(buffer):
        ring(buffer)
        buffer /= size

    spoiled = measure.record_own(four, spoils)
    schedule.prove(spoiled.schedule)
    assert spoiled.notes[-1] == (
        "rank 3: 1 of 48 numbers are not the sum over all ranks; the first is number 3: "
        "-1 instead of 7"
    )
    assert measure.record_own(four, averages).notes == []
    assert len(measure.record_own(four, off_by_one).notes) == 4


def sums_a_stack(buffer):
    parts = [torch.empty_like(buffer) for _ in range(size)]
    parts[rank].copy_(buffer)
    for distance in range(1, size):
        source = (rank - distance) % size
        exchange(buffer, (rank + distance) % size, parts[source], source)
    buffer.copy_(torch.stack(parts).sum(0))


def adds_a_travelling_sum(buffer):
    """The sum travels beside the buffer: what arrives gets the own chunk added and goes on."""
    chunks = buffer.tensor_split(size)
    travelling = chunks[rank].clone()
    for step in range(size - 1):
        own = chunks[(rank - step - 1) % size]
        arrived = torch.empty_like(own)
        exchange(travelling, (rank + 1) % size, arrived, (rank - 1) % size)
        travelling = arrived.add_(own)
    chunks[(rank + 1) % size].copy_(travelling)
    gather_half(buffer)


def receives_all_at_once(buffer):
    own = buffer.clone()
    parts = [torch.empty_like(buffer) for _ in range(size - 1)]
    came = [dist.irecv(parts[d - 1], (rank - d) % size, tag=d) for d in range(1, size)]
    sent = [dist.isend(own, (rank + d) % size, tag=d) for d in range(1, size)]
    for request in (*reversed(came), *sent):
        request.wait()
    for part in parts:
        buffer += part


def in_rows(buffer):
    rows = buffer.view(size, -1)
    spare = torch.zeros_like(rows[0])
    for step in range(2 * (size - 1)):
        target = rows[(rank - step - 1) % size]
        exchange(rows[(rank - step) % size], (rank + 1) % size, spare, (rank - 1) % size)
        target.copy_(target + spare if step < size - 1 else spare)


@pytest.mark.parametrize(
    ("own", "sent"),
    [
        (sums_a_stack, 12),
        (adds_a_travelling_sum, 6),
        (receives_all_at_once, 12),
        (in_rows, 6),
    ],
)
def test_other_ways_to_write_it_are_followed(four, own, sent):
    recorded = measure.record_own(four, own)
    schedule.prove(recorded.schedule)
    assert recorded.notes == []
    assert recorded.schedule.count(48).total == sent * 48


def gathers(buffer):
    own = buffer.clone()
    parts = [torch.empty_like(buffer) for _ in range(size)]
    parts[rank] = own
    for distance in range(1, size):
        source = (rank - distance) % size
        exchange(own, (rank + distance) % size, parts[source], source)
    return parts


def adds_to_zeros(buffer):
    total = torch.zeros_like(buffer)
    for part in gathers(buffer):
        total += part
    buffer.copy_(total)


def clears_the_buffer(buffer):
    parts = gathers(buffer)
    buffer.zero_()
    for part in parts:
        buffer += part


def python_sum(buffer):
    buffer[:] = sum(gathers(buffer))


def divides_beside(buffer):
    buffer.copy_(sum(gathers(buffer)) / size)


@pytest.mark.parametrize("own", [adds_to_zeros, clears_the_buffer, python_sum, divides_beside])
def test_zeros_are_nobodys_data(four, own):
    recorded = measure.record_own(four, own)
    schedule.prove(recorded.schedule)
    assert recorded.notes == []
    assert recorded.schedule.count(48).sent.tolist() == [144] * 4


def test_what_adds_nothing_to_cleared_memory_is_found(four):
    def forgets_itself(buffer):
        parts = gathers(buffer)
        buffer.zero_()
        for distance in range(1, size):
            buffer += parts[(rank + distance) % size]

    def sends_zeros(buffer):
        exchange(torch.zeros(48), (rank + 1) % size, buffer, (rank - 1) % size)

    def clears(buffer):
        buffer.zero_()

    with pytest.raises(schedule.WrongSchedule, match="rank 0 is missing"):
        schedule.prove(measure.record_own(four, forgets_itself).schedule)
    assert "rank 0: a message carries zeros" in measure.record_own(four, sends_zeros).notes[0]
    assert "filled with zeros and not written" in measure.record_own(four, clears).notes[0]


@pytest.mark.parametrize("count", [4, 5, 10])
def test_bytes_of_uneven_chunks_beside_the_buffer_are_counted(three, count):
    recorded = measure.record_own(three, adds_a_travelling_sum, count)
    schedule.prove(recorded.schedule)
    assert recorded.notes == []
    assert recorded.schedule.count(recorded.lengths, 4).total == 4 * 4 * count


def test_ranks_that_swap_whole_blocks_keep_what_stands_beside_the_buffer(three):
    def turns(buffer):
        own, arrived = buffer.clone(), torch.empty_like(buffer)
        exchange(own, (rank + 1) % size, arrived, (rank - 1) % size)
        buffer.copy_(arrived)

    recorded = measure.record_own(three, turns, collective="custom")
    assert recorded.schedule.count(36).sent.tolist() == [36] * 3
    with pytest.raises(schedule.WrongSchedule, match="rank 0 ends with what rank 2 contributed"):
        schedule.prove(recorded.schedule, "all_reduce")


def test_a_receive_that_is_too_long_is_told(three):
    def too_long(buffer):
        if rank == 0:
            dist.send(buffer, 1)
        elif rank == 1:
            dist.recv(torch.empty(len(buffer) + 2), 0)

    recorded = measure.record_own(three, too_long, collective="custom")
    assert recorded.notes == ["rank 0 sent 144 bytes to rank 1, which expected 152"]


def test_right_numbers_that_were_not_followed_are_told(three):
    def in_numpy(buffer):
        array = buffer.numpy()
        for part in [p for i, p in enumerate(gathers(buffer)) if i != rank]:
            array += part.numpy()

    def library(buffer):
        dist.all_reduce(buffer)

    def wider(buffer):
        total = torch.zeros(len(buffer), dtype=torch.float64)
        for part in gathers(buffer):
            total += part
        buffer.copy_(total)

    assert "the numbers are right, though" in measure.record_own(three, in_numpy).notes[-1]
    notes = measure.record_own(three, library).notes
    assert notes[0] == "rank 0: the collective allreduce of torch is not taken apart"
    assert "of different dtypes" in measure.record_own(three, wider).notes[0]


def test_adding_twice_is_found(four):
    def twice(buffer):
        ring(buffer)
        other = torch.empty_like(buffer)
        exchange(buffer, rank ^ 1, other, rank ^ 1)
        buffer += other

    recorded = measure.record_own(four, twice)
    with pytest.raises(schedule.WrongSchedule, match="contributed a second time"):
        schedule.prove(recorded.schedule)


def test_messages_across_the_chunks_make_a_finer_cut(three):
    def odd_pieces(buffer):
        if rank == 0:
            dist.send(buffer[5:20], 1)
        elif rank == 1:
            dist.recv(buffer[5:20], 0)

    recorded = measure.record_own(three, odd_pieces, 36, collective="custom")
    assert recorded.lengths == (5, 7, 8, 4, 12)
    assert recorded.schedule.count(recorded.lengths, 4).sent.tolist() == [60, 0, 0]


def test_torch_is_as_before_after_a_recording_that_failed(three):
    def fails(buffer):
        raise ValueError("a learner's mistake")

    with pytest.raises(RankFailed, match="a learner's mistake"):
        measure.record_own(three, fails)

    def plain():
        x = torch.full((3,), float(rank))
        exchange(x.clone(), (rank + 1) % size, x, (rank - 1) % size)
        return x[0].item(), "recorded" in repr(vars(dist.ProcessGroup)["send"])

    assert three.run(plain) == [(2.0, False), (0.0, False), (1.0, False)]


def test_recordings_do_not_nest_and_buffers_lie_in_one_piece(three):
    def nested():
        x = torch.zeros(4)
        with record(x), record(x):
            pass

    def scattered():
        with record(torch.zeros(4, 4).t()):
            pass

    with pytest.raises(RankFailed, match="a recording cannot begin inside another one"):
        three.run(nested)
    with pytest.raises(RankFailed, match="must be contiguous"):
        three.run(scattered)


def test_merge_wants_every_rank_once_and_equal_buffers():
    logs = [Log(rank, 2, 8, 4, 2) for rank in range(2)]
    with pytest.raises(CommError, match=r"the log of every rank once, got ranks \[0\] of 2"):
        merge(logs[:1])
    logs[1].elements = 6
    with pytest.raises(CommError, match=r"buffers of one length.*got lengths \[6, 8\]"):
        merge(logs)


def mpi_ring(buffer, comm):
    """With numpy arrays: values tell what became of a message."""
    rank, size = comm.Get_rank(), comm.Get_size()
    chunks = np.array_split(buffer if isinstance(buffer, np.ndarray) else buffer.numpy(), size)
    for step in range(size - 1):
        target = chunks[(rank - step - 1) % size]
        arrived = np.empty_like(target)
        request = comm.Irecv(arrived, (rank - 1) % size)
        comm.Send(chunks[(rank - step) % size].copy(), (rank + 1) % size)
        request.Wait()
        target += arrived
    for step in range(size - 1):
        comm.Sendrecv(
            chunks[(rank + 1 - step) % size],
            (rank + 1) % size,
            recvbuf=chunks[(rank - step) % size],
            source=(rank - 1) % size,
        )


def mpi_ring_of_tensors(buffer, comm):
    from mpi4py import MPI

    rank, size = comm.Get_rank(), comm.Get_size()
    chunks = buffer.tensor_split(size)
    for step in range(2 * (size - 1)):
        target = chunks[(rank - step - 1) % size]
        landing = torch.empty_like(target)
        left, right = (rank - 1) % size, (rank + 1) % size
        requests = [comm.Irecv(landing, left), comm.Isend(chunks[(rank - step) % size], right)]
        MPI.Request.Waitall(requests)
        if step < size - 1:
            target += landing
        else:
            target.copy_(landing)


@pytest.mark.needs("mpirun")
def test_mpi4py_is_recorded_with_tensors_and_with_arrays():
    def arrays():
        x = (np.arange(10) * 3 + comm.Get_rank() * 7 + 1).astype("f4")
        with record(x, comm=comm) as log:
            mpi_ring(x, log.comm)
        return log

    def sends_first(buffer, comm):
        other = torch.empty_like(buffer)
        comm.Send(buffer, (comm.Get_rank() + 1) % comm.Get_size())
        comm.Recv(other, (comm.Get_rank() - 1) % comm.Get_size())

    with clean_ranks(4, launcher="mpi") as ranks:
        built = schedule.build("all_reduce", "ring", 4)
        tensors = measure.record_own(ranks, mpi_ring_of_tensors, 10, mpi=True)
        for recorded in (tensors, merge(ranks.run(arrays))):
            schedule.prove(recorded.schedule)
            assert (recorded.schedule.matrix() == built.matrix()).all()
            assert recorded.lengths == (3, 3, 2, 2)
            assert recorded.notes == []
        small = measure.record_own(ranks, sends_first, 4, mpi=True)
        assert small.deadlock is None  # small messages are buffered, and that hides the mistake
        assert set(small.deadlock_if_unbuffered.cycle) == {0, 1, 2, 3}
        stuck = measure.record_own(ranks, sends_first, 1 << 20, mpi=True, timeout=4)
        assert set(stuck.deadlock.cycle) == {0, 1, 2, 3}
        assert "send to rank 1" in str(stuck.deadlock)


def butterfly(x, comm, both_send_first=False):
    """Pairs of ranks as communicators, where the later rank is the first one."""
    from mpi4py import MPI

    me = comm.Get_rank()
    for distance in (1, 2):
        pair = comm.Split(color=min(me, me ^ distance), key=-me)
        landing = np.empty_like(x)
        if pair.Get_rank() == 0 or both_send_first:
            pair.Ssend([x, x.size, MPI.FLOAT], 1 - pair.Get_rank())
            pair.Recv([landing, MPI.FLOAT], 1 - pair.Get_rank())
        else:
            pair.Recv(landing, 0)
            pair.Ssend([x, x.size, MPI.FLOAT], 0)
        x += np.frombuffer(landing, "f4")


def halves(x, comm):
    """What a rank sends itself, and counts that leave a part out."""
    from mpi4py import MPI

    me = comm.Get_rank()
    landing = bytearray(8)
    request = comm.Irecv(landing, me)
    comm.Send([x, 2, MPI.FLOAT], me)
    request.Wait()
    assert (np.frombuffer(landing, "f4") == x[:2]).all()


@pytest.mark.needs("mpirun")
def test_mpi4py_groups_counts_and_synchronous_sends_are_followed():
    def recorded(program):
        x = (np.arange(6) * 3 + comm.Get_rank() * 7 + 1).astype("f4")
        with record(x, comm=comm) as log:
            program(x, log.comm)
        return log

    def stuck(x, comm):
        butterfly(x.numpy(), comm, both_send_first=True)

    with clean_ranks(4, launcher="mpi") as ranks:
        pairs = merge(ranks.run(recorded, butterfly))
        schedule.prove(pairs.schedule)
        moved = pairs.schedule.matrix() > 0
        assert [(int(a), int(b)) for a, b in np.argwhere(moved)] == [
            (a, b) for a in range(4) for b in range(4) if a ^ b in (1, 2)
        ]
        assert pairs.notes == []
        assert pairs.unmatched == []
        assert pairs.deadlock_if_unbuffered is None
        alone = merge(ranks.run(recorded, halves))
        assert alone.unmatched == []
        assert alone.notes == []
        hung = measure.record_own(ranks, stuck, 6, mpi=True, timeout=4)
        assert len(hung.deadlock.cycle) == 2


def test_watching_does_not_import_the_compiler(two):
    """It takes seconds on a busy machine; an interrupt in the middle would break it for good."""

    def run():
        import sys

        with measure.watch():
            dist.all_reduce(torch.ones(4))
        return "torch._dynamo" in sys.modules

    before = two.run(lambda: "torch._dynamo" in __import__("sys").modules)
    own = measure.record_own(two, lambda buffer: dist.all_reduce(buffer), 8)
    assert own is not None
    assert two.run(run) == before == [False, False]
