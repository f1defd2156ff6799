"""The rules a lesson keeps so that every page reads the same; each gives one line per breach."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from statistics import median

from nbformat import NotebookNode

from coursekit.lessons._notebook import is_executed
from coursekit.lessons._source import LANG_LINE, LANGS, Cell, Lesson

CODE_LINES = 25
MEDIAN_CODE_LINES = 5
CELLS = range(40, 91)
WORDS = {"en": 120, "zh": 240}
KILOBYTES = 300

_RERUN = "run make lessons"
_UNIT = {"en": "words", "zh": "characters"}
_CJK = re.compile("[\u3000-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uffef]")
_FORMULA = re.compile(r"\$\$.+?\$\$|\$[^$\n]+\$", re.DOTALL)
_UNSEEN = re.compile(r"<!--.*?-->|</?[a-zA-Z][^>]*>|(?<=\])\([^)\s]*\)", re.DOTALL)
_PID = re.compile(r"\bpid\b", re.IGNORECASE)


def length(text: str, lang: str) -> int:
    """How long prose is: words in English; characters in Chinese, where a Latin word counts one.

    A formula counts as one word; link targets, tags and table rules do not count.
    """
    seen = _UNSEEN.sub(" ", _FORMULA.sub(" x ", text))
    glyphs = len(_CJK.findall(seen)) if lang == "zh" else 0
    words = _CJK.sub(" ", seen) if lang == "zh" else seen
    return glyphs + sum(any(map(str.isalnum, word)) for word in words.split())


def source_problems(lesson: Lesson, names: Sequence[str]) -> Iterator[str]:
    """What is wrong with the text of `lesson`; `names` are the lessons it may need."""
    for name in lesson.needs:
        if name not in names:
            yield _at(lesson, 1, f"needs names lessons, got {name}; there are {', '.join(names)}")
    yield from _parameter_problems(lesson)
    yield from _pair_problems(lesson)
    for cell in lesson.cells:
        yield from _code_problems(lesson, cell) if cell.kind == "code" else ()
        yield from _prose_problems(lesson, cell) if cell.kind == "markdown" else ()
    if lesson.code and (middle := median(map(_lines, lesson.code))) > MEDIAN_CODE_LINES:
        rule = f"the median code cell has at most {MEDIAN_CODE_LINES} lines"
        yield _at(lesson, 1, f"{rule}, got {middle:g}; split cells or move code into coursekit")
    for lang in LANGS:
        count = len(lesson.in_language(lang))
        if not lesson.is_lab and count not in CELLS:
            rule = f"a lesson has {CELLS[0]} to {CELLS[-1]} cells"
            yield _at(lesson, 1, f"{rule} in each language, got {count} in {lang}; split or extend")


def notebook_problems(
    lesson: Lesson, lang: str, path: Path, notebook: NotebookNode
) -> Iterator[str]:
    """What is wrong with a built notebook: outputs missing, of other code, failed, too big."""
    for number, cell in enumerate(notebook.cells, 1):
        if cell.cell_type == "code":
            where = f"{path}: cell {number} ({_first_line(cell.source)})"
            yield from (f"{where}: {problem}" for problem in _output_problems(cell))
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if all(cell.execution_count for cell in code) and not is_executed(notebook, lesson):
        yield f"{path}: outputs come from the code as it is, got those of older code; " + _RERUN
    size = path.stat().st_size / 1000
    if size > KILOBYTES:
        rule = f"a notebook has at most {KILOBYTES} kB"
        yield f"{path}: {rule}, got {size:.0f} kB; thin out the largest figure"


def _parameter_problems(lesson: Lesson) -> Iterator[str]:
    cells = [cell for cell in lesson.code if "parameters" in cell.tags]
    lines = [line.strip() for cell in cells for line in cell.text.split("\n")]
    if len(cells) != 1 or lines.count(LANG_LINE) != 1:
        rule = f"one code cell is tagged parameters and has one line {LANG_LINE}"
        got = f"{len(cells)} such cells, {lines.count(LANG_LINE)} such lines"
        yield _at(lesson, cells[0].line if cells else 1, f"{rule}, got {got}; write it")


def _pair_problems(lesson: Lesson) -> Iterator[str]:
    """Between two code cells, prose must go en, zh, en, zh; a cell without lang is told apart."""
    for kind, group in groupby(lesson.cells, key=lambda cell: cell.kind):
        prose = [cell for cell in group if cell.lang in LANGS]
        wanted = [LANGS[number % 2] for number in range(len(prose) + len(prose) % 2)]
        got = [cell.lang for cell in prose]
        if kind == "markdown" and got != wanted:
            odd = next((n for n, cell in enumerate(prose) if cell.lang != wanted[n]), -1)
            cell = prose[odd]
            rule = "each en cell is followed by its zh cell"
            yield _at(
                lesson,
                cell.line,
                f"{rule}, got {' '.join(map(str, got))} between two code cells; "
                f"add the counterpart of {_first_line(cell.text)}",
            )


def _code_problems(lesson: Lesson, cell: Cell) -> Iterator[str]:
    if (count := _lines(cell)) > CODE_LINES:
        rule = f"a code cell has at most {CODE_LINES} lines"
        yield _at(lesson, cell.line, f"{rule}, got {count}; split it or move code into coursekit")
    if count == 0:
        yield _at(lesson, cell.line, "a code cell has code, got none; delete the cell")
    if found := _CJK.search(cell.text):
        rule = "code cells are the same in both languages"
        yield _at(lesson, cell.line, f"{rule}, got {found[0]!r}; move the words into data/*.yaml")


def _prose_problems(lesson: Lesson, cell: Cell) -> Iterator[str]:
    if cell.lang not in LANGS:
        rule = 'a prose cell starts with +++ {"lang": "en"} or {"lang": "zh"}'
        yield _at(lesson, cell.line, f"{rule}, got lang {cell.lang!r}; write that line above it")
    elif (count := length(cell.text, cell.lang)) > WORDS[cell.lang]:
        unit = _UNIT[cell.lang]
        rule = f"a prose cell in {cell.lang} has at most {WORDS[cell.lang]} {unit}"
        yield _at(lesson, cell.line, f"{rule}, got {count}; split or shorten it")


def _output_problems(cell: NotebookNode) -> Iterator[str]:
    tags = cell.metadata.get("tags", [])
    if not cell.execution_count:
        yield f"a code cell has run, got no stored run; {_RERUN}"
    errors = [output for output in cell.outputs if output.output_type == "error"]
    if errors and "raises-exception" not in tags:
        yield f"no output is an error, got {errors[0].ename}; mend the cell or tag raises-exception"
    if "nbval-ignore-output" not in tags and any(map(_shows_pid, cell.outputs)):
        yield "an output with process ids is not compared, got no tag; tag nbval-ignore-output"


def _shows_pid(output: NotebookNode) -> bool:
    data = output.get("data", {})
    texts = [output.get("text", ""), data.get("text/plain", ""), data.get("text/html", "")]
    return any(_PID.search(text) for text in texts)


def _lines(cell: Cell) -> int:
    return sum(bool(line.strip()) for line in cell.text.split("\n"))


def _first_line(text: str) -> str:
    return repr(text.strip().split("\n")[0][:40])


def _at(lesson: Lesson, line: int, problem: str) -> str:
    return f"{lesson.path}:{line}: {problem}"
