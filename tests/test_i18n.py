"""Words: every text in every language, with the same places to fill, and found wherever it lies."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import coursekit
from coursekit import _data, i18n

TABLES = sorted((_data.folder() / "text").glob("*.yaml"))
ENTRIES = [
    (f"{path.stem}.{name}", words)
    for path in TABLES
    for name, words in _data.load(f"text/{path.name}").items()
]


@pytest.fixture(autouse=True)
def english() -> Iterator[None]:
    yield
    coursekit.language("en")


def test_language_sets_and_tells() -> None:
    assert coursekit.language() == "en"
    assert coursekit.language("zh") == "zh"
    assert coursekit.language() == "zh"


def test_an_unknown_language_is_refused_and_changes_nothing() -> None:
    with pytest.raises(ValueError, match="lang must be one of en, zh, got 'de'; try"):
        coursekit.language("de")
    assert coursekit.language() == "en"


def test_texts_follow_the_language_and_fill_their_places() -> None:
    assert i18n.text("memory.gpus", gpus=8) == "GPUs in all: 8"
    coursekit.language("zh")
    assert i18n.text("memory.gpus", gpus=8) == "\u5171 8 \u5f20\u5361"


def test_there_are_texts() -> None:
    assert {"memory", "quiz"} <= {path.stem for path in TABLES}


@pytest.mark.parametrize(("key", "words"), ENTRIES, ids=[key for key, _ in ENTRIES])
def test_every_text_is_complete(key: str, words: dict[str, str] | str) -> None:
    if isinstance(words, str):
        return
    assert set(words) == set(i18n.LANGUAGES)
    places = [sorted(re.findall(r"\{(\w*)\}", words[lang])) for lang in i18n.LANGUAGES]
    assert places[0] == places[1]
    assert all(words.values())


def test_a_missing_text_names_its_neighbours() -> None:
    with pytest.raises(
        KeyError, match=r"data/text/memory.yaml, got 'nothing'; there are .*weights"
    ):
        i18n.text("memory.nothing")
    with pytest.raises(FileNotFoundError, match=r"got 'text/nowhere.yaml'; there are .*memory"):
        i18n.text("nowhere.title")


def test_a_missing_language_says_which_to_add() -> None:
    coursekit.language("zh")
    with pytest.raises(KeyError, match="q1 must have en and zh, got en; add zh"):
        i18n.pick({"en": "only"}, "q1")


def test_an_installed_package_finds_its_own_data(tmp_path: Path) -> None:
    """A wheel carries the data folder inside the package: no clone stands beside it."""
    package = tmp_path / "coursekit"
    package.mkdir()
    source = Path(_data.__file__).parent
    for name in ("_data.py", "i18n.py"):
        shutil.copy(source / name, package / name)
    (package / "__init__.py").write_text("")
    shutil.copytree(_data.folder() / "text", package / "_data" / "text")
    code = "from coursekit import i18n; print(i18n.__file__); print(i18n.text('memory.fits'))"
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == [str(package / "i18n.py"), "fits"]


def test_without_data_the_error_says_what_to_do(tmp_path: Path) -> None:
    package = tmp_path / "coursekit"
    package.mkdir()
    shutil.copy(_data.__file__, package / "_data.py")
    (package / "__init__.py").write_text("")
    code = "from coursekit import _data; _data.folder()"
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "install coursekit from a complete clone" in ran.stderr


def test_importing_coursekit_stays_cheap() -> None:
    code = "import coursekit, sys; print(sorted({'torch', 'plotly', 'yaml'} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
