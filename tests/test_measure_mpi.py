"""Open MPI's algorithms: asked of the library, forced, and seen in the bytes between ranks."""

import os

import numpy as np
import pytest

from coursekit import Ranks
from coursekit.measure import MeasureError, mpi_algorithms, mpi_ranks, sweep, traffic
from coursekit.measure._mpi import TUNED, mpi_settings

pytestmark = pytest.mark.needs("mpirun")

FLOATS = 4096
BYTES = 4 * FLOATS


def test_the_library_says_which_algorithms_it_has():
    known = mpi_algorithms()
    assert known["default"] == 0
    assert (known["recursive_doubling"], known["ring"], known["rabenseifner"]) == (3, 4, 6)
    assert mpi_algorithms("broadcast")["chain"] == 2
    assert all(len(mpi_algorithms(name)) > 2 for name in TUNED)


def test_the_environment_holds_what_forces_an_algorithm():
    assert mpi_settings("all_reduce", "default") == {}
    ring = mpi_settings("all_gather", "ring", sockets=True)
    assert ring["OMPI_MCA_coll_tuned_allgather_algorithm"] == "4"
    assert ring["OMPI_MCA_coll_tuned_use_dynamic_rules"] == "1"
    assert ring["OMPI_MCA_btl"] == "self,tcp"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: mpi_algorithms("allreduce"), "collective must be one of"),
        (lambda: mpi_ranks(2, "rings"), "must be one of default, .*'rings'; try 'mpi:default'"),
    ],
)
def test_a_wrong_name_is_one_clear_error(call, says):
    with pytest.raises(MeasureError, match=says):
        call()


def add_up(count):
    import numpy as np

    comm.Allreduce(np.ones(count, np.float32), np.empty(count, np.float32))  # noqa: F821


def wire(ranks):
    """Bytes of one Allreduce in buffers' lengths, once the connections are there."""
    ranks.run(add_up, FLOATS)
    return np.round(traffic(ranks, add_up, FLOATS).wire / BYTES, 1)


def expected(pairs):
    table = np.zeros((4, 4))
    for (src, dst), share in pairs.items():
        table[src, dst] = share
    return table


RING = expected({(r, (r + 1) % 4): 1.5 for r in range(4)})
DOUBLING = expected({(r, r ^ far): 1.0 for r in range(4) for far in (1, 2)})
# Halving, then doubling: half of the buffer with one partner, a quarter with the other, twice.
HALVING = expected({(r, r ^ far): share for r in range(4) for far, share in ((1, 1.0), (2, 0.5))})


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize(
    ("algorithm", "pattern"),
    [("ring", RING), ("recursive_doubling", DOUBLING), ("rabenseifner", HALVING)],
)
def test_the_forced_algorithm_is_the_one_that_ran(monkeypatch, algorithm, pattern, plain):
    if plain:
        monkeypatch.setenv("COURSEKIT_MPI_PLAIN", "1")
    before = dict(os.environ)
    with mpi_ranks(4, algorithm, sockets=True) as ranks:
        assert dict(os.environ) == before
        assert wire(ranks).tolist() == pattern.tolist()


def test_a_job_that_starts_again_keeps_its_algorithm():
    with mpi_ranks(4, "ring", sockets=True) as ranks:
        first = ranks.pids
        ranks.restart()
        assert set(first).isdisjoint(ranks.pids)
        assert wire(ranks).tolist() == RING.tolist()


def test_one_sweep_holds_gloo_schedules_and_open_mpi():
    names = ["mpi:ring", "library", "ring", "mpi:default"]
    heard = []
    with Ranks(3, backend="gloo") as ranks:
        done = sweep(ranks, sizes=[64, 1000], algorithms=names, repeat=2, progress=heard.append)
    assert done.algorithms == names
    assert [(r.algorithm, r.wrong) for r in done.rows] == [(n, 0) for n in names] * 2
    assert [r.size for r in done.of("mpi:ring")] == [r.size for r in done.of("library")]
    assert sorted(line.split()[1] for line in heard) == sorted(names * 2)


@pytest.mark.parametrize(
    ("algorithms", "dtype", "says"),
    [
        (["library", "mpi:rings"], "float32", "must be one of default, "),
        (["library", "mpi:ring"], "bfloat16", "adds no 16-bit floats"),
    ],
)
def test_a_wrong_name_is_told_before_anything_is_measured(algorithms, dtype, says):
    heard = []
    with Ranks(2, backend="gloo") as ranks, pytest.raises(MeasureError, match=says):
        sweep(ranks, algorithms=algorithms, dtype=dtype, progress=heard.append)
    assert heard == []
