"""Every way in which ranks fail, really provoked: named, survived, nothing left behind."""

import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time

import psutil
import pytest

from coursekit import Ranks
from coursekit.ranks import RankDied, RankFailed, RanksHung, RanksInterrupted

from .ranks_help import ROOT, all_reduce_works, clean_ranks, folder_of, gone

RAISE = "if rank == 1:\n    raise ValueError('mine')\ndist.barrier()"
SKIP = "if rank != 2:\n    dist.all_reduce(torch.ones(3))"
SHAPES = "dist.all_reduce(torch.ones(3 + 100 * (rank == 1)))"
KILL = "import os\nif rank == 3:\n    os.kill(os.getpid(), 9)\ndist.barrier()"
STOP = "import os\nif rank == 3:\n    os.kill(os.getpid(), 19)\ndist.barrier()"
EXIT = "import sys\nif rank == 0:\n    sys.exit(3)\ndist.barrier()"
HARD_EXIT = "import os\nif rank == 0:\n    os._exit(3)\ndist.barrier()"
ORDER = (
    "x = torch.ones(2)\nif rank == 1:\n    dist.broadcast(x, 0)\n"
    "else:\n    dist.all_reduce(x)\ndist.barrier()"
)
RING = "dist.recv(torch.ones(2), (rank + 1) % size)"


@pytest.fixture(scope="module")
def ranks():
    with clean_ranks(4) as four:
        yield four


@pytest.fixture(autouse=True)
def usable_afterwards(ranks):
    yield
    assert all_reduce_works(ranks)


def failing(ranks, cell, kind, timeout=1.5):
    with pytest.raises(kind) as caught:
        ranks.cell(cell, timeout=timeout)
    return caught.value


def test_a_raise_names_the_rank_and_shows_its_traceback_first(ranks):
    ranks.push(kept=5)
    error = failing(ranks, RAISE, RankFailed)
    first, *rest = str(error).splitlines()
    assert first == "rank 1 raised ValueError"
    assert (error.rank, error.type_name) == (1, "ValueError")
    assert "Cell In[ranks], line 2" in str(error)
    assert "raise ValueError('mine')" in str(error)
    for other in (0, 2, 3):
        assert sum(line.startswith(f"rank {other} was in barrier") for line in rest) == 1
    assert "coursekit/ranks" not in str(error)
    assert ranks.pull("kept") == [5] * 4


def test_a_mistake_on_every_rank_keeps_the_process_group(ranks):
    ranks.cell("group = dist.new_group([0, 1])")
    error = failing(ranks, "1 / 0", RankFailed)
    assert "made anew" not in str(error)
    ranks.cell("if rank < 2: dist.barrier(group=group)")


def test_the_cause_of_an_exception_is_shown(ranks):
    error = failing(
        ranks,
        "try:\n    {}['k']\nexcept KeyError as e:\n    raise ValueError('no k') from e",
        RankFailed,
    )
    assert "KeyError: 'k'" in str(error)
    assert "direct cause" in str(error)


def test_a_syntax_error_is_shown_with_its_line(ranks):
    error = failing(ranks, "x = 1\ny = = 2", RankFailed)
    assert error.type_name == "SyntaxError"
    assert "y = = 2" in str(error)


def test_sys_exit_is_a_failure_of_that_rank(ranks):
    error = failing(ranks, EXIT, RankFailed)
    assert (error.rank, error.type_name) == (0, "SystemExit")


def test_a_kill_is_named_with_its_signal(ranks):
    ranks.push(kept=1)
    error = failing(ranks, KILL, RankDied)
    assert (error.rank, error.signal) == (3, "SIGKILL")
    assert "out-of-memory" in str(error)
    assert "rank 3 was started again; the variables" in str(error)
    assert "kept" in str(error)
    assert ranks.pull("kept", on=[0, 1, 2]) == [1, 1, 1]


def test_a_hard_exit_is_named_with_its_code(ranks):
    error = failing(ranks, HARD_EXIT, RankDied)
    assert (error.rank, error.signal, error.exitcode) == (0, None, 3)


def test_mismatched_shapes_are_told_by_rank(ranks):
    error = failing(ranks, SHAPES, (RankDied, RankFailed))
    assert "float32[103]" in str(error) or error.rank == 1
    assert "all_reduce" in str(error)


def test_a_skipped_collective_names_the_rank_that_never_came(ranks):
    error = failing(ranks, SKIP, RanksHung)
    assert error.culprits == [2]
    assert "rank 2 finished the call and never entered all_reduce" in str(error)
    assert "waits for rank 2" in str(error)
    assert "every rank's variables were kept" in str(error)


