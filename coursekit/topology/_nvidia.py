"""`nvidia-smi topo -m`, `-mp` and `-p2p`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from coursekit.topology.table import Note, Pair, Table, connected

# Devices by name: GPUs, NICs, and the names that older drivers print for network cards.
_DEVICE = r"GPU\d+|NIC\d+|mlx\d+(?:_bond)?_\d+|bnxt_re\d+|irdma\d+|hfi\d_\d+|rdmap\w+"
_TITLES = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
_HEAD = re.compile(rf"\s*(?:({_DEVICE})(?![a-z])|(CPU +Affinity|NUMA +Affinity|GPU +NUMA +ID))")
_LABEL = re.compile(rf"\s*({_DEVICE})\s*(?=\s|X|NV\d|P[IXH][XB]|NODE|SYS|SOC|OK|NS|$)")
_CELL = re.compile(r"\s*(NV\d{1,2}|PIX|PXB|PHB|NODE|SYS|SOC|X)")
_STATUS = re.compile(r"\s*(OK|CNS|GNS|TNS|NS|X|U)")
_LEGEND = re.compile(r"\s*(NIC\d+)\s*:\s*(\S+)\s*$")
_GLUED = re.compile(
    r"(?:NODE|SYS|SOC|P[IXH][XB])(?:NODE|SYS|SOC|P[IXH][XB]|NV\d|X\b)|NV\d+(?=[NPSX])"
)


@dataclass
class _Row:
    label: str
    cells: list[str]
    rest: str


@dataclass
class _Block:
    """A header and the rows below it, until the next header."""

    columns: list[str]
    titles: list[str]
    rows: list[_Row] = field(default_factory=list)


def read(lines: list[str], notes: list[Note]) -> Table | None:
    blocks = _blocks(lines, notes)
    links = [b for b in blocks if not _is_status(b)]
    states = [b for b in blocks if _is_status(b)]
    if not links and not states:
        return None
    main = links[0] if links else _Block(list(states[0].columns), [])
    if len(links) > 1:
        notes.append(Note("header", f"{len(links)} tables of links: only the first was read"))
    columns = main.columns
    gpus = tuple(c for c in columns if c.startswith("GPU"))
    found = _links(main, notes)
    cpus, numa, own = _affinities(main)
    rows = tuple(dict.fromkeys(r.label for r in main.rows if r.label in gpus))
    nics = tuple(c for c in columns if not c.startswith("GPU"))
    return Table(
        "nvidia", gpus, nics, rows, found, _assume(gpus, rows, found, notes), cpus, numa, own,
        {m[1]: m[2] for line in lines if (m := _LEGEND.match(line)) and m[1] in nics},
        {k: v for b in states for k, v in _states(b, notes).items()}, {}, tuple(notes),
    )  # fmt: skip


def _blocks(lines: list[str], notes: list[Note]) -> list[_Block]:
    blocks: list[_Block] = []
    loose: list[str] = []
    for line in lines:
        if head := _header(line, notes):
            blocks.append(head)
        elif label := _LABEL.match(line):
            if blocks:
                blocks[-1].rows.append(_row(blocks[-1], label[1], line[label.end() :], notes))
            else:
                loose.append(line)
    if loose and not blocks:
        blocks += _headless(loose, notes)
    elif loose:
        notes.append(Note("row", f"{len(loose)} rows stand before any header and were left out"))
    return [b for b in blocks if b.rows]


def _header(line: str, notes: list[Note]) -> _Block | None:
    """A line of device names and titles only, with GPU first."""
    if not re.match(r"\s*GPU\d+", line):
        return None
    columns, titles, at, glued = [], [], 0, False
    while found := _HEAD.match(line, at):
        glued |= at > 0 and not found[0][:1].isspace()
        columns += [found[1]] if found[1] else []
        titles += [re.sub(" +", " ", found[2])] if found[2] else []
        at = found.end()
    rest = line[at:].strip()
    first_cell = _CELL.match(rest) or _STATUS.match(rest)
    if first_cell and len(columns) < 2:
        return None
    if rest and not columns[1:] and not titles:
        return None
    if len(columns) != len(set(columns)):
        notes.append(Note("header", "a device has two columns; the table was left out"))
        return None
    if glued:
        notes.append(Note("glued", "column titles are glued together"))
    if rest:
        notes.append(Note("header", f"after the columns stands {rest[:40]!r}, which was not read"))
    return _Block(columns, titles)


def _headless(lines: list[str], notes: list[Note]) -> list[_Block]:
    """Rows alone: the columns are the rows' own names where each has its X in its place."""
    labels = [m[1] for line in lines if (m := _LABEL.match(line))]
    if len(labels) != len(set(labels)) or not labels or not labels[0].startswith("GPU"):
        notes.append(Note("header", "there is no header, and the rows do not say their columns"))
        return []
    block = _Block(labels, [])
    for line, label in zip(lines, labels, strict=True):
        found = _LABEL.match(line)
        assert found
        block.rows.append(_row(block, label, line[found.end() :], notes))
    if not all(r.cells[i : i + 1] == ["X"] for i, r in enumerate(block.rows)):
        notes.append(Note("header", "there is no header, and the rows do not say their columns"))
        return []
    notes.append(Note("header", "there is no header; columns are the rows' names, as each X says"))
    return [block]


