"""A lesson as a notebook: assembled, with the outputs of an earlier run, always the same bytes."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from coursekit.lessons._source import LANG_LINE, LANGS, Cell, Lesson

NAVIGATION_ID = "navigation"

_HOLE = "coursekit-figure-"

_WIDGET = "application/vnd.jupyter.widget-view+json"
_KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
_LANGUAGE_INFO = {
    "codemirror_mode": {"name": "ipython", "version": 3},
    "file_extension": ".py",
    "mimetype": "text/x-python",
    "name": "python",
    "nbconvert_exporter": "python",
    "pygments_lexer": "ipython3",
}


def notebook_path(lesson: Lesson, lang: str) -> Path:
    """Where the notebook of one language stands: `notebooks/en` or `notebooks/labs/en`."""
    notebooks = lesson.path.parents[2 if lesson.is_lab else 1]
    folder = notebooks / "labs" if lesson.is_lab else notebooks
    return folder / lang / f"{lesson.name}.ipynb"


def read_notebook(path: Path) -> NotebookNode | None:
    """The notebook that is already there; None when there is none that can be read."""
    try:
        notebook: NotebookNode = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    except (FileNotFoundError, nbformat.reader.NotJSONError):
        return None
    return notebook


def assemble(
    lesson: Lesson, lang: str, shelf: Sequence[Lesson], earlier: NotebookNode | None
) -> NotebookNode:
    """The notebook of `lesson` in `lang`, with the outputs that `earlier` has for the same cells.

    `shelf` is the lessons among which previous and next are looked up.
    """
    ran = _executed(earlier)
    cells = [_notebook_cell(cell, lang) for cell in lesson.in_language(lang)]
    for number, cell in enumerate((c for c in cells if c["cell_type"] == "code"), 1):
        if (outputs := ran.get(cell["id"])) is not None:
            cell["execution_count"] = number
            cell["outputs"] = [_clean(output, number) for output in outputs if not _dead(output)]
    course: dict[str, Any] = {
        "lang": lang,
        "lesson": lesson.name,
        "minutes": lesson.minutes,
        "title": lesson.title[lang],
    }
    if (code := code_that_ran(earlier)) is not None:
        course["ran"] = code
    cells.append(_navigation(lesson, lang, shelf))
    return _node(cells, course)


def code_that_ran(notebook: NotebookNode | None) -> str | None:
    """The digest of the code whose outputs `notebook` stores; None when it never ran."""
    course = notebook.metadata.get("coursekit", {}) if notebook else {}
    value = course.get("ran")
    return value if isinstance(value, str) else None


def is_executed(notebook: NotebookNode, lesson: Lesson) -> bool:
    """Whether every output comes from a run of exactly the code of `lesson`."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    everything = all(cell.execution_count for cell in code)
    return everything and code_that_ran(notebook) == lesson.code_digest


def serialise(notebook: NotebookNode) -> str:
    """The text of the file; equal notebooks give equal bytes.

    A figure is one line: with a line for each of its numbers it would be several times as long.
    """
    figures: list[str] = []
    draft = copy.deepcopy(notebook)
    for cell in draft.cells:
        for output in cell.get("outputs", []):
            for kind, content in output.get("data", {}).items():
                if kind.endswith("+json"):
                    output["data"][kind] = f"{_HOLE}{len(figures)}"
                    figures.append(_one_line(content))
    text: str = nbformat.writes(draft, version=nbformat.NO_CONVERT)  # type: ignore[no-untyped-call]
    for number, figure in enumerate(figures):
        text = text.replace(f'"{_HOLE}{number}"', figure, 1)
    return text.rstrip("\n") + "\n"


def _one_line(content: Any) -> str:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def write_whole(path: Path, text: str) -> None:
    """Write `text` so that a reader sees the old file or the new one, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _node(cells: Sequence[dict[str, Any]], course: Mapping[str, Any]) -> NotebookNode:
    metadata = {"coursekit": course, "kernelspec": _KERNELSPEC, "language_info": _LANGUAGE_INFO}
    content = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    node: NotebookNode = nbformat.from_dict(content)  # type: ignore[no-untyped-call]
    return node


def _notebook_cell(cell: Cell, lang: str) -> dict[str, Any]:
    made: dict[str, Any] = {
        "cell_type": cell.kind,
        "id": cell.id,
        "metadata": dict(cell.metadata),
        "source": cell.text,
    }
    if cell.kind == "markdown":
        made["metadata"]["lang"] = lang
    if cell.kind == "code":
        made |= {"execution_count": None, "outputs": []}
    if "parameters" in cell.tags:
        made["source"] = _set_language(cell.text, lang)
    return made


def _set_language(text: str, lang: str) -> str:
    return "\n".join(
        line.replace('"en"', f'"{lang}"', 1) if line.strip() == LANG_LINE else line
        for line in text.split("\n")
    )


def _executed(notebook: NotebookNode | None) -> dict[str, list[NotebookNode]]:
    """Stored outputs by cell id; a cell that never ran is absent, one without output is empty."""
    cells = notebook.cells if notebook else []
    return {
        cell.id: cell.outputs for cell in cells if cell.cell_type == "code" and cell.execution_count
    }


def _dead(output: NotebookNode) -> bool:
    """Whether the output is a widget: without its kernel it would only show an error."""
    return _WIDGET in output.get("data", {})


def _clean(output: NotebookNode, count: int) -> dict[str, Any]:
    kept = {key: value for key, value in output.items() if key != "transient"}
    if output.output_type == "execute_result":
        kept["execution_count"] = count
    return kept


def _navigation(lesson: Lesson, lang: str, shelf: Sequence[Lesson]) -> dict[str, Any]:
    """The closing cell. Titles are its only words, so it needs no translation."""
    names = [other.name for other in shelf]
    here = names.index(lesson.name)
    links = []
    if here > 0:
        before = shelf[here - 1]
        links.append(f"[\N{LEFTWARDS ARROW} {before.title[lang]}]({before.name}.ipynb)")
    if here + 1 < len(shelf):
        after = shelf[here + 1]
        links.append(f"[{after.title[lang]} \N{RIGHTWARDS ARROW}]({after.name}.ipynb)")
    other = next(each for each in LANGS if each != lang)
    links.append(f"[{other}: {lesson.title[other]}](../{other}/{lesson.name}.ipynb)")
    return {
        "cell_type": "markdown",
        "id": NAVIGATION_ID,
        "metadata": {"lang": lang},
        "source": "---\n\n" + " \N{MIDDLE DOT} ".join(links),
    }
