"""Bytes between ranks: on the wire against the formula, and what was issued by two witnesses."""

import numpy as np
import pytest

from coursekit import Ranks
from coursekit.comm import connect, execute
from coursekit.measure import Issued, MeasureError, traffic
from coursekit.measure._issued import Call, plain, recorded, summary
from coursekit.measure._sockets import Counters, Reading, between, closed_between, parse
from coursekit.measure._traffic import human
from coursekit.schedule import build

MIB = 1 << 20


def all_reduce(elements, times):
    import torch
    import torch.distributed as dist

    x = torch.ones(elements)
    for _ in range(times):
        dist.all_reduce(x)


def run(schedule, elements, times):
    import torch

    for _ in range(times):
        execute(schedule, connect(), torch.ones(elements))


@pytest.mark.parametrize("size", [4, 8])
def test_all_reduce_sends_what_the_formula_says(size):
    elements, times = MIB // 2, 4
    with Ranks(size, backend="gloo") as ranks:
        seen = traffic(ranks, all_reduce, elements, times)
    whole = 4 * elements * times
    assert seen.per_rank / whole == pytest.approx(2 * (size - 1) / size, rel=0.02)
    assert seen.issued == [[Issued("all_reduce", 4 * elements, times)]] * size
    assert seen.notes == []


@pytest.mark.parametrize("algorithm", ["ring", "tree", "recursive_doubling"])
def test_a_schedule_sends_between_each_pair_what_its_matrix_says(four, algorithm):
    elements, times = MIB // 4, 5
    schedule = build("all_reduce", algorithm, 4)
    seen = traffic(four, run, schedule, elements, times)
    predicted = schedule.matrix(elements, 4) * times
    assert seen.wire == pytest.approx(predicted, rel=0.02, abs=predicted.max() * 0.001)
    assert seen.sent(1) == seen.wire[1].sum()
    seen.predicted = predicted
    assert "predicted" in repr(seen)


def test_a_block_counts_all_calls_and_cells(four):
    with traffic(four) as seen:
        assert seen.wire is None
        assert "still being watched" in seen.why
        four.run(all_reduce, MIB, 1)
        four.cell("dist.broadcast(torch.ones(1000), 0)")
    assert seen.issued[2] == [Issued("all_reduce", 4 * MIB, 1), Issued("broadcast", 4000, 1)]
    assert seen.total == pytest.approx(6 * 4 * MIB, rel=0.02)
    assert seen.wire.dtype == np.int64
    assert (np.diag(seen.wire) == 0).all()


def test_nothing_done_is_nothing_sent(four):
    with traffic(four) as seen:
        four.run(lambda: None)
    assert seen.total == 0
    assert seen.issued == [[]] * 4
    assert "issued by every rank: nothing" in repr(seen)


def test_connections_that_appear_meanwhile_count_from_nought(four):
    def work():
        import torch
        import torch.distributed as dist

        group = dist.new_group([0, 1])
        if dist.get_rank() < 2:
            dist.all_reduce(torch.ones(MIB), group=group)

    seen = traffic(four, work)
    assert seen.wire[0, 1] == pytest.approx(4 * MIB, rel=0.02)
    assert seen.wire[2:, :2].max() < 10_000


def test_a_failing_block_stops_the_watch(four):
    with pytest.raises(KeyError), traffic(four):
        raise KeyError
    assert four.run(lambda: __import__("coursekit.measure._issued").measure._issued._watch) == (
        [None] * 4
    )


def test_results_come_back(four):
    assert traffic(four, lambda a, b: a * b, 3, b=5).results == [15] * 4


def primitives():
    """Every kind of call once; 250 floats a rank and 1000 in all."""
    import warnings

    import torch
    import torch.distributed as dist

    warnings.simplefilter("ignore")
    rank = dist.get_rank()
    part, whole = torch.ones(250), torch.ones(1000)
    dist.all_reduce(whole)
    dist.all_gather_into_tensor(whole, part)
    dist.all_gather([torch.empty(250) for _ in range(4)], part)
    dist.reduce_scatter_tensor(part, whole)
    dist.broadcast(whole, 0)
    dist.reduce(whole, 0)
    dist.all_to_all_single(torch.empty(1000), whole)
    dist.barrier()
    if rank == 0:
        dist.send(part, 1)
        dist.isend(part, 1).wait()
    elif rank == 1:
        dist.recv(part, 0)
        dist.irecv(part, 0).wait()


def test_every_primitive_is_issued_and_the_recorder_agrees(four):
    seen = traffic(four, primitives)
    both = [
        Issued("all_reduce", 4000, 1),
        Issued("all_gather", 4000, 2),
        Issued("reduce_scatter", 4000, 1),
        Issued("broadcast", 4000, 1),
        Issued("reduce", 4000, 1),
        Issued("all_to_all", 4000, 1),
        Issued("barrier", 0, 1),
    ]
    assert seen.issued[0] == [*both, Issued("send", 1000, 2)]
    assert seen.issued[1] == [*both, Issued("recv", 1000, 2)]
    assert seen.issued[2] == both
    # Gloo runs reduce_scatter as an all_reduce of the whole, and books no send or receive.
    gloo = [Issued("all_reduce", 4000, 2), *both[1:2], *both[3:]]
    assert seen.recorded == [gloo] * 4


def test_both_witnesses_see_a_step_of_ddp(four):
    four.cell(
        "from torch.nn.parallel import DistributedDataParallel\n"
        "model = DistributedDataParallel(torch.nn.Linear(100, 50))"
    )
    with traffic(four) as seen:
        four.cell("model(torch.ones(3, 100)).sum().backward()")
    expected = [Issued("all_reduce", (100 * 50 + 50) * 4, 1)]
    assert seen.issued == [expected] * 4
    assert seen.recorded == [expected] * 4


