"""How ranks look when they are displayed: a table, as text or HTML, or a few words."""

from __future__ import annotations

import html
from typing import Any

Picture = str | tuple[str, list[list[str]]]
_ALWAYS = ("rank", "pid", "host", "device", "backend", "torch")
_WHERE_KNOWN = ("gpu", "nccl", "mpi")


def rows(backend: str, facts: list[dict[str, Any]]) -> list[list[str]]:
    """The table's cells, its head first."""
    columns = [*_ALWAYS, *(c for c in _WHERE_KNOWN if any(c in f for f in facts))]
    known = [{"backend": backend, **f} for f in facts]
    return [columns, *([str(row.get(c, "?")) for c in columns] for row in known)]


def text(picture: Picture) -> str:
    """As text, in columns."""
    if isinstance(picture, str):
        return picture
    title, table = picture
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    lines = ("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in table)
    return "\n".join([title, *(line.rstrip() for line in lines)])


def page(picture: Picture) -> str:
    """As HTML, for a notebook."""
    if isinstance(picture, str):
        return f"<pre>{html.escape(picture)}</pre>"
    title, (head, *body) = picture
    top = "".join(f"<th>{html.escape(c)}</th>" for c in head)
    lines = ("".join(f"<td>{html.escape(c)}</td>" for c in row) for row in body)
    table = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<p>{html.escape(title)}</p><table><tr>{top}</tr>{table}</table>"
