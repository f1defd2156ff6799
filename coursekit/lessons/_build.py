"""The two things one does with lessons: build them and check them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from coursekit.lessons._execute import execute as run_notebook
from coursekit.lessons._notebook import (
    assemble,
    is_executed,
    notebook_path,
    read_notebook,
    serialise,
    write_whole,
)
from coursekit.lessons._rules import notebook_problems, source_problems
from coursekit.lessons._source import LANGS, Lesson, LessonError, read_lesson, source_paths


def build(
    root: Path, names: Sequence[str] | None = None, *, execute: bool = True, force: bool = False
) -> list[Path]:
    """Build the notebooks of the named lessons (all when `names` is None) in both languages.

    A notebook is run only when its code changed or an output is missing; `force` runs all.
    With `execute=False` nothing runs: known outputs are carried over, new cells stay empty.

    Returns:
        The notebooks that were written; those already up to date are left alone.

    Raises:
        LessonError: a name or source is wrong, or a cell failed. No notebook is left half written.
    """
    lessons = [read_lesson(path) for path in source_paths(root)]
    written = []
    for lesson in _chosen(lessons, names):
        for lang in LANGS:
            path = notebook_path(lesson, lang)
            text = _built(lesson, lang, _shelf(lesson, lessons), execute=execute, force=force)
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                write_whole(path, text)
                written.append(path)
    return written


def check(root: Path) -> list[str]:
    """Everything that is wrong with the lessons and their notebooks, one line each.

    A line names the file, the place, the rule, what was got, and the next step. Nothing is run.
    """
    lessons, problems = [], []
    for path in source_paths(root):
        try:
            lessons.append(read_lesson(path))
        except LessonError as error:
            problems.append(str(error))
    for lesson in lessons:
        problems += source_problems(lesson, [other.name for other in lessons])
        for lang in LANGS:
            problems += _notebook_state(lesson, lang, _shelf(lesson, lessons))
    problems += _orphans(root)
    return [line.replace(f"{root}/", "") for line in problems]


def _chosen(lessons: Sequence[Lesson], names: Sequence[str] | None) -> list[Lesson]:
    known = {lesson.name: lesson for lesson in lessons}
    if unknown := set(names or ()) - set(known):
        raise LessonError(
            f"a lesson is named like its source, got {', '.join(sorted(unknown))}; "
            f"there are {', '.join(known) or 'none yet'}"
        )
    return [known[name] for name in (known if names is None else names)]


def _shelf(lesson: Lesson, lessons: Sequence[Lesson]) -> list[Lesson]:
    return [other for other in lessons if other.is_lab == lesson.is_lab]


def _built(
    lesson: Lesson, lang: str, shelf: Sequence[Lesson], *, execute: bool, force: bool
) -> str:
    path = notebook_path(lesson, lang)
    notebook = assemble(lesson, lang, shelf, read_notebook(path))
    if execute and (force or not is_executed(notebook, lesson)):
        run = assemble(lesson, lang, shelf, None)
        run_notebook(run, lesson, path.parent)
        # Assembled once more: whatever a run leaves behind is cleaned in one place.
        notebook = assemble(lesson, lang, shelf, run)
    return serialise(notebook)


def _notebook_state(lesson: Lesson, lang: str, shelf: Sequence[Lesson]) -> Iterator[str]:
    path = notebook_path(lesson, lang)
    stored = read_notebook(path)
    if stored is None:
        yield f"{path}: each lesson has its notebook, got none that can be read; run make lessons"
        return
    wanted = assemble(lesson, lang, shelf, stored)
    if path.read_text(encoding="utf-8") != serialise(wanted):
        yield f"{path}: a notebook is what its source gives, got another text; run make lessons"
    yield from notebook_problems(lesson, lang, path, wanted)


def _orphans(root: Path) -> Iterator[str]:
    notebooks = root / "notebooks"
    sources = {(path.parent.name == "labs", path.stem) for path in source_paths(root)}
    for folder in (notebooks, notebooks / "labs"):
        for lang in LANGS:
            for path in sorted((folder / lang).glob("*.ipynb")):
                if (folder.name == "labs", path.stem) not in sources:
                    yield f"{path}: a notebook has a source, got none; write it or delete this file"
