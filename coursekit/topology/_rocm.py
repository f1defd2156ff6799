"""`rocm-smi --showtopo`: blocks of weights, hops, link types, and NUMA nodes."""

from __future__ import annotations

import re

from coursekit.topology.table import Note, Pair, Table

_BLOCKS = {"Weight": "weight", "Hops": "hops", "Link Type": "type"}
_TITLE = re.compile(r"=+\s*(Weight|Hops|Link Type) between two GPUs\s*=+")
_NUMA = re.compile(r"\s*GPU\[(\d+)\]\s*:.*Numa Node:\s*(-?\d+)")
_ROW = re.compile(r"\s*(GPU\d+)\s+(\S.*)")


def is_one(lines: list[str]) -> bool:
    return any(_TITLE.match(line) for line in lines)


def read(lines: list[str], notes: list[Note]) -> Table | None:
    parts: dict[str, dict[Pair, str]] = {name: {} for name in _BLOCKS.values()}
    gpus: list[str] = []
    rows: dict[str, None] = {}
    part = ""
    columns: list[str] = []
    for line in lines:
        if title := _TITLE.match(line):
            part, columns = _BLOCKS[title[1]], []
        elif line.lstrip().startswith("="):
            part = ""
        elif part and re.fullmatch(r"\s*(GPU\d+\s*)+", line) and not columns:
            columns = line.split()
            gpus += [c for c in columns if c not in gpus]
        elif part and columns and (row := _ROW.match(line)):
            _take(parts[part], row[1], row[2].split(), columns, rows, notes)
    if not gpus or not rows:
        return None
    links = _join(parts, gpus, notes)
    hops = {pair: int(h) for pair, h in parts["hops"].items() if h.isdigit() and pair in links}
    numa = {f"GPU{m[1]}": m[2] for line in lines if (m := _NUMA.match(line))}
    return Table(
        "amd", tuple(gpus), (), tuple(rows), links, numa=numa, hops=hops, notes=tuple(notes)
    )


def _take(
    part: dict[Pair, str], label: str, cells: list[str], columns: list[str],
    rows: dict[str, None], notes: list[Note],
) -> None:  # fmt: skip
    if label not in columns:
        notes.append(Note("row", f"row {label} has no column and was left out"))
        return
    if len(cells) < len(columns):
        notes.append(Note("cut", f"row {label} has {len(cells)} of {len(columns)} cells"))
    own = columns.index(label)
    if len(cells) > len(columns) or (len(cells) > own and cells[own] not in ("0", "XXXX")):
        notes.append(Note("row", f"row {label} does not fit its columns and was left out"))
        return
    rows[label] = None
    for column, cell in zip(columns, cells, strict=False):
        if column == label:
            continue
        if part.setdefault((label, column), cell) != cell:
            notes.append(Note("contradiction", f"two rows {label} differ at {column}"))
            part[label, column] = ""


def _join(parts: dict[str, dict[Pair, str]], gpus: list[str], notes: list[Note]) -> dict[Pair, str]:
    """The type with its weight; both rows of a pair must agree, and both blocks be there."""
    found: dict[Pair, str] = {}
    for a in gpus:
        for b in gpus:
            kinds = {parts["type"].get(p, "") for p in ((a, b), (b, a))} - {""}
            weights = {parts["weight"].get(p, "") for p in ((a, b), (b, a))} - {""}
            if a >= b or not kinds:
                continue
            if len(kinds) > 1 or len(weights) > 1:
                notes.append(Note("contradiction", f"{a}-{b} differs between its rows: left out"))
                continue
            kind, weight = kinds.pop(), weights.pop() if weights else ""
            if re.fullmatch(r"XGMI|PCIE", kind) and re.fullmatch(r"\d*", weight):
                name = f"{kind}/w{weight}" if weight else kind
                found[a, b] = found[b, a] = name
    return found
