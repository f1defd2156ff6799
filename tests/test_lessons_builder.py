"""The lessons builder, on small lessons written into a temporary folder."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from coursekit.lessons import LessonError, build, check, read_lesson
from coursekit.lessons._execute import execute
from coursekit.lessons._notebook import assemble, write_whole
from coursekit.lessons._rules import length

ZH = "\u8fdb\u7a0b\u3002"
FRONT = '---\ntitle:\n  en: A\n  zh: "\u7532"\nminutes: 5\nranks: 4\n---\n'
PARAMETERS = '```{code-cell} ipython3\n:tags: [parameters]\n\nlang = "en"\nsize = 4\n```\n'
WIDGET = "application/vnd.jupyter.widget-view+json"


def prose(en: str = "Some words.", zh: str = ZH) -> str:
    return f'\n+++ {{"lang": "en"}}\n\n{en}\n\n+++ {{"lang": "zh"}}\n\n{zh}\n\n'


def code(text: str, *tags: str) -> str:
    options = f":tags: [{', '.join(tags)}]\n\n" if tags else ""
    return f"```{{code-cell}} ipython3\n{options}{text}\n```\n"


def write(root: Path, *parts: str, name: str = "00_a", front: str = FRONT) -> Path:
    path = root / "notebooks" / "source" / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(front + "\n".join(parts), encoding="utf-8")
    return path


def load(root: Path, lang: str = "en", name: str = "00_a") -> Any:
    return nbformat.read(root / "notebooks" / lang / f"{name}.ipynb", as_version=4)


def outputs(notebook: Any) -> dict[str, Any]:
    return {c.source: c.outputs for c in notebook.cells if c.cell_type == "code"}


def found(root: Path, words: str) -> list[str]:
    return [line for line in check(root) if words in line]


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lesson of 41 cells that keeps every rule, built and run once."""
    root = tmp_path_factory.mktemp("executed")
    body = [prose(), PARAMETERS, prose(), code("import os\nos.getpid()", "nbval-ignore-output")]
    body += [prose(), code("print(lang, os.environ['COURSEKIT_LIVE'])\nsize + 1")]
    body += [prose(), code("%%timeit -n 1 -r 1 -q\n1 + 1")]
    body += [prose(), code("1 / 0", "raises-exception")]
    body += [part for n in range(15) for part in (prose(), code(f"{n} + size"))]
    write(root, *body, prose())
    build(root)
    return root


