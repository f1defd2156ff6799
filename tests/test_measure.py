"""Sweeps on real ranks: columns, bandwidths, the check of the result, and the fit."""

import csv
import io
import json

import numpy as np
import pytest

from coursekit import Ranks
from coursekit.cost import busbw_factor
from coursekit.measure import MeasureError, Row, fit, sizes, sweep
from coursekit.measure._loop import measure_here
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
        assert row.count % 3 == 0
        assert row.algbw == pytest.approx(row.size / row.time_us / 1e3)
        assert row.busbw == pytest.approx(row.algbw * busbw_factor(collective, 3))


@pytest.mark.parametrize("algorithm", ["library", "ring"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int64"])
def test_other_dtypes_are_right(ranks, algorithm, dtype):
    assert (
        sweep(ranks, sizes=[1200], algorithms=[algorithm], dtype=dtype, repeat=2).rows[0].wrong == 0
    )


def test_a_damaged_result_is_counted(ranks):
    got = ranks.run(measure_here, "all_reduce", None, 30, "float32", 0, 1, True)
    assert [wrong for _, wrong in got] == [1, 0, 0]


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
        (lambda r: sizes(8, 4), "0 < least <= most"),
    ],
)
def test_a_wrong_request_is_one_clear_error(ranks, call, says):
    with pytest.raises(MeasureError, match=says):
        call(ranks)


def test_sizes_grow_by_the_factor():
    assert sizes(8, 128, 4) == [8, 32, 128]
    assert sizes(8, 100, 2) == [8, 16, 32, 64]


def rows_of(alpha, beta, noise, seed=0):
    draw = np.random.default_rng(seed)
    out = []
    for n in sizes(8, 32 << 20, 2):
        t = (alpha + beta * n / 1e3) * (1 + noise * draw.standard_normal())
        out.append(Row(n, n // 4, "float32", "sum", "library", t, t, t, 0.0, 0.0, 0))
    return out


def test_the_fit_finds_what_made_the_times():
    found = fit(rows_of(50, 0.8, 0.05))
    assert found.alpha_us == pytest.approx(50, rel=0.1)
    assert found.beta_ns == pytest.approx(0.8, rel=0.1)
    assert found.alpha_range[0] <= found.alpha_us <= found.alpha_range[1]
    assert found.n_half == pytest.approx(50 / 0.8 * 1e3, rel=0.2)
    assert found.time_us(1e6) == pytest.approx(850, rel=0.1)


def test_one_disturbed_size_moves_the_fit_little():
    rows = rows_of(50, 0.8, 0.02)
    spoiled = rows.copy()
    spoiled[5] = Row(*[*list(rows[5].__dict__.values())[:5], rows[5].time_us * 20, 0, 0, 0, 0, 0])
    assert fit(spoiled).alpha_us == pytest.approx(fit(rows).alpha_us, rel=0.15)
    assert fit(spoiled).beta_ns == pytest.approx(fit(rows).beta_ns, rel=0.15)


def test_two_sizes_are_too_few():
    with pytest.raises(MeasureError, match="at least three different sizes, got 2"):
        fit(rows_of(1, 1, 0)[:2])
