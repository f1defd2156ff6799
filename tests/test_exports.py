"""Each package shows what is public in `__all__`, and nothing there lacks its docstring."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import coursekit

FACES = ["coursekit"] + [
    f"coursekit.{m.name}" for m in pkgutil.iter_modules(coursekit.__path__) if m.ispkg
]


@pytest.mark.parametrize("name", FACES)
def test_what_a_face_shows_is_there_and_documented(name: str) -> None:
    face = importlib.import_module(name)
    assert face.__doc__
    assert sorted(set(face.__all__)) == face.__all__
    for export in face.__all__:
        shown = getattr(face, export)
        assert getattr(shown, "__doc__", None) or not callable(shown), f"{name}.{export}"
