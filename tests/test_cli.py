"""The command line: quick help, exit codes, one line for a mistake."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path

import pytest

from coursekit.__main__ import main

HEAVY = ("torch", "plotly", "jupytext", "networkx")
RANK_NAMES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID", "RANK")


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "coursekit", *arguments]
    env = {k: v for k, v in os.environ.items() if k not in RANK_NAMES}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=cwd, env=env)


def test_help_names_every_command() -> None:
    told = run("--help")
    assert told.returncode == 0
    for command in ("doctor", "lessons", "ranks"):
        assert command in told.stdout


@pytest.mark.parametrize(
    "arguments", [["--help"], ["doctor", "--help"], ["ranks", "serve", "--help"]]
)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    program = (
        "import sys; from coursekit.__main__ import main; code = main(sys.argv[1:]); "
        f"print('heavy:', [m for m in {HEAVY} if m in sys.modules]); sys.exit(code)"
    )
    command = [sys.executable, "-c", program, *arguments]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert told.returncode == 0, told.stderr
    assert told.stdout.splitlines()[-1] == "heavy: []"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nope"], "No such command 'nope'."),
        (["doctor", "--nope"], "No such option: --nope"),
        (["lessons", "nope"], "a lesson is named like its source, got nope"),
        (["lessons", "--check", "nope"], "--check looks at all lessons, got nope"),
        (["ranks", "serve"], "Missing option '--connect'"),
        (["ranks", "serve", "--connect", "x"], "--connect must be HOST:PORT, got 'x'"),
        (["ranks", "serve", "--connect", "a:1"], "a rank number must come from torchrun"),
    ],
)
def test_a_mistake_costs_one_line_and_exit_code_2(arguments: list[str], told: str) -> None:
    result = run(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("coursekit")
    assert told in line


def test_without_a_command_the_help_is_shown() -> None:
    told = run()
    assert told.returncode == 2
    assert "Usage:" in told.stdout + told.stderr
    assert "Traceback" not in told.stderr


def test_lessons_are_found_from_a_folder_below(root: Path) -> None:
    told = run("lessons", "nope", cwd=root / "notebooks" / "source")
    assert "there are 00_why_one_gpu_is_not_enough" in told.stderr


def test_without_a_clone_the_one_of_the_package_is_used(tmp_path: Path) -> None:
    assert "there are 00_" in run("lessons", "nope", cwd=tmp_path).stderr


def test_version_is_the_installed_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == version("coursekit")


def test_the_script_is_installed() -> None:
    script = Path(sysconfig.get_path("scripts"), "coursekit")
    told = subprocess.run([script, "--version"], capture_output=True, text=True, timeout=60)
    assert told.stdout.strip() == version("coursekit")


def test_interrupt_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("coursekit.doctor.examine", interrupted)
    assert main(["doctor"]) == 130
    assert "Traceback" not in capsys.readouterr().err
