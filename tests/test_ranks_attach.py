"""Ranks that torchrun and mpirun start, and that dial back; also from another host."""

import os
import shlex
import socket
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from coursekit import Ranks
from coursekit.ranks import RankDied, RanksHung, RanksUsageError
from coursekit.ranks._secret import admit, enter, new_secret

from .ranks_help import ROOT, all_reduce_works, gone

BIN = Path(sys.executable).parent


def start(command):
    """Run the line that the notebook shows, as a user's shell would."""
    env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    return subprocess.Popen(
        ["bash", "-c", f"exec env {command}"],
        env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    "launcher", ["torchrun", pytest.param("mpirun", marks=pytest.mark.needs("mpirun"))]
)
def test_ranks_of_another_launcher_attach(launcher):
    ranks = Ranks(3, launcher="attach")
    assert "0 of 3 ranks have joined" in repr(ranks)
    job = start(ranks.command(launcher))
    try:
        assert all_reduce_works(ranks)
        pids = ranks.pids
        if launcher == "mpirun":
            assert ranks.run(lambda: comm.allreduce(rank)) == [3] * 3  # noqa: F821
        with pytest.raises(RanksHung) as hung:
            ranks.cell("if rank != 1:\n    dist.barrier()", timeout=1.5)
        assert hung.value.culprits == [1]
        assert all_reduce_works(ranks)
    finally:
        ranks.close()
    assert gone(pids) == []
    assert job.wait(20) == 0, job.stdout.read()
    job.stdout.close()


def test_a_killed_attached_rank_is_named_and_replaced():
    ranks = Ranks(2, launcher="attach")
    job = start(ranks.command())
    try:
        ranks.push(kept=3)
        with pytest.raises(RankDied) as caught:
            ranks.cell("import os\nif rank == 1:\n    os.kill(os.getpid(), 9)\ndist.barrier()")
        assert (caught.value.rank, caught.value.signal) == (1, "SIGKILL")
        assert all_reduce_works(ranks)
        assert ranks.pull("kept", on=[0]) == [3]
    finally:
        ranks.close()
    assert job.wait(20) == 0
    job.stdout.close()


def test_output_comes_back_from_attached_ranks(capsys):
    ranks = Ranks(2, launcher="attach")
    job = start(ranks.command())
    try:
        ranks.cell("import os\nprint('hi')\nos.write(2, b'raw\\n')\nrank")
    finally:
        ranks.close()
    shown = capsys.readouterr()
    expected = ["[rank 0] hi", "[rank 0] Out: 0", "[rank 1] hi", "[rank 1] Out: 1"]
    assert [line for line in shown.out.splitlines() if line.startswith("[rank")] == expected
    assert shown.err.splitlines() == ["[rank 0] raw", "[rank 1] raw"]
    job.wait(20)
    job.stdout.close()


def test_agents_end_when_the_notebook_is_killed():
    code = """
        import time
        from coursekit import Ranks
        ranks = Ranks(2, launcher="attach")
        print(ranks.command(), flush=True)
        ranks.wait()
        print(*ranks.pids, flush=True)
        time.sleep(60)
    """
    notebook = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    job = start(notebook.stdout.readline())
    lines = iter(notebook.stdout.readline, "")
    pids = next([int(p) for p in line.split()] for line in lines if "joined" not in line)
    notebook.kill()
    notebook.wait()
    notebook.stdout.close()
    assert gone(pids) == []
    assert job.wait(30) == 0
    job.stdout.close()


def test_a_wrong_secret_is_refused_on_both_sides():
    ranks = Ranks(1, launcher="attach")
    try:
        wrong = ranks.command().replace(ranks._launcher.secret, "0" * 32)
        job = start(wrong)
        said = job.communicate(timeout=60)[0]
        assert "COURSEKIT_SECRET must be the one that this notebook shows" in said
        assert "1 refused" in repr(ranks)
    finally:
        ranks.close()


def test_strangers_on_the_port_change_nothing():
    ranks = Ranks(1, launcher="attach")
    door = (ranks._launcher.host, ranks._launcher.port)
    try:
        for junk in (b"", b"GET / HTTP/1.1\r\n\r\n" * 20, os.urandom(4096)):
            with socket.create_connection(door) as stranger:
                stranger.sendall(junk)
        job = start(ranks.command())
        assert ranks.run(lambda: rank) == [0]  # noqa: F821
    finally:
        ranks.close()
    assert job.wait(20) == 0
    job.stdout.close()


def test_the_proof_needs_the_secret():
    for ours, theirs, expected in ((None, None, True), ("a" * 32, "b" * 32, False)):
        secret = new_secret()
        left, right = socket.socketpair()
        with ThreadPoolExecutor() as pool:
            side = pool.submit(enter, right, theirs or secret)
            assert admit(left, ours or secret) is expected
            left.close()
            assert side.result(5) is expected
        right.close()


def test_nothing_listens_beyond_loopback_unless_asked():
    ranks = Ranks(1, launcher="attach")
    try:
        assert ranks._launcher._door.getsockname()[0] == "127.0.0.1"
    finally:
        ranks.close()
    with pytest.raises(RanksUsageError, match="this machine's own and free"):
        Ranks(1, launcher="attach", host="203.0.113.7")


@pytest.mark.parametrize(
    ("arguments", "env", "says"),
    [
        (["--connect", "nonsense"], {}, "must be HOST:PORT, got 'nonsense'"),
        (["--connect", "127.0.0.1:9"], {}, "must come from torchrun, srun or mpirun"),
        (["--connect", "127.0.0.1:9"], {"RANK": "0"}, "secret must be in COURSEKIT_SECRET"),
    ],
)
def test_serve_tells_a_users_mistake_in_one_line(arguments, env, says):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI", "PMI", "SLURM"))}
    done = subprocess.run(
        [sys.executable, "-m", "coursekit", "ranks", "serve", *arguments],
        env={**clean, **env}, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.needs("ip", "netns")
def test_two_hosts_reduce_over_the_wire_between_them():
    """The notebook and rank 0-1 on one host, ranks 2-3 on another, joined by a veth link."""
    script = ROOT / "tests" / "two_hosts.sh"
    done = subprocess.run(
        ["unshare", "--net", "--mount", "--mount-proc", "--pid", "--fork", "bash", str(script)],
        env={**os.environ, "PYTHON": sys.executable, "PATH": f"{BIN}:{os.environ['PATH']}"},
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    lines = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert lines["sum"] == "[6.0, 6.0, 6.0, 6.0]"
    assert shlex.split(lines["hosts"]) == ["10.77.0.1", "10.77.0.1", "10.77.0.2", "10.77.0.2"]
    # Four ranks all-reduce 4 MiB: more than one buffer must have crossed the link.
    assert int(lines["bytes"]) > 4 << 20
