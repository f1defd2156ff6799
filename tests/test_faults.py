"""Faults on real ranks end in reports that name the right rank; links have their speeds."""

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from coursekit import Ranks, faults, schedule
from coursekit.faults import FaultsError
from coursekit.ranks import First, RankDied, RankFailed, RanksHung, RanksStartError, RanksUsageError

from .ranks_help import ROOT, all_reduce_works, clean_ranks, gone

BAD = 2


@pytest.fixture(scope="module")
def ranks():
    with clean_ranks(4, backend="gloo") as four:
        yield four


@pytest.fixture
def usable(ranks):
    yield ranks
    assert all_reduce_works(ranks)
    assert ranks.run(hooks) == [0] * ranks.size


def hooks():
    """How many of torch's methods are not torch's own."""
    return sum("hooked" in repr(m).lower() for m in vars(dist.ProcessGroup).values())  # noqa: F821


def step():
    x = torch.ones(8)  # noqa: F821
    for _ in range(4):
        dist.all_reduce(x)  # noqa: F821
    dist.broadcast(x, 0)  # noqa: F821
    dist.barrier()  # noqa: F821
    return x[0].item()


def failing(ranks, fault, kind, job=step, timeout=2.5):
    with pytest.raises(kind) as caught, faults.inject(ranks, fault):
        ranks.run(job, timeout=timeout)
    return caught.value


# -- faults ---------------------------------------------------------------------


def test_a_skipped_call_leaves_the_rank_one_call_ahead(usable):
    error = failing(usable, faults.skip(BAD, nth=3), RanksHung)
    assert error.culprits == [BAD]
    assert [s.op for s in error.stands] == ["all_reduce", "all_reduce", "broadcast", "all_reduce"]


def test_a_rank_without_data_has_finished(usable):
    error = failing(usable, faults.uneven_data(BAD, nth=3), RanksHung)
    assert error.culprits == [BAD]
    assert error.stands[BAD].state == "finished"
    assert f"rank {BAD} finished the call and never entered all_reduce" in str(error)


def test_a_wrong_order_of_two_operations_hangs(usable):
    error = failing(usable, faults.wrong_order(BAD, nth=4), RanksHung)
    assert error.culprits == [BAD]
    assert error.stands[BAD].op == "broadcast"


def test_a_wrong_order_of_two_alike_ends_well_and_wrong(usable):
    def two():
        x, y = torch.ones(4), torch.full((4,), 10.0)  # noqa: F821
        dist.all_reduce(x)  # noqa: F821
        dist.all_reduce(y)  # noqa: F821
        return x[0].item(), y[0].item()

    assert usable.run(two) == [(4, 40)] * 4
    with faults.inject(usable, faults.wrong_order(BAD)):
        assert usable.run(two) == [(13, 31), (13, 31), (31, 13), (13, 31)]


def test_a_wrong_size_is_shown_beside_the_right_one(usable):
    error = failing(usable, faults.wrong_size(BAD, nth=2), (RankDied, RankFailed))
    assert f"rank {BAD} all_reduce of float32[16]" in str(error)
    assert f"Look at rank {BAD} first" in str(error)


def test_a_wrong_dtype_is_shown_beside_the_right_one(usable):
    error = failing(usable, faults.wrong_dtype(BAD, nth=2), (RankDied, RankFailed))
    assert f"rank {BAD} all_reduce of float64[8]" in str(error)
    assert f"Look at rank {BAD} first" in str(error)


def test_a_dtype_of_the_same_width_is_not_noticed(usable):
    with faults.inject(usable, faults.wrong_dtype(BAD, dtype="int32")):
        assert usable.run(step, timeout=10) != [4.0**4] * 4


def test_a_call_in_another_group_is_told(usable):
    error = failing(usable, faults.wrong_group(BAD, nth=2), RanksHung)
    assert error.culprits == [BAD]
    assert f"rank {BAD} is in all_reduce of the group [2, 3]" in str(error)


def test_a_crash_is_the_root_cause(usable):
    error = failing(usable, faults.crash(BAD, nth=2), RankFailed)
    assert (error.rank, error.type_name) == (BAD, "InjectedError")
    assert "in step" in str(error)
    assert "coursekit/faults" not in str(error)


