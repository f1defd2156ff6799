"""Sweeps on real ranks: columns, bandwidths, the check of the result, and the fit."""

import csv
import io
import json

import pytest

from coursekit import Ranks
from coursekit.cost import busbw_factor
from coursekit.measure import MeasureError, sizes, sweep
from coursekit.measure._loop import Work, measure_here
from coursekit.measure._sweep import COLLECTIVES
from coursekit.schedule import algorithms


@pytest.fixture(scope="module")
def ranks():
    with Ranks(3, backend="gloo") as three:
        yield three


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_collective_and_algorithm_is_measured_and_right(ranks, collective):
    names = ["library", *algorithms(collective)]
    done = sweep(ranks, collective, [100, 5000], names, repeat=3)
    assert len(done.rows) == 2 * len(names)
    for row in done.rows:
        assert row.wrong == 0
        assert row.low_us <= row.time_us <= row.high_us
        assert row.size == 4 * row.count
        blocks = collective in ("all_gather", "all_to_all", "reduce_scatter")
        assert row.count % 3 == 0 if blocks else row.size >= 100
        assert row.algbw == pytest.approx(row.size / row.time_us / 1e3)
        assert row.busbw == pytest.approx(row.algbw * busbw_factor(collective, 3))


@pytest.mark.parametrize("algorithm", ["library", "ring"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int64"])
def test_other_dtypes_are_right(ranks, algorithm, dtype):
    assert (
        sweep(ranks, sizes=[1200], algorithms=[algorithm], dtype=dtype, repeat=2).rows[0].wrong == 0
    )


@pytest.fixture(scope="module")
def mpi_ranks():
    with Ranks(3, launcher="mpi", backend="gloo") as three:
        yield three


@pytest.mark.needs("mpirun")
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_mpis_own_collectives_are_measured_beside_schedules_over_mpi(mpi_ranks, collective):
    names = ["library", algorithms(collective)[0]]
    done = sweep(mpi_ranks, collective, [100], names, backend="mpi", repeat=2, calls=3)
    assert done.backend == "mpi"
    assert [(r.algorithm, r.wrong) for r in done.rows] == [(n, 0) for n in names]
    assert sweep(mpi_ranks, collective, [100], repeat=2, calls=1).backend == "gloo"


@pytest.mark.needs("mpirun")
def test_mpi_moves_every_dtype_and_adds_those_that_it_knows(mpi_ranks):
    one = {"sizes": [96], "backend": "mpi", "repeat": 1, "calls": 1}
    for dtype in ("float64", "int32", "int64"):
        assert sweep(mpi_ranks, dtype=dtype, **one).rows[0].wrong == 0
    assert sweep(mpi_ranks, "all_gather", dtype="bfloat16", **one).rows[0].wrong == 0
    assert sweep(mpi_ranks, algorithms=["ring"], dtype="bfloat16", **one).rows[0].wrong == 0
    with pytest.raises(MeasureError, match="adds no 16-bit floats"):
        sweep(mpi_ranks, dtype="bfloat16", **one)


def test_a_damaged_result_is_counted(ranks):
    work = Work("all_reduce", None, 30, "float32", warmup=0, spoil=True)
    assert [m.wrong for m in ranks.run(measure_here, work)] == [1, 0, 0]


def test_the_table_and_the_files_have_the_same_numbers(ranks, tmp_path):
    done = sweep(ranks, sizes=[64, 256], repeat=2)
    lines = str(done).splitlines()
    assert lines[0] == "all_reduce, 3 ranks, gloo"
    assert lines[1].split()[-2:] == ["GB/s", "#wrong"]
    assert len(lines) == 4
    rows = list(csv.DictReader(io.StringIO(done.to_csv(tmp_path / "s.csv"))))
    assert [int(r["size"]) for r in rows] == [r.size for r in done.rows]
    assert json.loads(done.to_json(tmp_path / "s.json"))["rows"][1]["count"] == done.rows[1].count
    assert (tmp_path / "s.csv").read_text() == done.to_csv()
    assert "<table>" in done._repr_html_()


def test_a_batch_is_divided_by_its_calls_and_cores_are_known(ranks):
    work = Work("all_reduce", None, 30, "float32", batches=3, calls=4)
    got = ranks.run(measure_here, work)
    assert [len(m.seconds) for m in got] == [3] * 3
    assert sweep(ranks, sizes=[64], repeat=1, calls=1).cores == got[0].cores >= 1


def test_progress_hears_every_row(ranks):
    heard = []
    sweep(ranks, sizes=[64, 256], algorithms=["library", "ring"], repeat=1, progress=heard.append)
    assert len(heard) == 4
    assert heard[1].startswith("all_reduce ring")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda r: sweep(r, "allreduce"), "collective must be one of"),
        (lambda r: sweep(r, algorithms=["rings"]), "must be library or one of ring"),
        (lambda r: sweep(r, dtype="float8"), "dtype must be one of"),
        (lambda r: sweep(r, sizes=[0]), "sizes are whole numbers"),
        (lambda r: sweep(r, backend="mpi"), "launcher='mpi'"),
        (lambda r: sweep(r, backend="nccl"), "that of the ranks .gloo."),
        (lambda r: sizes(8, 4), "0 < least <= most"),
    ],
)
def test_a_wrong_request_is_one_clear_error(ranks, call, says):
    with pytest.raises(MeasureError, match=says):
        call(ranks)


def test_sizes_grow_by_the_factor():
    assert sizes(8, 128, 4) == [8, 32, 128]
    assert sizes(8, 100, 2) == [8, 16, 32, 64]
