"""The house: what is declared in several places says the same in all of them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
HOUSE = ["pyproject.toml", "constraints.txt", "environment.yml", "Makefile", ".ci/run"]
TARGETS = ["lab", "test", "lint", "lessons", "bench", "constraints", "clean"]


def tree() -> list[Path]:
    """Every file of the project, whether or not git knows it yet."""
    hidden = {".git", ".venv", "__pycache__", ".ipynb_checkpoints", ".hypothesis"}
    found = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [f for f in folders if f not in hidden and not f.endswith(("_cache", "info"))]
        found += [Path(folder, file) for file in files]
    return found


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    wanted = [Requirement(line) for line in lines if not line.startswith("#")]
    return {canonicalize_name(w.name): str(w.specifier) for w in wanted}


def requirements(project: dict[str, Any]) -> list[Requirement]:
    extras = project["project"]["optional-dependencies"].values()
    lists = [project["project"]["dependencies"], *extras]
    return [Requirement(line) for lines in lists for line in lines]


def test_environment_yml_is_python_pip_and_this_project() -> None:
    found = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert found["dependencies"] == ["python>=3.11", "pip", {"pip": ["-e ."]}]
    assert set(found) == {"name", "dependencies"}


def test_python_is_the_same_everywhere(project: dict[str, Any]) -> None:
    assert project["project"]["requires-python"] == ">=3.11"
    assert project["tool"]["ruff"]["target-version"] == "py311"
    assert project["tool"]["mypy"]["python_version"] == "3.11"
    assert "(3, 11)" in (ROOT / "Makefile").read_text()


def test_every_requirement_has_one_exact_pin(project: dict[str, Any], pins: dict[str, str]) -> None:
    assert all(re.fullmatch(r"==[^,+*]+", pin) for pin in pins.values()), pins
    for wanted in requirements(project):
        pin = pins[canonicalize_name(wanted.name)]
        assert wanted.specifier.contains(pin[2:], prereleases=True), f"{wanted} but {pin}"


def test_torch_is_pinned_to_the_version_of_the_measurements(pins: dict[str, str]) -> None:
    assert pins["torch"] == "==2.13.0"
    assert "TORCH  := torch==2.13.0\n" in (ROOT / "Makefile").read_text()


def test_nothing_is_listed_twice(project: dict[str, Any]) -> None:
    names = [canonicalize_name(r.name) for r in requirements(project)]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("name", HOUSE)
def test_the_house_names_no_host_no_index_and_no_local_path(name: str) -> None:
    text = (ROOT / name).read_text()
    assert "://" not in text
    assert not re.search(r"--(extra-)?index-url|--find-links [^\\]|--trusted-host [^\\]", text)
    assert not re.search(r"file:|(^|[\s\"'=])/(work|home|root|opt|mnt|srv)\b", text, re.MULTILINE)


def test_no_file_tells_where_it_was_made() -> None:
    """Outputs of notebooks, too, must not show the folder of their author."""
    places = {str(ROOT), str(Path.home())}
    places = {place.encode() for place in places if len(Path(place).parts) > 2}
    telling = [path for path in tree() for place in places if place in path.read_bytes()]
    assert telling == []


def test_python_files_are_written_in_ascii_words() -> None:
    """Chinese stands in data and in the prose of lessons, never in code."""
    han = re.compile("[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]")
    assert [p for p in tree() if p.suffix == ".py" and han.search(p.read_text("utf-8"))] == []


def test_every_ignored_lint_rule_has_its_reason() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    listed = text[text.index("\nignore = [") : text.index("[tool.mypy]")]
    reasons = re.findall(r'^  "[A-Z]+[0-9]*",(.*)$', listed, re.MULTILINE)
    assert len(reasons) > 10
    assert [reason for reason in reasons if not re.match(r"\s+# \S", reason)] == []


def test_ruff_pins_its_rules(project: dict[str, Any]) -> None:
    assert "select" in project["tool"]["ruff"]["lint"]
    assert "extend-select" not in project["tool"]["ruff"]["lint"]


@pytest.mark.parametrize("name", ["README.md", "README.zh.md"])
def test_readme_names_the_two_commands_and_only_files_that_are_there(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    assert "git clone" in text
    assert "make lab" in text
    links = re.findall(r"\]\(([^)#]+)\)", text)
    local = [link for link in links if "://" not in link]
    assert local
    assert [link for link in local if not (ROOT / link).exists()] == []


def test_licence_is_the_declared_one(project: dict[str, Any]) -> None:
    assert project["project"]["license"] == "Apache-2.0"
    text = (ROOT / "LICENSE").read_text()
    assert text.split()[:5] == ["Apache", "License", "Version", "2.0,", "January"]
    assert "END OF TERMS AND CONDITIONS" in text


def make(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    # Under `make test` the outer make's own flags are in the environment.
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    command = ["make", *arguments]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=60)


@pytest.mark.needs("make")
def test_make_alone_lists_every_target() -> None:
    told = make()
    assert told.returncode == 0
    assert re.findall(r"^make (\w+) ", told.stdout, re.MULTILINE) == TARGETS


@pytest.mark.needs("make")
@pytest.mark.parametrize("target", TARGETS)
def test_make_knows_what_each_target_would_do(target: str) -> None:
    told = make("--dry-run", target)
    assert told.returncode == 0, told.stderr
    assert told.stdout.strip()


@pytest.mark.needs("make")
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_make_lab_opens_lesson_00(lang: str) -> None:
    told = make("--dry-run", "lab", f"L={lang}").stdout
    assert re.search(rf"default_url='/lab/tree/notebooks/{lang}/00_\w+\.ipynb'", told)
    assert f'JUPYTER_CONFIG_PATH="{ROOT}/.jupyter' in told


def test_jupyterlab_is_told_to_ask_the_network_for_nothing() -> None:
    lab = json.loads((ROOT / ".jupyter" / "jupyter_lab_config.json").read_text())["LabApp"]
    assert lab["news_url"] is None
    assert lab["check_for_updates_class"] == "jupyterlab.NeverCheckForUpdate"
    assert lab["extension_manager"] == "readonly"


@pytest.mark.needs("make")
def test_make_says_what_python_it_needs(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    old = tmp_path / "old"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.2 && exit 0\nexit 1\n')
    old.chmod(0o755)
    told = make("lab", "PYTHON=./old", cwd=tmp_path)
    assert told.returncode == 2
    assert "Python must be 3.11 or newer, got: Python 3.9.2" in told.stdout
    assert not (tmp_path / ".venv").exists()


@pytest.mark.needs("make")
def test_make_says_how_to_get_venv(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\ncase "$2" in *venv*) exit 1;; esac\nexec {sys.executable} "$@"\n')
    bare.chmod(0o755)
    told = make("lab", "PYTHON=./bare", cwd=tmp_path)
    assert told.returncode == 2
    assert "apt-get install python3-venv" in told.stdout


def test_ci_is_runnable_and_well_formed() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0


@pytest.mark.parametrize(("ci", "outcome"), [("false", "1 skipped"), ("true", "1 error")])
def test_what_is_missing_skips_here_and_fails_in_ci(tmp_path: Path, ci: str, outcome: str) -> None:
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = needs(*names)\n")
    (tmp_path / "test_it.py").write_text(
        "import pytest\n@pytest.mark.needs('chromium')\ndef test_it(): pass\n"
    )
    env = {**os.environ, "PATH": str(tmp_path), "CI": ci}
    command = [sys.executable, "-m", "pytest", "-ra", "--color=no", "-p", "no:cacheprovider"]
    told = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True).stdout
    assert outcome in told.splitlines()[-1]
    assert "chromium is not here; apt-get install chromium" in told