@pytest.fixture
def copy(executed: Path, tmp_path: Path) -> Path:
    shutil.copytree(executed, tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_a_built_lesson_keeps_every_rule(executed: Path) -> None:
    assert check(executed) == []


def test_run_stores_outputs_in_both_languages(executed: Path) -> None:
    for lang in ("en", "zh"):
        notebook = load(executed, lang)
        text, value = outputs(notebook)["print(lang, os.environ['COURSEKIT_LIVE'])\nsize + 1"]
        assert text.text == f"{lang} 0\n"
        assert value.data["text/plain"] == "5"
        counts = [c.execution_count for c in notebook.cells if c.cell_type == "code"]
        assert counts == list(range(1, len(counts) + 1))


def test_a_cell_that_must_fail_stores_its_error(executed: Path) -> None:
    assert outputs(load(executed))["1 / 0"][0].ename == "ZeroDivisionError"


def test_metadata_is_fixed(executed: Path) -> None:
    notebook = load(executed, "zh")
    assert notebook.metadata.kernelspec.name == "python3"
    assert "version" not in notebook.metadata.language_info
    course = dict(notebook.metadata.coursekit)
    assert course.pop("ran") == read_lesson(executed / "notebooks/source/00_a.md").code_digest
    assert course == {"lang": "zh", "lesson": "00_a", "minutes": 5, "title": "\u7532"}
    assert all("execution" not in cell.metadata for cell in notebook.cells)


def test_nothing_is_written_or_run_when_nothing_changed(copy: Path) -> None:
    assert build(copy) == []


def test_code_ids_are_equal_across_languages_and_unique(executed: Path) -> None:
    ids = {
        lang: [c.id for c in load(executed, lang).cells if c.cell_type == "code"]
        for lang in ("en", "zh")
    }
    assert ids["en"] == ids["zh"]
    every = [c.id for c in load(executed).cells]
    assert len(every) == len(set(every))


def test_equal_cells_get_different_stable_ids(tmp_path: Path) -> None:
    path = write(tmp_path, PARAMETERS, code("x = 1"), code("y = 2"), code("x = 1"))
    first, _, second = [cell.id for cell in read_lesson(path).code[1:]]
    assert second == f"{first}-2"
    write(tmp_path, PARAMETERS, code("z = 3"), code("x = 1"))
    assert read_lesson(path).code[2].id == first


def test_two_builds_give_equal_bytes(tmp_path: Path) -> None:
    parts = (prose(), PARAMETERS, prose(), code("%%bash\necho $HOME"))
    for root in (tmp_path / "a", tmp_path / "b"):
        write(root, *parts)
        assert len(build(root, execute=False)) == 2
    for lang in ("en", "zh"):
        a, b = ((tmp_path / r / f"notebooks/{lang}/00_a.ipynb").read_bytes() for r in "ab")
        assert a == b


def test_prose_edit_keeps_outputs_without_a_run(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = copy / "notebooks/source/00_a.md"
    before = outputs(load(copy))
    source.write_text(source.read_text().replace("Some words.", "Other words.", 1))
    assert found(copy, "what its source gives") != []
    monkeypatch.setattr("coursekit.lessons._build.run_notebook", _must_not_run)
    assert [path.parent.name for path in build(copy)] == ["en"]
    assert load(copy).cells[0].source == "Other words."
    assert outputs(load(copy)) == before
    assert check(copy) == []


def _must_not_run(*args: object) -> None:
    raise AssertionError("the code did not change, so nothing may run")


def test_code_edit_without_a_run_is_reported_then_mended(copy: Path) -> None:
    source = copy / "notebooks/source/00_a.md"
    source.write_text(source.read_text().replace("7 + size", "70 + size"))
    build(copy, execute=False)
    assert len(found(copy, "a code cell has run, got no stored run")) == 2
    assert len(build(copy)) == 2
    assert outputs(load(copy))["70 + size"][0].data["text/plain"] == "74"
    assert check(copy) == []


def test_deleted_code_makes_the_other_outputs_old(copy: Path) -> None:
    source = copy / "notebooks/source/00_a.md"
    source.write_text(source.read_text().replace(prose() + "\n" + code("7 + size"), ""))
    build(copy, execute=False)
    assert len(found(copy, "got those of older code")) == 2


def test_timings_and_widget_state_left_by_an_editor_are_stale_and_dropped(copy: Path) -> None:
    path = copy / "notebooks/en/00_a.ipynb"
    clean = path.read_bytes()
    notebook = load(copy)
    notebook.metadata.widgets = {"application/vnd.jupyter.widget-state+json": {"state": {}}}
    cell = next(c for c in notebook.cells if c.source == "3 + size")
    cell.metadata.execution = {"iopub.execute_input": "2000-01-01T00:00:00Z"}
    data = {"text/plain": "VBox()", WIDGET: {"model_id": "1"}}
    cell.outputs.append(nbformat.v4.new_output("display_data", data=data))
    nbformat.write(notebook, path)
    assert found(copy, "what its source gives") != []
    assert build(copy) == [path]
    assert path.read_bytes() == clean


def test_failing_cell_is_named_and_the_old_notebook_kept(copy: Path) -> None:
    before = (copy / "notebooks/en/00_a.ipynb").read_bytes()
    source = copy / "notebooks/source/00_a.md"
    source.write_text(source.read_text().replace("7 + size", "raise KeyError('why')"))
    with pytest.raises(LessonError, match=r"00_a\.md:\d+: 00_a \(en\).*KeyError: 'why'.*mend"):
        build(copy)
    assert (copy / "notebooks/en/00_a.ipynb").read_bytes() == before
    assert not list((copy / "notebooks/en").glob(".*"))


def test_the_named_line_is_the_failing_cells_line(tmp_path: Path) -> None:
    path = write(tmp_path, prose(), PARAMETERS, code("import os\nos.kill(os.getpid(), 9)"))
    with pytest.raises(LessonError, match="the kernel died") as caught:
        build(tmp_path)
    line = int(str(caught.value).split(":")[1])
    assert path.read_text().split("\n")[line] == "import os"


def test_the_time_limit_counts_for_the_whole_notebook(tmp_path: Path) -> None:
    path = write(tmp_path, PARAMETERS, code("import time"), code("time.sleep(60)"))
    lesson = read_lesson(path)
    notebook = assemble(lesson, "en", [lesson], None)
    with pytest.raises(LessonError, match=r"'time.sleep\(60\)': not done after 3 s"):
        execute(notebook, lesson, tmp_path, timeout=3)


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.ipynb"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "new \ud800")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_closing_cell_links_neighbours_and_the_other_language(tmp_path: Path) -> None:
    for name in ("00_a", "01_b", "02_c"):
        write(tmp_path, PARAMETERS, name=name, front=FRONT.replace("en: A", f"en: T{name}"))
    build(tmp_path, execute=False)
    assert load(tmp_path, name="01_b").cells[-1].source == (
        "---\n\n[\u2190 T00_a](00_a.ipynb) \u00b7 [T02_c \u2192](02_c.ipynb) \u00b7 "
        "[zh: \u7532](../zh/01_b.ipynb)"
    )
    first, last = (load(tmp_path, "zh", name).cells[-1].source for name in ("00_a", "02_c"))
    assert "\u2190" not in first
    assert "\u2192" not in last
    assert "[en: T00_a](../en/00_a.ipynb)" in first


def test_labs_stand_in_their_own_folder(tmp_path: Path) -> None:
    write(tmp_path, PARAMETERS, prose())
    write(tmp_path, PARAMETERS, prose(), name="labs/00_ring")
    written = [path.relative_to(tmp_path).as_posix() for path in build(tmp_path, execute=False)]
    assert written[2:] == ["notebooks/labs/en/00_ring.ipynb", "notebooks/labs/zh/00_ring.ipynb"]
    assert not found(tmp_path, "labs/00_ring.md:1: a lesson has 40")
    lab = tmp_path / "notebooks/labs/en/00_ring.ipynb"
    assert "00_a" not in lab.read_text(encoding="utf-8")


def test_only_named_lessons_are_built(tmp_path: Path) -> None:
    for name in ("00_a", "01_b"):
        write(tmp_path, PARAMETERS, name=name)
    assert {path.stem for path in build(tmp_path, ["01_b"], execute=False)} == {"01_b"}
    with pytest.raises(LessonError, match="got 07_x; there are 00_a, 01_b"):
        build(tmp_path, ["07_x"], execute=False)


def test_magics_pass_unharmed(tmp_path: Path) -> None:
    text = "%%ranks 0,2\n# comment\nx = rank\n\n!echo $x\n%env A"
    path = write(tmp_path, PARAMETERS, code(text))
    assert read_lesson(path).code[1].text == text


RULES = {
    "long cell": (code("\n".join(["x = 1"] * 26)), "at most 25 lines, got 26"),
    "median": ("".join([code("\n".join(["x = 1"] * 6))] * 3), "at most 5 lines, got 6"),
    "empty cell": (code(""), "a code cell has code, got none"),
    "few cells": (prose(), "40 to 90 cells in each language, got 2 in en"),
    "many cells": (prose() * 90, "40 to 90 cells in each language, got 91 in zh"),
    "en words": (prose("word " * 121), "in en has at most 120 words, got 121"),
    "zh characters": (prose(zh="\u4e2d" * 241), "in zh has at most 240 characters, got 241"),
    "CJK in code": (code("x = '\u4e2d'"), "same in both languages, got '\u4e2d'"),
    "no lang": (code("x = 1") + "\nWords.\n", 'starts with +++ {"lang": "en"} or'),
    "unknown lang": ('+++ {"lang": "fr"}\n\nMots.\n', "got lang 'fr'"),
    "no zh": ('+++ {"lang": "en"}\n\nWords.\n', "add the counterpart of 'Words.'"),
    "no en": ('+++ {"lang": "zh"}\n\nWords.\n', "add the counterpart of 'Words.'"),
    "order": (prose() + '+++ {"lang": "zh"}\n\nOdd.\n', "add the counterpart of 'Odd.'"),
    "second parameters": (PARAMETERS, "got 2 such cells, 2 such lines"),
}


@pytest.mark.parametrize(("body", "words"), RULES.values(), ids=RULES)
def test_each_rule_gives_one_line(tmp_path: Path, body: str, words: str) -> None:
    write(tmp_path, PARAMETERS, body)
    build(tmp_path, execute=False)
    (line,) = found(tmp_path, words)
    assert line.startswith("notebooks/source/00_a.md:")
    assert "\n" not in line
    assert "; " in line


def test_a_line_number_points_at_the_cell(tmp_path: Path) -> None:
    path = write(tmp_path, PARAMETERS, prose(), code("x = '\u4e2d'"))
    (line,) = found(tmp_path, "same in both languages")
    number = int(line.split(":")[1])
    assert path.read_text().split("\n")[number - 1].startswith("```{code-cell}")


def _store(root: Path, output: Any) -> None:
    notebook = load(root)
    next(c for c in notebook.cells if c.source == "3 + size").outputs = [output]
    nbformat.write(notebook, root / "notebooks/en/00_a.ipynb")


def test_stored_error_is_reported(copy: Path) -> None:
    _store(copy, nbformat.v4.new_output("error", ename="KeyError", evalue="", traceback=[]))
    (line,) = found(copy, "no output is an error, got KeyError")
    assert line.startswith("notebooks/en/00_a.ipynb: cell ")
    assert "'3 + size'" in line


def test_process_ids_want_their_tag(copy: Path) -> None:
    _store(copy, nbformat.v4.new_output("stream", text="rank  pid\n0     4711\n"))
    assert len(found(copy, "tag nbval-ignore-output")) == 1


def test_big_notebook_is_reported(copy: Path) -> None:
    _store(copy, nbformat.v4.new_output("stream", text="x" * 301_000))
    assert len(found(copy, "at most 300 kB, got 3")) == 1


def test_missing_and_orphaned_notebooks_are_reported(copy: Path) -> None:
    english = copy / "notebooks/en"
    (english / "00_a.ipynb").rename(english / "09_old.ipynb")
    (copy / "notebooks/zh/00_a.ipynb").write_text('{"cells": [')
    assert [line.split(":")[0] for line in found(copy, "got none")] == [
        "notebooks/en/00_a.ipynb",
        "notebooks/zh/00_a.ipynb",
        "notebooks/en/09_old.ipynb",
    ]


FRONTS = {
    "none": ("# Title\n", "starts with front matter"),
    "not YAML": ("---\ntitle: [\n---\n", "front matter must be YAML"),
    "one title": (FRONT.replace("  en: A\n", ""), "title must have en and zh"),
    "no minutes": (FRONT.replace("minutes: 5\n", ""), "minutes must be a number"),
    "typo": (FRONT.replace("ranks", "rank"), "got rank; remove it"),
}


@pytest.mark.parametrize(("front", "words"), FRONTS.values(), ids=FRONTS)
def test_wrong_front_matter(tmp_path: Path, front: str, words: str) -> None:
    path = write(tmp_path, PARAMETERS, front=front)
    with pytest.raises(LessonError, match=words):
        read_lesson(path)
    (line,) = found(tmp_path, words)
    assert line.startswith("notebooks/source/00_a.md:1: ")


def test_needs_must_name_a_lesson(tmp_path: Path) -> None:
    write(tmp_path, PARAMETERS, front=FRONT.replace("ranks: 4", "ranks: 4\nneeds: [99_x]"))
    assert len(found(tmp_path, "needs names lessons, got 99_x")) == 1


@pytest.mark.parametrize(
    ("text", "lang", "count"),
    [
        ("## Two words", "en", 2),
        ("A [link](https://example.org/a_b) and $a + b$.", "en", 4),
        ("| a | b |\n|---|---|\n| 1 | 2 |", "en", 4),
        ("\u8fdb\u7a0b\uff08rank\uff09\u3002", "zh", 6),
        ("\u901f\u5ea6 $2 \\frac{K-1}{K} S$", "zh", 3),
    ],
)
def test_length_of_prose(text: str, lang: str, count: int) -> None:
    assert length(text, lang) == count


@pytest.mark.parametrize("package", ["jupytext.myst", "nbclient.exceptions"])
def test_missing_package_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    write(tmp_path, PARAMETERS)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(LessonError, match=r"pip install -e '\.\[test\]'"):
        build(tmp_path)