def test_a_rank_that_lags_is_shown_at_its_line(ranks):
    lag = "import time\nif rank == 1:\n    time.sleep(30)\ndist.barrier()"
    error = failing(ranks, lag, RanksHung)
    assert error.culprits == [1]
    assert "time.sleep(30)" in str(error)


def test_a_stopped_rank_is_named(ranks):
    error = failing(ranks, STOP, RanksHung)
    assert error.culprits == [3]
    assert "SIGSTOP" in str(error)


def test_different_collectives_are_told_apart(ranks):
    error = failing(ranks, ORDER, (RanksHung, RankFailed, RankDied))
    if isinstance(error, RanksHung):
        assert "rank" in str(error)
        assert {s.op for s in error.stands} & {"all_reduce", "broadcast", "barrier"}


def test_a_ring_of_receives_is_a_named_deadlock(ranks):
    error = failing(ranks, RING, RanksHung)
    assert "deadlock: 0 -> 1 -> 2 -> 3 -> 0" in str(error)


def test_an_endless_loop_ends_at_the_timeout(ranks):
    error = failing(ranks, "while rank == 0:\n    pass", RanksHung)
    assert error.culprits == [0]


def test_a_loop_that_swallows_interrupts_is_killed(ranks):
    stubborn = (
        "import signal\nif rank == 0:\n    signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "    while True:\n        pass"
    )
    error = failing(ranks, stubborn, RanksHung)
    assert "rank 0 was started again" in str(error)


def test_a_death_between_two_calls_is_told_at_the_next(ranks):
    os.kill(ranks.pids[2], signal.SIGKILL)
    ranks._session.wait_until(ranks._session.dead, 5)
    with pytest.raises(RankDied, match=r"rank 2 killed by SIGKILL") as caught:
        ranks.run(lambda: None)
    assert "between two calls" in str(caught.value)
    assert "rank 2 was started again" in str(caught.value)


def test_an_interrupt_stops_ranks_that_compute_and_keeps_variables(ranks):
    ranks.push(kept=7)
    with pytest.raises(RanksInterrupted, match="variables were kept"):
        interrupted(ranks, "import time\ntime.sleep(60)")
    assert ranks.pull("kept") == [7] * 4


def test_an_interrupt_stops_ranks_in_a_collective(ranks):
    ranks.push(kept=8)
    with pytest.raises(RanksInterrupted, match="variables were kept"):
        interrupted(ranks, "if rank: dist.barrier()")
    assert ranks.pull("kept") == [8] * 4


def interrupted(ranks, cell, after=0.5):
    timer = threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        ranks.cell(cell, timeout=30)
    finally:
        timer.cancel()


def test_errors_show_no_frames_of_the_package(ranks):
    error = failing(ranks, "1 / 0", RankFailed)
    assert error._render_traceback_()[0].startswith("RankFailed: rank")
    assert not any("coursekit" in line for line in error._render_traceback_())


def test_an_impatient_user_interrupts_twice(ranks):
    ranks.push(kept=9)
    again = threading.Timer(0.6, os.kill, (os.getpid(), signal.SIGINT))
    again.start()
    with pytest.raises(KeyboardInterrupt):
        interrupted(ranks, "if rank: dist.barrier()")
    again.join()
    assert ranks.pull("kept") == [9] * 4


@pytest.mark.parametrize(
    "cell",
    [
        "class Odd(Exception):\n    def __str__(self): raise RuntimeError\nraise Odd",
        "class Closed(Exception):\n    def __init__(self, a, b): pass\nraise Closed(1, 2)",
        "class Bad:\n    def __repr__(self): return 1 / 0\nBad()",
        "raise ExceptionGroup('several', [ValueError('a'), KeyError('b')])",
        "def deep(): return deep()\ndeep()",
        "raise KeyboardInterrupt",
        "raise BaseException('base')",
    ],
)
def test_no_exception_is_too_odd_to_be_told(ranks, cell):
    assert failing(ranks, cell, RankFailed, timeout=10).rank == 0


def test_code_that_breaks_its_own_output_does_not_break_the_rank(ranks):
    ranks.cell("import sys\nout, sys.stdout = sys.stdout, 3")
    ranks.cell("sys.stdout = out")


def test_a_fork_of_a_rank_does_not_answer_for_it(ranks):
    ranks.cell("import os\nchild = os.fork()\nif child: os.waitpid(child, 0)")
    assert ranks.run(os.getpid) == ranks.pids


