"""The session that the readme shows gives what the readme says, in both languages."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def session(name: str) -> list[tuple[str, str]]:
    """Each cell with the output below it; the cluster's cells come later and are not run here."""
    text = (ROOT / name).read_text("utf-8")
    blocks = BLOCK.findall(text)
    cells = []
    for (kind, body), (after, output) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
        if kind == "python" and "attach" not in body:
            cells.append((body.strip(), output.strip() if after == "text" else ""))
    return cells


def shown(cell: nbformat.NotebookNode) -> str:
    texts = {
        "stream": lambda out: out.text,
        "execute_result": lambda out: out.data["text/plain"],
        "error": lambda out: "\n".join(out.traceback),
    }
    return "".join(texts[out.output_type](out) for out in cell.outputs).strip()


@pytest.mark.parametrize("name", ["README.md", "README.zh.md"])
def test_the_session_is_real(name: str) -> None:
    cells = session(name)
    assert sum(len(code.splitlines()) for code, _ in cells) <= 21
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c, _ in cells])
    NotebookClient(notebook, kernel_name="python3", timeout=120, allow_errors=True).execute()
    assert [shown(cell) for cell in notebook.cells] == [output for _, output in cells]


def test_both_languages_show_the_same_session() -> None:
    assert session("README.md") == session("README.zh.md")