def test_a_killed_rank_is_replaced_alone(usable):
    before = usable.pids
    error = failing(usable, faults.kill(BAD, nth=2), RankDied)
    assert (error.rank, error.signal) == (BAD, "SIGKILL")
    changed = [r for r in range(4) if usable.pids[r] != before[r]]
    assert changed == [BAD]


def test_a_stopped_rank_goes_on_afterwards(usable):
    before = usable.pids
    error = failing(usable, faults.stop(BAD, nth=2), RanksHung)
    assert error.culprits == [BAD]
    assert "SIGSTOP" in str(error)
    assert usable.pids == before


def test_a_straggler_is_outside_the_collective_that_waits_for_it(usable):
    error = failing(usable, faults.straggler(BAD, 30, nth=3), RanksHung)
    assert error.culprits == [BAD]
    assert error.stands[BAD].state == "running"
    assert "has not entered all_reduce" in str(error)


def test_a_straggler_with_time_enough_changes_nothing(usable):
    with faults.inject(usable, faults.straggler(BAD, 0.02)):
        assert usable.run(step) == [4.0**4] * 4


def test_only_calls_of_one_name_count_where_that_is_asked(usable):
    error = failing(usable, faults.crash(BAD, op="broadcast"), RankFailed)
    assert "crashes in its broadcast" in str(error)


def test_messages_are_calls_too(usable):
    def ring():
        x, y = torch.ones(3), torch.ones(3)  # noqa: F821
        sent = dist.isend(x, (rank + 1) % size)  # noqa: F821
        dist.recv(y, (rank - 1) % size)  # noqa: F821
        sent.wait()

    error = failing(usable, faults.skip(BAD, op="send"), RanksHung, ring)
    assert error.culprits == [BAD]
    assert error.stands[3].peer == BAD


def test_the_courses_own_algorithms_are_hit_too(usable):
    plan = schedule.build("all_reduce", "ring", 4)
    error = failing(usable, faults.crash(BAD, nth=5), RankFailed, lambda: execute_it(plan))
    assert error.rank == BAD


def execute_it(plan):
    import torch

    from coursekit.comm import connect, execute

    comm = connect()
    return execute(plan, comm, torch.full((1 << 16,), float(comm.rank)))[0].item()


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="needs root on Linux")
def test_full_shared_memory_is_full_on_one_rank_and_only_for_the_block(usable):
    def share():
        x = torch.ones(1 << 16).share_memory_()  # noqa: F821
        dist.all_reduce(x)  # noqa: F821
        return x[0].item()

    error = failing(usable, faults.full_shared_memory(BAD), RankFailed, share)
    assert error.rank == BAD
    assert "No space left on device" in str(error)
    assert usable.run(share) == [4.0] * 4


def test_two_faults_at_once_and_none_afterwards(usable):
    with faults.inject(usable, faults.straggler(0, 0.01), faults.straggler(3, 0.01)):
        usable.run(step)
    assert usable.run(step) == [4.0**4] * 4


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: faults.skip(-1), "rank must be a whole number from 0 up, got -1"),
        (lambda: faults.skip(1, nth=0), "nth must be a whole number from 1 up, got 0"),
        (lambda: faults.straggler(1, "2"), "seconds must be a number from 0 up, got '2'"),
        (lambda: faults.wrong_dtype(1, dtype="f4"), "dtype must be one of float16"),
    ],
)
def test_a_fault_that_cannot_be_is_refused(make, told):
    with pytest.raises(FaultsError, match=told):
        make()


def test_a_rank_that_is_not_there_is_refused(usable):
    with (
        pytest.raises(FaultsError, match="from 0 to 3, got 4"),
        faults.inject(usable, faults.skip(4)),
    ):
        pass
    with pytest.raises(FaultsError, match="inject needs ranks and faults"), faults.inject(usable):
        pass


# -- rates ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("100 Mbit/s", 100_000_000),
        ("1.5 GB/s", 12_000_000_000),
        ("20Mbps", 20_000_000),
        ("8 kB/s", 64_000),
        ("1 MiB/s", 8 << 20),
        ("1 Gb/s", 1_000_000_000),
    ],
)
def test_rates(text, bits):
    assert faults.parse_rate(text) == bits


