"""The learner's language: figures and messages take their words from `data/text/*.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coursekit import _data

__all__ = ["LANGUAGES", "language", "pick", "text"]

LANGUAGES = ("en", "zh")

_current = LANGUAGES[0]


def language(lang: str | None = None) -> str:
    """Set the language of everything shown from now on, and return it; only return it for None.

    Raises:
        ValueError: the course does not speak `lang`.
    """
    global _current
    if lang is not None:
        if lang not in LANGUAGES:
            raise ValueError(
                f"lang must be one of {', '.join(LANGUAGES)}, got {lang!r}; try language('en')"
            )
        _current = lang
    return _current


def text(key: str, **values: Any) -> str:
    """The words for `key`, such as `memory.title`: entry `title` of `data/text/memory.yaml`.

    `values` fill the places in braces: `text("memory.over", limit="80 GB")`.

    Raises:
        KeyError: there is no such entry, or it is missing in this language.
    """
    file, _, entry = key.partition(".")
    table: Mapping[str, Any] = _data.load(f"text/{file}.yaml")
    if entry not in table:
        raise KeyError(
            f"a text must stand in data/text/{file}.yaml, got {entry!r}; "
            f"there are {', '.join(sorted(table))}"
        )
    return pick(table[entry], key).format(**values)


def pick(words: Mapping[str, str] | str, what: str = "this text") -> str:
    """The words in the current language; a plain string is the same in all of them.

    Raises:
        KeyError: the current language is missing.
    """
    if isinstance(words, str):
        return words
    if _current not in words:
        raise KeyError(
            f"{what} must have {' and '.join(LANGUAGES)}, got {', '.join(words) or 'neither'}; "
            f"add {_current}"
        )
    return words[_current]
