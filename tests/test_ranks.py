"""Real ranks: what goes in, what comes out, what persists."""

import concurrent.futures
import importlib
import sys
import threading
import time

import numpy as np
import pytest
import torch

from coursekit import Ranks
from coursekit.ranks import RankFailed, RanksUsageError, current

from .ranks_help import all_reduce_works, clean_ranks


@pytest.fixture(scope="module")
def ranks():
    with clean_ranks(4) as four:
        yield four


def test_a_real_collective_over_real_processes(ranks):
    assert len(set(ranks.pids)) == 4
    assert all_reduce_works(ranks)


def test_each_rank_runs_the_function_in_its_own_process(ranks):
    import os

    pids = ranks.run(os.getpid)
    assert pids == ranks.pids
    assert os.getpid() not in pids


def test_on_chooses_ranks_and_their_order(ranks):
    assert ranks.run(lambda: rank, on=[2, 0]) == [2, 0]  # noqa: F821


def test_closures_classes_and_keyword_arguments_travel(ranks):
    base = 10

    class Scaler:
        def __init__(self, k):
            self.k = k

        def __call__(self, x):
            return self.k * x

    def work(scaler, *, plus):
        return scaler(base) + plus + rank  # noqa: F821

    assert ranks.run(work, Scaler(2), plus=1) == [21, 22, 23, 24]
    back = ranks.run(lambda: Scaler(3))
    assert all(isinstance(b, Scaler) and b.k == 3 for b in back)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.arange(6, dtype=torch.float32).reshape(2, 3),
        lambda: torch.arange(6, dtype=torch.bfloat16).reshape(2, 3).t(),
        lambda: torch.tensor([True, False]),
        lambda: torch.zeros(0, 3, dtype=torch.float64),
        lambda: torch.tensor(7, dtype=torch.int64),
        lambda: torch.tensor([1 + 2j, 3 - 1j]).conj(),
    ],
)
def test_tensors_arrive_and_come_back_equal_and_writable(ranks, make):
    sent = make()
    for got in ranks.run(lambda t: t, sent):
        assert got.dtype == sent.dtype
        assert got.shape == sent.shape
        assert torch.equal(got, sent.resolve_conj())
        got.zero_()


def test_arrays_and_nested_values_come_back(ranks):
    def work():
        return {"a": np.arange(3) + rank, "t": [torch.ones(2) * rank]}  # noqa: F821

    got = ranks.run(work)
    assert [g["a"].tolist() for g in got] == [[r, r + 1, r + 2] for r in range(4)]
    assert [g["t"][0].tolist() for g in got] == [[r, r] for r in range(4)]


def test_a_result_larger_than_any_socket_buffer_is_whole(ranks):
    got = ranks.run(lambda: torch.arange(3_000_000) + rank)  # noqa: F821
    assert [int(g[-1]) for g in got] == [2_999_999 + r for r in range(4)]


def test_submit_returns_a_future_for_each_rank(ranks):
    def slow():
        import time

        time.sleep(0.05 * rank)  # noqa: F821
        return rank  # noqa: F821

    futures = ranks.submit(slow)
    concurrent.futures.wait(futures, timeout=10)
    assert [f.result() for f in futures] == [0, 1, 2, 3]


def test_submitted_calls_on_different_ranks_meet(ranks):
    sending = ranks.submit(lambda: dist.send(torch.ones(2), 1), on=[0])  # noqa: F821

    def receive():
        x = torch.zeros(2)
        dist.recv(x, 0)  # noqa: F821
        return x

    assert ranks.run(receive, on=[1])[0].tolist() == [1.0, 1.0]
    sending[0].result(10)


def test_a_failing_submit_sets_the_exception(ranks):
    futures = ranks.submit(lambda: 1 / 0, on=[1])
    with pytest.raises(RankFailed, match="ZeroDivisionError"):
        futures[0].result(10)


def test_names_of_cells_persist_on_each_rank(ranks, capsys):
    ranks.cell("mine = rank * 10\nprint('hello from', rank)\nmine + 1")
    shown = capsys.readouterr().out.splitlines()
    assert shown == [
        line
        for r in range(4)
        for line in (f"[rank {r}] hello from {r}", f"[rank {r}] Out: {r * 10 + 1}")
    ]
    assert ranks.pull("mine") == [0, 10, 20, 30]
    assert ranks.run(lambda: mine) == [0, 10, 20, 30]  # noqa: F821


def test_a_semicolon_hides_the_value(ranks, capsys):
    ranks.cell("rank;")
    assert capsys.readouterr().out == ""


def test_output_of_c_code_is_labelled_too(ranks, capsys):
    ranks.cell(
        "import ctypes, os\nctypes.CDLL(None).puts(b'from C')\nos.write(2, b'raw\\n')\nprint('py')",
        on=[3],
    )
    shown = capsys.readouterr()
    assert shown.out.splitlines() == ["[rank 3] from C", "[rank 3] py"]
    assert shown.err.splitlines() == ["[rank 3] raw"]


def test_push_and_pull(ranks):
    ranks.push(lr=0.5, w=torch.ones(2))
    ranks.push(lr=0.25, on=[1])
    assert ranks.pull("lr") == [0.5, 0.25, 0.5, 0.5]
    lr, w = ranks.pull("lr", "w", on=[0])[0]
    assert (lr, w.tolist()) == (0.5, [1.0, 1.0])
    with pytest.raises(RankFailed, match="no variable 'nothing' on rank"):
        ranks.pull("nothing")