@pytest.mark.parametrize("text", ["fast", "100", "100 M", "Mbit/s", "-1 Mbit/s", 100, ""])
def test_what_is_no_rate_is_refused(text):
    with pytest.raises(FaultsError, match="must be a number and a unit per second, got"):
        faults.parse_rate(text)


@pytest.mark.parametrize("text", ["0 Mbit/s", "1 bit/s", "1000 GB/s"])
def test_a_rate_out_of_reach_is_refused(text):
    with pytest.raises(FaultsError, match="between 8 kbit/s and 400 Gbit/s"):
        faults.parse_rate(text)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"size": 1}, "from 2 to 64 ranks, got 1"),
        ({"size": 4, "slow": {(0, 4): "1 Mbit/s"}}, r"got \(0, 4\)"),
        ({"size": 4, "blocked": {(1, 1)}}, r"got \(1, 1\)"),
        ({"size": 4, "way": "magic"}, "way must be one of auto"),
        ({"size": 4, "lossy": {(0, 1): 2}}, "at most 1, got 2"),
        ({"size": 4, "late": {(0, 1): 0.1}, "way": "paced"}, "late and lossy"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(given, told):
    with pytest.raises(FaultsError, match=told):
        faults.cluster(**given)


# -- links ----------------------------------------------------------------------------


def lacking(reason):
    """As `needs` has it: a missing ability skips, and fails in CI."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def made(size, *args, **options):
    try:
        return faults.cluster(size, *args, **options)
    except FaultsError as error:
        lacking(str(error))


ROOT_WAY = ["root"] if sys.platform == "linux" and os.geteuid() == 0 else []
REAL = [*ROOT_WAY, "user", "tun"]


def timed(plan):
    import time

    import torch
    import torch.distributed as dist

    from coursekit.comm import connect, execute

    comm, x = connect(), torch.full((1 << 20,), float(dist.get_rank()))
    dist.barrier()
    began = time.perf_counter()
    execute(plan, comm, x)
    dist.barrier()
    return time.perf_counter() - began, x[-1].item()


@pytest.mark.parametrize("way", [*REAL, "paced"])
def test_a_ring_round_a_slow_pair_keeps_off_it(way):
    size, around = 8, [0, 1, 2, 3, 7, 4, 5, 6]
    ring = schedule.build("all_reduce", "ring", size)
    with made(size, "200 Mbit/s", slow={(0, 7): "20 Mbit/s"}, way=way) as cluster:
        print(cluster)
        for plan, crosses in ((ring, True), (ring.relabel(around), False)):
            bytes_, packets = cluster.bytes(), cluster.packets()
            results = cluster.ranks.run(timed, plan)
            sent, said = cluster.bytes() - bytes_, plan.matrix(1 << 20, 4)
            sent = sent - cluster.headers * (cluster.packets() - packets)
            assert [value for _, value in results] == [28.0] * size
            # Gloo's own headers and the two barriers are beside it.
            assert ((sent >= said) & (sent <= said + 4096)).all(), sent - said
            assert (said[7, 0] > 0) == crosses
            print(f"{max(t for t, _ in results) * 1e3:.0f} ms, {int(sent[7, 0])} bytes from 7 to 0")


@pytest.mark.parametrize("way", [*REAL, "paced"])
def test_a_blocked_link_is_named_by_its_two_ends(way):
    ring = schedule.build("all_reduce", "ring", 4)
    with made(4, "500 Mbit/s", blocked={(2, 3)}, way=way) as cluster:
        pids = cluster.ranks.pids
        for _ in range(2):
            with pytest.raises(RanksHung) as caught:
                cluster.ranks.run(execute_it, ring, timeout=2.5)
            assert caught.value.culprits == [2, 3]
            assert "nothing passes between rank 2 and rank 3" in str(caught.value)
        around = ring.relabel([0, 2, 1, 3])
        assert cluster.ranks.run(execute_it, around, timeout=20) == [6.0] * 4
        cluster.unblock(2, 3)
        assert cluster.ranks.run(execute_it, ring, timeout=20) == [6.0] * 4
        assert cluster.ranks.pids == pids


def test_a_late_link_takes_longer_there_and_back():
    def ping():
        import time

        x = torch.ones(1)  # noqa: F821
        dist.barrier()  # noqa: F821
        began = time.perf_counter()
        if rank == 0:  # noqa: F821
            dist.send(x, 1)  # noqa: F821
            dist.recv(x, 1)  # noqa: F821
        else:
            dist.recv(x, 0)  # noqa: F821
            dist.send(x, 0)  # noqa: F821
        return time.perf_counter() - began

    with made(2, late={(0, 1): 0.05}) as cluster:
        print(cluster)
        took = cluster.ranks.run(ping)[0]
        print(f"{took * 1e3:.1f} ms")
        assert took >= 0.1  # no load makes a delay shorter


def test_what_a_lossy_link_loses_is_sent_again():
    plan = schedule.build("all_reduce", "ring", 2)
    with made(2, "200 Mbit/s", lossy={(0, 1): 0.1}) as cluster:
        print(cluster)
        before, packets = cluster.bytes(), cluster.packets()
        results = cluster.ranks.run(timed, plan)
        sent = cluster.bytes() - before - cluster.headers * (cluster.packets() - packets)
        assert [value for _, value in results] == [1.0, 1.0]
        again = sent[0, 1] - plan.matrix(1 << 20, 4)[0, 1]
        print(f"{again} bytes again, {results[0][0] * 1e3:.0f} ms")
        assert again > 50_000


def test_gloos_own_collective_over_a_blocked_link_is_told_too():
    with made(4, "500 Mbit/s", way=REAL[0]) as cluster:
        cluster.block(1, 2)

        def library():
            x = torch.ones(1 << 18)  # noqa: F821
            dist.all_reduce(x)  # noqa: F821

        with pytest.raises(RanksHung) as caught:
            cluster.ranks.run(library, timeout=2.5)
        assert caught.value.culprits == [1, 2]


@pytest.mark.parametrize("way", [*REAL, "paced"])
def test_ranks_of_a_cluster_are_ranks_like_others(way):
    with made(3, "1 Gbit/s", way=way) as cluster:
        ranks = cluster.ranks
        assert isinstance(ranks, Ranks)
        assert all_reduce_works(ranks)
        with pytest.raises(RankDied), faults.inject(ranks, faults.kill(1)):
            ranks.run(step, timeout=5)
        assert all_reduce_works(ranks)
        ranks.restart()
        ranks.cell("x = torch.ones(2)\ndist.all_reduce(x)")
        assert ranks.run(lambda: x.tolist()) == [[3.0, 3.0]] * 3  # noqa: F821
        cluster.set_rate(0, 1, "50 Mbit/s")
        assert "0-1 50 Mbit/s" in repr(cluster)
        if way != "paced":
            assert ranks.run(interfaces) == [["eth0", "lo"]] * 3


def interfaces():
    import socket

    return sorted(name for _, name in socket.if_nameindex())


def test_a_site_is_for_local_ranks_only():
    with pytest.raises(RanksUsageError, match="a site is for ranks that are forked here"):
        Ranks(2, launcher="attach", site=object())


# -- nothing is left ---------------------------------------------------------------


def networks():
    """The network namespaces in which some process is."""
    found = set()
    for process in psutil.process_iter():
        try:
            found.add(os.readlink(f"/proc/{process.pid}/ns/net"))
        except OSError:
            continue
    return found


def inside(cluster):
    """A cluster's network namespaces, its keeper's process and its ranks'."""
    pids = [*cluster.ranks.pids, *cluster._site.pids]
    return {os.readlink(f"/proc/{p}/ns/net") for p in pids}, pids


def links():
    return sorted(psutil.net_if_addrs())


@pytest.mark.parametrize("way", REAL)
def test_nothing_is_left_after_the_block(way):
    before = links()
    with made(3, way=way) as cluster:
        nets, pids = inside(cluster)
        assert len(nets) == 4
        assert links() == before
    assert gone(pids) == []
    assert not nets & networks()
    assert cluster.ranks.closed


@pytest.mark.parametrize("way", REAL)
def test_nothing_is_left_after_an_exception(way):
    def fails():
        with made(2, way=way) as cluster:
            seen.extend(inside(cluster))
            raise KeyError("mine")

    seen = []
    with pytest.raises(KeyError):
        fails()
    nets, pids = seen
    assert gone(pids) == []
    assert not nets & networks()


def test_nothing_is_left_where_ranks_do_not_start(monkeypatch):
    from coursekit.faults._namespaces import Namespaces

    def nowhere(self, rank):
        return First("coursekit.faults._keeper", "enter", (["/nowhere"],))

    before = {c.pid for c in psutil.Process().children(recursive=True) if "_keeper" in line(c)}
    monkeypatch.setattr(Namespaces, "first", nowhere)
    with pytest.raises(RanksStartError, match="/nowhere"):
        made(2, way=REAL[0])
    after = {c.pid for c in psutil.Process().children(recursive=True) if "_keeper" in line(c)}
    assert after <= before


def line(process):
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


SCRIPT = """
    import os, time
    from coursekit import faults
    cluster = faults.cluster(3, way={way!r})
    pids = [*cluster.ranks.pids, *cluster._site.pids]
    nets = [os.readlink(f"/proc/{{p}}/ns/net") for p in pids]
    print(len(pids), *pids, *nets, flush=True)
    {then}
"""


@pytest.mark.parametrize(
    "then",
    ["time.sleep(60)", "cluster.ranks.cell('if rank: dist.barrier()', timeout=60)"],
    ids=["idle", "in a collective"],
)
@pytest.mark.parametrize("way", REAL)
def test_nothing_is_left_when_the_notebook_is_killed(way, then):
    made(2, way=way).close()
    before = links()
    child, pids, nets = started(way, then)
    time.sleep(0.3)
    child.kill()
    child.wait()
    child.stdout.close()
    assert gone(pids, 5) == []
    assert not nets & networks()
    assert links() == before


def started(way, then):
    code = textwrap.dedent(SCRIPT).format(way=way, then=then)
    child = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    count, *words = child.stdout.readline().split()
    return child, [int(w) for w in words[: int(count)]], set(words[int(count) :])


def test_a_stopped_keeper_does_not_outlive_the_notebook():
    made(2, way=REAL[0]).close()
    child, pids, _ = started(REAL[0], "time.sleep(60)")
    os.kill(pids[-1], signal.SIGSTOP)
    child.kill()
    child.wait()
    child.stdout.close()
    assert gone(pids, 5) == []


def test_files_of_a_killed_notebook_are_removed_at_the_next_start():
    child, _, _ = started("paced", "time.sleep(60)")
    pattern = f"coursekit-links-{child.pid}-*"
    child.kill()
    child.wait()
    child.stdout.close()
    folder = Path(tempfile.gettempdir())
    assert len(list(folder.glob(pattern))) == 1
    with faults.cluster(2, way="paced") as cluster:
        assert list(folder.glob(pattern)) == []
        assert cluster._site.path.exists()
    assert not cluster._site.path.exists()


def test_what_works_here_is_said():
    with faults.cluster(2) as cluster:
        assert cluster.how.startswith(("a network namespace", "paced sends"))
        print(cluster.how)


def test_a_cluster_outlives_the_thread_that_made_it():
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as aside:
        cluster = aside.submit(made, 2, way=REAL[0]).result()
    with cluster:
        assert all_reduce_works(cluster.ranks)
        assert cluster.bytes()[0, 1] > 0


def test_the_links_as_a_topology_lead_the_ring_off_the_slow_pair():
    from coursekit import topology

    pair = {(0, 3): "20 Mbit/s"}
    with faults.cluster(4, "200 Mbit/s", slow=pair, blocked={(1, 2)}, way="paced") as cluster:
        links = cluster.topology()
    assert links.between(0, 1) == 200e6 / 8
    assert links.between(3, 0) == 20e6 / 8
    assert links.between(1, 2) == 1
    assert topology.best_ring(links).ranks == (0, 1, 3, 2)
