"""Builds the notebooks: one bilingual MyST text per lesson becomes an English and a Chinese one.

`build` writes `notebooks/en/NAME.ipynb` and `notebooks/zh/NAME.ipynb` from
`notebooks/source/NAME.md` and runs those whose code changed; `check` says what is stale or
breaks a rule. How to write a lesson is told in `notebooks/source/README.md`.

Building needs jupytext and nbclient (`pip install -e '.[test]'`); reading lessons does not.
"""

from coursekit.lessons._build import build, check
from coursekit.lessons._source import Cell, Lesson, LessonError, read_lesson, source_paths

__all__ = ["Cell", "Lesson", "LessonError", "build", "check", "read_lesson", "source_paths"]
