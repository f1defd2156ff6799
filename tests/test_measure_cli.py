"""``coursekit bench``, on ranks of its own and under torchrun."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

from coursekit.measure.cli import BenchError, bar, parse_size
from coursekit.ranks._mpi import find_mpirun, mpirun_command

from .ranks_help import ROOT

BIN = Path(sys.executable).parent


def run(*command):
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def test_bench_starts_ranks_and_prints_the_table(tmp_path):
    file = tmp_path / "out.csv"
    options = [
        "--ranks",
        "2",
        "--maxbytes",
        "1K",
        "--stepfactor",
        "8",
        "--algorithms",
        "library,ring",
    ]
    done = run(sys.executable, "-m", "coursekit", "bench", "all_reduce", *options, "--csv", file)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "all_reduce, 2 ranks, gloo"
    assert [line.split()[0] for line in lines[2:]] == ["8", "8", "64", "64", "512", "512"]
    assert {line.split()[-1] for line in lines[2:]} == {"0"}
    assert len(list(csv.DictReader(file.open()))) == 6


def test_bench_measures_the_ranks_of_torchrun():
    job = [BIN / "torchrun", "--nproc-per-node", "3", "-m", "coursekit", "bench"]
    done = run(
        *job, "all_gather", "--maxbytes", "1K", "--stepfactor", "16", "--algorithms", "library,ring"
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "all_gather, 3 ranks, gloo"
    assert len(lines) == 6


def mpirun(size, *arguments):
    command = mpirun_command(find_mpirun(), size, [sys.executable, "-m", "coursekit", "bench"])
    return run(*command, *arguments)


@pytest.mark.needs("mpirun")
@pytest.mark.parametrize("backend", ["mpi", "gloo"])
def test_bench_measures_the_ranks_of_mpirun(backend, tmp_path):
    file = tmp_path / "out.csv"
    options = ["-b", "64", "-e", "1K", "-f", "16", "--algorithms", "library,ring", "--csv", file]
    done = mpirun(3, "all_reduce", *options, "--backend", backend)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"all_reduce, 3 ranks, {backend}"
    assert [line.split()[4] for line in lines[2:]] == ["library", "ring"] * 2
    assert {line.split()[-1] for line in lines[2:]} == {"0"}
    assert len(list(csv.DictReader(file.open()))) == 4


@pytest.mark.needs("mpirun")
def test_a_mistake_under_mpirun_is_told_once():
    done = mpirun(2, "all_reduce", "--algorithms", "rings")
    assert done.returncode == 2
    assert done.stderr.count("must be library or one of") == 1
    assert "Traceback" not in done.stderr


@pytest.mark.needs("mpirun")
def test_bench_starts_ranks_that_measure_mpi():
    options = ["--ranks", "2", "--backend", "mpi", "-e", "64"]
    done = run(sys.executable, "-m", "coursekit", "bench", "broadcast", *options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "broadcast, 2 ranks, mpi"


def test_torchruns_ranks_have_no_mpi():
    job = [BIN / "torchrun", "--nproc-per-node", "1", "-m", "coursekit", "bench"]
    done = run(*job, "all_reduce", "--backend", "mpi")
    assert "needs ranks that mpirun started" in done.stderr


def test_the_bar_fills_and_goes(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    show = bar(2)
    show("first")
    assert capsys.readouterr().err.endswith(f"[{'#' * 12}{'.' * 12}] 1/2 first")
    show("second")
    assert capsys.readouterr().err.endswith("2/2 second\r\033[K")
    monkeypatch.setattr("sys.stderr.isatty", lambda: False, raising=False)
    assert bar(2) is None


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["allreduce"], "collective must be one of"),
        (["all_reduce", "--minbytes", "x"], "a size is a number with K, M or G"),
        (["all_reduce", "--ranks", "0"], "size must be a whole number from 1 up"),
        (["all_reduce", "--ranks", "2", "--algorithms", "rings"], "must be library or one of"),
    ],
)
def test_a_mistake_is_one_line(arguments, says):
    done = run(sys.executable, "-m", "coursekit", "bench", *arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "size"), [("8", 8), ("64K", 65536), ("1m", 1 << 20), ("2GiB", 2 << 30)]
)
def test_sizes_read_as_nccl_tests_reads_them(text, size):
    assert parse_size(text) == size


def test_a_wrong_size_is_refused():
    with pytest.raises(BenchError, match="try 64K"):
        parse_size("64 kilo")
