"""The real notebooks: English against its stored outputs, Chinese with another world size."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import papermill
import pytest

from coursekit.lessons import build, check, read_lesson, source_paths

ROOT = Path(__file__).parents[1]
NOTEBOOKS = ROOT / "notebooks"
TIMEOUT = 300

# What changes from run to run and teaches nothing. A duration is not listed, nor a table of
# process ids: a cell that shows one is tagged nbval-ignore-output.
SANITIZE = r"""
[addresses]
regex: 0x[0-9a-fA-F]{6,}
replace: ADDRESS

[kernel files]
regex: /tmp/ipykernel_\d+/\d+\.py
replace: CELL

[cell numbers]
regex: \bIn\[\d+\]
replace: In[N]

[pids]
regex: \b(pid)([ =:]+)\d+
replace: \1\2PID

[times]
regex: \d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?
replace: TIME
"""


@dataclass(frozen=True)
class Outcome:
    """What nbval said about one notebook: a case for each code cell."""

    cells: int
    failed: list[str]
    log: str


def built(pattern: str) -> list[Any]:
    """The notebooks of lessons and labs as test parameters, named by file."""
    paths = [*sorted(NOTEBOOKS.glob(pattern)), *sorted((NOTEBOOKS / "labs").glob(pattern))]
    return [pytest.param(path, id=path.stem) for path in paths]


def source_of(path: Path) -> Path:
    return next(source for source in source_paths(ROOT) if source.stem == path.stem)


def code_cells(path: Path) -> list[Any]:
    notebook: Any = nbformat.read(path, as_version=4)
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def compare(path: Path, scratch: Path) -> Outcome:
    """Run `path` under nbval in a process of its own, away from this run's plugins and settings."""
    rules, ini, report = (scratch / name for name in ("sanitize.cfg", "pytest.ini", "report.xml"))
    rules.write_text(SANITIZE)
    ini.write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "--nbval", f"--nbval-sanitize-with={rules}"]
    command += [f"--nbval-cell-timeout={TIMEOUT}", "--nbval-current-env", "--color=no", "-q"]
    command += ["-p", "no:cacheprovider", "-c", str(ini), f"--junitxml={report}", str(path)]
    env = {**os.environ, "COURSEKIT_LIVE": "0"}
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=2 * TIMEOUT)
    assert report.exists(), ran.stdout + ran.stderr
    cases = list(ElementTree.parse(report).iter("testcase"))
    bad = [c.get("name", "") for c in cases if len(c) and c[0].tag in ("failure", "error")]
    assert bool(bad) == (ran.returncode != 0), ran.stdout + ran.stderr
    return Outcome(len(cases), bad, ran.stdout)


def rerun(path: Path, scratch: Path, parameters: dict[str, Any]) -> list[Any]:
    """Run `path` with other parameters; the code cells as they came out."""
    result = scratch / path.name
    # Papermill also raises for a cell that is meant to fail; the cells themselves are judged below.
    with contextlib.suppress(papermill.PapermillExecutionError):
        papermill.execute_notebook(
            path,
            result,
            parameters=parameters,
            cwd=path.parent,
            kernel_name="python3",
            progress_bar=False,
            execution_timeout=TIMEOUT,
        )
    return code_cells(result)


def errors(cells: list[Any]) -> list[str]:
    """The errors of cells that were not meant to fail."""
    return [
        f"{cell.source}\n{output.ename}: {output.evalue}"
        for cell in cells
        if "raises-exception" not in cell.metadata.get("tags", [])
        for output in cell.outputs
        if output.output_type == "error"
    ]


@contextlib.contextmanager
def budget(path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Show what a notebook costs; a shared machine is no place to assert a time."""
    start = time.monotonic()
    yield
    seconds, size = time.monotonic() - start, path.stat().st_size / 1000
    with capsys.disabled():
        name = path.relative_to(NOTEBOOKS)
        print(f"\n{name}: {seconds:.1f} s (of 60), {size:.0f} kB (of 300)", end=" ")


def test_there_are_lessons() -> None:
    assert source_paths(ROOT)


def test_notebooks_are_built_and_keep_the_rules() -> None:
    assert check(ROOT) == []


@pytest.mark.timeout(3 * TIMEOUT)
@pytest.mark.parametrize("path", built("en/*.ipynb"))
def test_english_gives_its_stored_outputs(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with budget(path, capsys):
        outcome = compare(path, tmp_path)
    assert outcome.failed == [], outcome.log
    assert outcome.cells == len(code_cells(path))


@pytest.mark.timeout(2 * TIMEOUT)
@pytest.mark.parametrize("path", built("zh/*.ipynb"))
def test_chinese_runs_with_another_world_size(
    path: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COURSEKIT_LIVE", "0")
    trial = {"lang": "zh", **read_lesson(source_of(path)).trial}
    with budget(path, capsys):
        cells = rerun(path, tmp_path, trial)
    assert errors(cells) == []
    assert [cell.source for cell in cells if not cell.execution_count] == []
    # One cell more than written: papermill's own, with the other parameters.
    assert len(cells) == len(code_cells(path)) + 1


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with one small lesson, to see that the two tests above can fail."""
    root = tmp_path_factory.mktemp("tiny")
    source = root / "notebooks" / "source" / "00_a.md"
    source.parent.mkdir(parents=True)
    cells = ['lang = "en"\nsize = 4', "print(object(), size)", "import os\nos.getpid()"]
    cells += ["1 / 0", "[4][size - 4]"]
    tags = ["parameters", "", "nbval-ignore-output", "raises-exception", ""]
    blocks = [
        f"```{{code-cell}}\n:tags: [{t}]\n\n{c}\n```\n" for c, t in zip(cells, tags, strict=True)
    ]
    source.write_text("---\ntitle: {en: A, zh: B}\nminutes: 1\nranks: 1\n---\n" + "".join(blocks))
    build(root)
    return root / "notebooks"


def test_comparison_sees_a_changed_output_and_only_that(tiny: Path, tmp_path: Path) -> None:
    path = tiny / "en" / "00_a.ipynb"
    assert compare(path, tmp_path).failed == []
    changed = tiny / "en" / "changed.ipynb"
    changed.write_text(path.read_text().replace("> 4\\n", "> 5\\n"))
    outcome = compare(changed, tmp_path)
    assert (outcome.cells, len(outcome.failed)) == (5, 1)
    assert "Cell outputs differ" in outcome.log


def test_rerun_sees_the_parameters_and_the_cell_that_fails(tiny: Path, tmp_path: Path) -> None:
    path = tiny / "zh" / "00_a.ipynb"
    assert errors(rerun(path, tmp_path, {"lang": "zh", "size": 4})) == []
    cells = rerun(path, tmp_path, {"lang": "zh", "size": 5})
    assert [text.split("\n")[-1] for text in errors(cells)] == [
        "IndexError: list index out of range"
    ]
    assert cells[2].outputs[0].text.endswith(" 5\n")