def test_an_edited_module_beside_the_notebook_is_used_as_edited(ranks, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "my_ring.py"
    file.write_text("def answer():\n    return 'old'\n")
    module = importlib.import_module("my_ring")
    assert ranks.run(module.answer, on=[0]) == ["old"]
    file.write_text("def answer():\n    return 'the new one'\n")
    sys.dont_write_bytecode = True
    importlib.reload(module)
    assert ranks.run(module.answer, on=[0]) == ["the new one"]


def test_the_table_shows_every_rank(ranks):
    text, page = repr(ranks), ranks._repr_html_()
    for pid in ranks.pids:
        assert str(pid) in text
        assert f"<td>{pid}</td>" in page
    assert "4 ranks on gloo" in text


def test_the_newest_open_ranks_are_current(ranks):
    with Ranks(1) as one:
        assert current() is one
        with pytest.raises(RanksUsageError):
            Ranks(512, backend="nccl")
        assert current() is one
    assert current() is ranks


def test_environment_and_folder_of_the_notebook_hold_on_the_ranks(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSEKIT_TEST_MARK", "here")
    monkeypatch.chdir(tmp_path)
    with Ranks(1) as one:

        def look():
            import os

            return os.environ["COURSEKIT_TEST_MARK"], os.getcwd()

        assert one.run(look) == [("here", str(tmp_path))]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda r: Ranks(0), "size must be a whole number from 1 up, got 0"),
        (lambda r: Ranks(2.0), "got 2.0"),
        (lambda r: Ranks(True), "got True"),
        (lambda r: Ranks(2, backend="mpi"), "backend must be one of auto, gloo, nccl"),
        (lambda r: Ranks(2, launcher="ssh"), "launcher must be one of local, mpi, attach"),
        (lambda r: Ranks(2, timeout=0), "timeout must be a number of seconds above 0"),
        (lambda r: Ranks(2, host="127.0.0.1"), "belong to launcher='attach'"),
        (lambda r: r.run(3), "run needs a function, got int"),
        (lambda r: r.run(print, on=[4]), "on must name different ranks from 0 to 3, got \\[4\\]"),
        (lambda r: r.run(print, on=[1, 1]), "different ranks"),
        (lambda r: r.run(print, on=[]), "different ranks"),
        (lambda r: r.run(print, threading.Lock()), "can be pickled"),
        (lambda r: r.run(lambda: r.size), "can be pickled"),
        (lambda r: r.push(), "push needs names"),
        (lambda r: r.pull(3), "pull needs names"),
        (lambda r: r.command(), "only attached ranks have a command"),
    ],
)
def test_a_wrong_call_gets_one_clear_error(ranks, call, says):
    with pytest.raises(RanksUsageError, match=says):
        call(ranks)


def test_nccl_without_gpus_says_what_to_do(ranks):
    if torch.cuda.device_count() >= 64:
        pytest.fail("this test needs more ranks than the machine has GPUs")
    with pytest.raises(RanksUsageError, match=r"needs a GPU for every rank.*NCCL 2\.30\.3"):
        Ranks(64, backend="nccl")


def test_a_result_that_cannot_travel_is_a_clear_error(ranks):
    with pytest.raises(
        RankFailed, match="a result must be something that can be pickled, got generator"
    ):
        ranks.run(lambda: (x for x in ()))
    assert all_reduce_works(ranks)


def test_closed_ranks_say_so():
    ranks = Ranks(1)
    ranks.close()
    ranks.close()
    assert "closed" in repr(ranks)
    with pytest.raises(RanksUsageError, match="closed; make new ones"):
        ranks.run(print)


def test_collected_ranks_leave_nothing():
    ranks = Ranks(2)
    pids = ranks.pids
    del ranks
    from .ranks_help import gone

    assert gone(pids) == []


def test_restart_forgets_variables():
    with clean_ranks(2) as two:
        two.push(x=1)
        before = two.pids
        two.restart()
        assert set(two.pids).isdisjoint(before)
        with pytest.raises(RankFailed, match="no variable 'x'"):
            two.pull("x")


def test_two_sets_live_side_by_side():
    with clean_ranks(2) as a, clean_ranks(3) as b:
        assert all_reduce_works(a)
        assert all_reduce_works(b)


def test_a_user_group_and_async_work(ranks):
    def work():
        group = dist.new_group([0, 2])  # noqa: F821
        x = torch.tensor([float(rank)])  # noqa: F821
        if rank in (0, 2):  # noqa: F821
            work = dist.all_reduce(x, group=group, async_op=True)  # noqa: F821
            work.wait()
        return x.item()

    assert ranks.run(work) == [2.0, 1.0, 2.0, 3.0]


def test_gloo_chatter_is_not_shown(ranks, capsys):
    ranks.run(lambda: dist.new_group([0, 1]) and None)  # noqa: F821
    assert "connected to" not in capsys.readouterr().out


def test_the_fork_server_has_one_thread_and_no_cuda():
    import psutil

    from coursekit.ranks._server_client import fork_server

    server = fork_server()
    server.gpus()
    deadline = time.monotonic() + 5
    process = psutil.Process(server.pid)
    while process.num_threads() > 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    # OpenMP's pool is limited to one thread; what is left besides is libgomp's or none.
    assert process.num_threads() <= 2