def _row(block: _Block, label: str, text: str, notes: list[Note]) -> _Row:
    """As many cells as there are columns; what stands behind them is affinity."""
    status = bool(_STATUS.match(text)) and not _CELL.match(text)
    if _CELL.match(text) and re.match(r"\s*X\s", text):
        words = set(text.split()) - {"X"}
        status = bool(words) and words <= {"OK", "CNS", "GNS", "TNS", "NS", "U"}
    pattern = _STATUS if status else _CELL
    cells: list[str] = []
    at = 0
    while len(cells) < len(block.columns) and (found := pattern.match(text, at)):
        cells.append(found[1])
        at = found.end()
    if not status and _GLUED.search(text[:at]):
        notes.append(Note("glued", f"cells of row {label} are glued together"))
    if len(cells) < len(block.columns) and at == len(text) and cells and cells[-1][:2] == "NV":
        # Cut behind NV1, it may have been NV12.
        cells.pop()
    if len(cells) < len(block.columns):
        have = f"{len(cells)} of {len(block.columns)} cells"
        notes.append(Note("cut", f"row {label} has {have}"))
    return _Row(label, cells, text[at:])


def _is_status(block: _Block) -> bool:
    words = {c for r in block.rows for c in r.cells} - {"X"}
    return bool(words) and words <= {"OK", "CNS", "GNS", "TNS", "NS", "U"}


def _sound(block: _Block, notes: list[Note]) -> list[_Row]:
    """Rows of known devices, once each, whose X stands in their own column."""
    kept: dict[str, _Row] = {}
    spoilt: set[str] = set()
    for row in block.rows:
        if row.label not in block.columns:
            notes.append(Note("row", f"row {row.label} has no column and was left out"))
            continue
        own = block.columns.index(row.label)
        marks = [i for i, cell in enumerate(row.cells) if cell == "X"]
        if marks != [own] and (marks or len(row.cells) > own):
            notes.append(Note("row", f"row {row.label} does not fit its columns and was left out"))
        elif row.label in kept and kept[row.label].cells != row.cells:
            notes.append(Note("contradiction", f"two rows {row.label} differ; both were left out"))
            spoilt.add(row.label)
        else:
            kept[row.label] = row
    return [row for label, row in kept.items() if label not in spoilt]


def _links(block: _Block, notes: list[Note]) -> dict[Pair, str]:
    said: dict[Pair, str] = {}
    for row in _sound(block, notes):
        for column, cell in zip(block.columns, row.cells, strict=False):
            if cell != "X":
                said[row.label, column] = cell
    found: dict[Pair, str] = {}
    for (a, b), kind in said.items():
        if said.get((b, a), kind) == kind:
            found[a, b] = found[b, a] = kind
        elif a < b:
            text = f"{a}-{b} is {kind} in one row and {said[b, a]} in the other: left out"
            notes.append(Note("contradiction", text))
    return found


def _states(block: _Block, notes: list[Note]) -> dict[Pair, str]:
    return {
        (row.label, column): cell
        for row in _sound(block, notes)
        for column, cell in zip(block.columns, row.cells, strict=False)
        if cell != "X"
    }


def _affinities(block: _Block) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """CPU, NUMA and own-memory columns; a blank one in a container leaves nothing."""
    told: tuple[dict[str, str], ...] = ({}, {}, {})
    for row in block.rows:
        words = row.rest.split()
        if not row.label.startswith("GPU") or not words:
            continue
        # A blank CPU column in front of the others shows as one word too few.
        places = [i for i, title in enumerate(_TITLES) if title in block.titles]
        if len(words) < len(places) and re.fullmatch(r"\d+|N/A", words[0]):
            places = places[len(places) - len(words) :]
        for place, word in zip(places, words, strict=False):
            if word != "N/A":
                told[place][row.label] = word
    return told[0], told[1], told[2]


def _assume(
    gpus: tuple[str, ...], rows: Iterable[str], found: dict[Pair, str], notes: list[Note]
) -> dict[Pair, str]:
    """Pairs between rows that are all missing, where the pairs that are read are all alike."""
    missing = [g for g in gpus if g not in set(rows)]
    kinds = {found[a, b] for a in gpus for b in gpus if (a, b) in found}
    if not missing:
        return {}
    notes.append(Note("cut", f"rows of {', '.join(missing)} are missing"))
    joined = connected(gpus, (p for p in found if p[0] in gpus and p[1] in gpus))
    if len(kinds) != 1 or len(joined) != 1:
        return {}
    kind = kinds.pop()
    put = {(a, b): kind for a in missing for b in missing if a != b and (a, b) not in found}
    if put:
        text = f"{len(put) // 2} pairs without a row are taken to be {kind}, as all others are"
        notes.append(Note("assumed", text))
    return put
