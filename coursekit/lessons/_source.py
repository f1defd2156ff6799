"""A lesson as it is written: front matter and cells of one MyST text."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

LANGS = ("en", "zh")
LANG_LINE = 'lang = "en"'

_KEYS = {"title", "minutes", "ranks", "needs", "trial"}
_EDITOR_KEYS = {"jupytext", "kernelspec"}


class LessonError(ValueError):
    """A lesson that cannot be read, built or run; the message says what to do next."""


@dataclass(frozen=True)
class Cell:
    """One cell of the source. `lang` is None for code; `line` counts from 1."""

    kind: str
    text: str
    line: int
    id: str
    lang: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tags(self) -> tuple[str, ...]:
        """The cell's tags, such as `parameters` or `nbval-ignore-output`."""
        return tuple(self.metadata.get("tags", ()))


@dataclass(frozen=True)
class Lesson:
    """One lesson: its front matter and its cells, both languages in the order of the source."""

    path: Path
    title: Mapping[str, str]
    minutes: int
    ranks: int
    needs: tuple[str, ...]
    trial: Mapping[str, Any]
    cells: tuple[Cell, ...]

    @property
    def name(self) -> str:
        """The file name without its ending, such as `00_why_one_gpu_is_not_enough`."""
        return self.path.stem

    @property
    def is_lab(self) -> bool:
        """Whether the source stands in `source/labs`."""
        return self.path.parent.name == "labs"

    @property
    def code(self) -> tuple[Cell, ...]:
        """The code cells, which both languages share."""
        return tuple(cell for cell in self.cells if cell.kind == "code")

    @property
    def code_digest(self) -> str:
        """A digest of all code in order: outputs belong to the code that has the same one."""
        return _digest("\n".join(cell.id for cell in self.code), 16)

    def in_language(self, lang: str) -> tuple[Cell, ...]:
        """The cells of one language's notebook: its prose and all code."""
        return tuple(cell for cell in self.cells if cell.kind == "code" or cell.lang == lang)


def source_paths(root: Path) -> list[Path]:
    """The sources of all lessons, then of all labs, each in reading order."""
    source = root / "notebooks" / "source"
    found = [*sorted(source.glob("*.md")), *sorted((source / "labs").glob("*.md"))]
    return [path for path in found if path.name != "README.md"]


def read_lesson(path: Path) -> Lesson:
    """Read one MyST source.

    Raises:
        LessonError: the front matter or a cell cannot be read.
    """
    head, body = _split(path)
    title = head.get("title")
    if not isinstance(title, dict) or set(title) != set(LANGS):
        raise LessonError(f"{path}:1: title must have en and zh, got {title!r}; write both")
    return Lesson(
        path=path,
        title={lang: str(title[lang]) for lang in LANGS},
        minutes=_count(path, head, "minutes"),
        ranks=_count(path, head, "ranks"),
        needs=tuple(head.get("needs") or ()),
        trial=dict(head.get("trial") or {"size": 3}),
        cells=tuple(_identified(_parse(path, body))),
    )


def _split(path: Path) -> tuple[dict[str, Any], str]:
    """Front matter as a dict, and the rest with its line numbers kept.

    Jupytext never sees our front matter: nbformat allows a title only as one string.
    """
    head, fence, body = path.read_text(encoding="utf-8").partition("\n---\n")
    if not head.startswith("---\n") or not fence:
        raise LessonError(
            f"{path}:1: a lesson starts with front matter between two lines ---, got none; "
            "copy the one in notebooks/source/README.md"
        )
    try:
        values = yaml.safe_load(head.removeprefix("---\n"))
    except yaml.YAMLError as error:
        raise LessonError(f"{path}:1: front matter must be YAML, got {_flat(error)}") from error
    if not isinstance(values, dict):
        raise LessonError(f"{path}:1: front matter must be keys and values, got {values!r}")
    if unknown := set(values) - _KEYS - _EDITOR_KEYS:
        raise LessonError(
            f"{path}:1: front matter may have {', '.join(sorted(_KEYS))}, "
            f"got {', '.join(sorted(unknown))}; remove it"
        )
    return values, "\n" * (head.count("\n") + 2) + body


def _count(path: Path, head: Mapping[str, Any], key: str) -> int:
    value = head.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise LessonError(f"{path}:1: {key} must be a number of at least 1, got {value!r}; set it")
    return value


def _parse(path: Path, body: str) -> list[Cell]:
    try:
        from jupytext.myst import (  # type: ignore[import-untyped]
            MystMetadataParsingError,
            myst_to_notebook,
        )
    except ImportError as error:
        raise LessonError(
            "building lessons needs jupytext, which is not installed; run: pip install -e '.[test]'"
        ) from error
    try:
        notebook = myst_to_notebook(body, add_source_map=True)
    except (MystMetadataParsingError, yaml.YAMLError) as error:
        raise LessonError(f"{path}: {_flat(error)}; mend that cell's metadata") from error
    lines: Sequence[int] = notebook.metadata["source_map"]
    return [_cell(raw, line) for raw, line in zip(notebook.cells, lines, strict=True)]


def _cell(raw: Any, line: int) -> Cell:
    metadata = dict(raw.metadata)
    lang = metadata.pop("lang", None) if raw.cell_type == "markdown" else None
    return Cell(raw.cell_type, raw.source, line, "", lang, metadata)


def _identified(cells: Sequence[Cell]) -> Iterator[Cell]:
    """Give each cell an id from its text as written, so that ids are equal across languages."""
    seen: Counter[str] = Counter()
    for cell in cells:
        digest = _digest(f"{cell.kind}\n{cell.text}", 12)
        seen[digest] += 1
        suffix = f"-{seen[digest]}" if seen[digest] > 1 else ""
        yield Cell(cell.kind, cell.text, cell.line, digest + suffix, cell.lang, cell.metadata)


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def _flat(error: Exception) -> str:
    return " ".join(str(error).split())