def test_a_fork_of_the_notebook_is_told_that_the_ranks_are_not_its_own(ranks):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            ranks.run(print)
        except BaseException as error:
            os.write(write, str(error).encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as pipe:
        assert "belong to the process that made them" in pipe.read()


def test_what_a_rank_started_ends_with_it():
    with clean_ranks(2) as two:
        two.cell(
            "import subprocess\n"
            "child = subprocess.Popen(['sleep', '600'])\n"
            "away = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
            "pids = [child.pid, away.pid]"
        )
        started = [pid for pair in two.pull("pids") for pid in pair]
        assert all(psutil.pid_exists(p) for p in started)
    assert gone(started) == []


SCRIPT = """
    import sys, time
    from coursekit import Ranks
    ranks = Ranks(3)
    from coursekit.ranks._server_client import fork_server
    print(*ranks.pids, fork_server().pid, ranks._launcher.folder, flush=True)
    {then}
"""


def start_script(then):
    code = textwrap.dedent(SCRIPT).format(then=then)
    child = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    *pids, folder = child.stdout.readline().split()
    return child, [int(p) for p in pids], folder


@pytest.mark.parametrize(
    "then",
    ["time.sleep(60)", "ranks.cell('if rank: dist.barrier()', timeout=60)"],
    ids=["idle", "in a collective"],
)
def test_nothing_is_left_when_the_notebook_is_killed(then):
    child, pids, folder = start_script(then)
    time.sleep(0.3)
    child.kill()
    child.wait()
    child.stdout.close()
    assert gone(pids) == []
    assert not os.path.exists(folder)


def test_nothing_is_left_when_a_script_forgets_to_close():
    child, pids, folder = start_script("sys.exit(0)")
    assert child.wait(10) == 0
    child.stdout.close()
    assert gone(pids) == []
    assert not os.path.exists(folder)


def test_ranks_end_when_the_fork_server_is_killed_and_new_ones_can_be_made(ranks):
    # In a process of its own: the other tests need this process's server.
    code = """
        import os, time
        from coursekit import Ranks
        from coursekit.ranks import RanksError
        from coursekit.ranks._server_client import fork_server
        ranks = Ranks(2)
        pids, folder = ranks.pids, ranks._launcher.folder
        os.kill(fork_server().pid, 9)
        time.sleep(0.3)
        try:
            ranks.run(lambda: dist.barrier())
        except RanksError as error:
            print(type(error).__name__)
        ranks.close()
        time.sleep(0.3)
        print(Ranks(2).run(lambda: rank))
        print(*pids, folder)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    error, works, left = done.stdout.splitlines()
    *pids, folder = left.split()
    assert error in ("RankDied", "RanksError", "RanksStartError")
    assert works == "[0, 1]"
    assert gone([int(p) for p in pids]) == []
    assert not os.path.exists(folder)


FAULTS = {
    RAISE: RankFailed, KILL: RankDied, STOP: RanksHung, SKIP: RanksHung, RING: RanksHung,
    SHAPES: (RankDied, RankFailed), HARD_EXIT: RankDied, EXIT: RankFailed,
}  # fmt: skip


def fail_once(ranks, fault):
    """Provoke one fault; return the processes that it brought along."""
    if fault == "interrupt":
        with pytest.raises(RanksInterrupted):
            interrupted(ranks, "if rank: dist.barrier()", after=0.1)
    elif fault == "kill the notebook":
        child, pids, folder = start_script("ranks.cell('if rank: dist.barrier()', timeout=60)")
        child.kill()
        child.wait()
        child.stdout.close()
        assert gone(pids) == []
        assert not os.path.exists(folder)
        return pids
    else:
        with pytest.raises(FAULTS[fault]):
            ranks.cell(fault, timeout=0.3)
    return ranks.pids


def test_fifty_mixed_failures_leave_nothing():
    every = [*FAULTS, "interrupt", "kill the notebook"]
    rounds = [*every, *random.Random(7).choices(every, k=50 - len(every))]
    ranks = Ranks(4)
    folder, seen = folder_of(ranks), set(ranks.pids)
    before = psutil.Process().num_fds()
    try:
        for fault in rounds:
            seen |= set(fail_once(ranks, fault))
            assert all_reduce_works(ranks)
        after = psutil.Process().num_fds()
    finally:
        ranks.close()
    assert gone(sorted(seen)) == []
    assert not os.path.exists(folder)
    assert after <= before + 4
