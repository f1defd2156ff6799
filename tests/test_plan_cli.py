"""``coursekit plan``: the table, the JSON, and what happens on a mistake."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from coursekit import plan
from coursekit.__main__ import main


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["plan", *arguments])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_it_prints_the_best_and_writes_everything(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    code, out, _ = run(
        capsys,
        "--model",
        "llama3-405b",
        "--gpus",
        "16384",
        "--machine",
        "h100",
        "--json",
        str(file),
    )
    assert code == 0
    search = plan.best("llama3-405b", 16384, "h100")
    assert f"The first, {search.best.plan}:" in out
    for reason, count in search.reasons.items():
        assert f"{count:6d}  {reason}" in out
    told = json.loads(file.read_text())
    assert told["best"]["step_seconds"] == search.best.seconds.total
    assert len(told["plans"]) == len(search.outcomes)
    assert plan.Plan(**told["best"]["plan"]) == search.best.plan
    assert {row["wire"] for row in told["best"]["sent_bytes"]} == {"link", "network"}


def test_no_plan_is_exit_code_1_with_the_reasons(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    code, out, _ = run(capsys, "--model", "llama3-405b", "--gpus", "8", "--json", str(file))
    assert code == 1
    assert "0 plans fit" in out
    assert "it does not fit" in out
    assert json.loads(file.read_text())["best"] is None


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--model", "llama4", "--gpus", "8"], "a model must be one of"),
        (["--model", "llama2-7b", "--gpus", "0"], "gpus must be a whole number"),
        (["--model", "llama2-7b", "--gpus", "8", "--machine", "x"], "a machine must be one of"),
        (["--model", "llama2-7b", "--gpus", "8", "--json", "/nowhere/x"], "can be written"),
        (["--gpus", "8"], "Missing option '--model'"),
    ],
)
def test_a_mistake_is_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert told in err
    assert len(err.splitlines()) == 1
    assert not out


def test_the_command_imports_no_torch(tmp_path: Path) -> None:
    script = (
        "import sys; from coursekit.__main__ import main; "
        "main(['plan', '--model', 'llama2-7b', '--gpus', '8', "
        f"'--json', {str(tmp_path / 'p')!r}]); "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "False"