def test_functional_collectives_count_once(four):
    def work():
        import torch
        import torch.distributed as dist
        import torch.distributed._functional_collectives as functional

        functional.all_gather_tensor(torch.ones(250), 0, dist.group.WORLD).sum().item()

    seen = traffic(four, work, wire=False)
    assert seen.issued == [[Issued("all_gather", 4000, 1)]] * 4
    assert seen.wire is None
    assert "wire=False" in seen.why


def test_torch_still_has_what_the_adapter_reads(four):
    """Fails when torch renames what `_issued` and `_sockets` rely on."""

    def names():
        import torch
        from torch._C._distributed_c10d import _dump_fr_trace_json
        from torch.utils._python_dispatch import TorchDispatchMode

        from coursekit.measure._issued import _book, _book_length

        assert issubclass(TorchDispatchMode, object)
        assert callable(_dump_fr_trace_json)
        before = _book_length()
        dist.all_reduce(torch.ones(3))  # noqa: F821
        known = {n.split("::")[1] for n in torch._C._dispatch_get_all_op_names() if "c10d::" in n}
        return before, _book()[-1], sorted(known)

    before, entry, known = four.run(names)[0]
    assert entry["record_id"] == before
    assert recorded(entry) == Call("all_reduce", 12)
    told = {plain(name) for name in known}
    assert {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "send"} <= told
    assert {"all_to_all", "recv", "gather", "scatter", "barrier"} <= told


@pytest.mark.needs("mpirun")
def test_mpi_in_shared_memory_says_why_there_is_no_wire():
    with Ranks(2, launcher="mpi") as ranks:
        seen = traffic(ranks, lambda: comm.allreduce(1))  # noqa: F821
    assert seen.wire is None
    assert "shared memory" in repr(seen)
    with pytest.raises(MeasureError, match="OMPI_MCA_btl=self,tcp"):
        seen.sent(0)


@pytest.mark.needs("mpirun")
def test_mpi_over_tcp_is_counted(monkeypatch):
    def work():
        import numpy as np

        comm.Allreduce(np.ones(MIB // 8), np.empty(MIB // 8))  # noqa: F821

    monkeypatch.setenv("OMPI_MCA_btl", "self,tcp")
    with Ranks(2, launcher="mpi") as ranks:
        seen = traffic(ranks, work)
    assert seen.per_rank == pytest.approx(MIB, rel=0.02)


def test_a_missing_ss_says_what_to_install():
    with Ranks(2, backend="gloo") as ranks:
        ranks.cell("import shutil\nshutil.which = lambda *a, **k: None")
        with pytest.raises(MeasureError, match="apt-get install iproute2"):
            traffic(ranks, lambda: None)
        assert traffic(ranks, lambda: 1, wire=False).results == [1, 1]


SS = """\
ESTAB 0 0 127.0.0.1:5000 127.0.0.1:6000 timer:(on,184ms,0) ino:11 sk:5 cgroup:/ <->
\t ts sack bytes_sent:130 bytes_retrans:30 bytes_acked:101 bytes_received:7 segs_out:9
ESTAB 0 0 [::ffff:10.0.0.1]:5001 [::ffff:10.0.0.2]:6001 ino:12 sk:6
\t ts bytes_acked:55 bytes_received:8
ESTAB 0 0 127.0.0.1%lo:5002 127.0.0.1:29500 ino:13 sk:7
\t ts bytes_sent:9
ESTAB 0 0 127.0.0.1:5003 127.0.0.1:6003 ino:14 sk:7
\t ts bytes_sent:9
"""


def test_the_output_of_ss_is_read():
    got = dict(parse(SS, {"11", "12", "13"}, "here", 29500))
    assert got == {
        ("here 127.0.0.1:5000", "here 127.0.0.1:6000"): Counters(100, 7),
        (" 10.0.0.1:5001", " 10.0.0.2:6001"): Counters(55, 8),
    }


def test_ends_are_joined_to_pairs_of_ranks():
    before = [Reading(1, {("a", "b"): Counters(10, 5)}), Reading(2, {("b", "a"): Counters(5, 10)})]
    mine = {("a", "b"): Counters(110, 25), ("c", "d"): Counters(7, 0), ("e", "x"): Counters(99, 9)}
    theirs = {("b", "a"): Counters(25, 110), ("d", "c"): Counters(0, 6)}
    after = [Reading(1, mine), Reading(2, theirs)]
    sent, received = between(before, after)
    assert sent.tolist() == [[0, 107], [20, 0]]
    assert received.tolist() == [[0, 106], [20, 0]]
    assert closed_between(before, after) == 0
    assert closed_between(after, before) == 1


def test_the_table_names_ranks_and_has_units(four):
    seen = traffic(four, all_reduce, MIB, 1)
    lines = repr(seen).splitlines()
    assert "MiB on the wire" in lines[0]
    assert lines[1].split()[-1] == "sent"
    assert [line.split()[:2] for line in lines[2:6]] == [["rank", str(r)] for r in range(4)]
    assert "6.0 MiB" in lines[2]
    assert lines[6] == "issued by every rank: 1 x all_reduce of 4.0 MiB"
    assert "<th>rank 3</th>" in seen._repr_html_()


def test_no_such_rank(four):
    with pytest.raises(MeasureError, match="from 0 to 3, got 4"):
        traffic(four, lambda: None).sent(4)


@pytest.mark.parametrize(
    ("amount", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 30, "3.0 GiB")]
)
def test_units(amount, text):
    assert human(amount) == text


def test_equal_calls_are_counted_together():
    calls = [Call("send", 8), Call("recv", 8), Call("send", 8)]
    assert summary(calls) == [Issued("send", 8, 2), Issued("recv", 8, 1)]
