"""``coursekit topo``: what a topology table shows, and the best ring."""

from __future__ import annotations

import json as json_format
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from coursekit.topology.rings import Order
    from coursekit.topology.table import Table

TOOLS = (("nvidia-smi", "topo", "-m"), ("rocm-smi", "--showtopo"))
WAIT = 30.0


class TopoCliError(Exception):
    """A user's mistake: one line on the terminal."""


def topo(
    file: Annotated[
        Path | None, typer.Argument(help="A saved table; - for what is piped in.")
    ] = None,
    gpu: Annotated[str, typer.Option(help="The GPU's name, such as H20, if you know it.")] = "",
    lang: Annotated[str, typer.Option(help="en or zh.")] = "en",
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
) -> None:
    """Read nvidia-smi topo -m or rocm-smi --showtopo: findings, and the best ring.

    Without a file, asks the tools of this machine. Exit code 1 when a finding costs bandwidth.
    """
    from coursekit.i18n import language
    from coursekit.topology import TopologyError, findings, parse

    try:
        language(lang)
        table = parse(_text(file))
    except (TopologyError, ValueError) as error:
        raise TopoCliError(str(error)) from None
    found = findings(table, gpu)
    ring = _ring(table)
    print(_json(table, found, ring) if json else _report(table, found, ring))
    raise typer.Exit(0 if all(f.good or f.id not in _costly() for f in found) else 1)


def _costly() -> tuple[str, ...]:
    from coursekit.topology.findings import COSTLY

    return COSTLY


def _text(file: Path | None) -> str:
    if file is None:
        return _ask()
    if str(file) == "-":
        return sys.stdin.buffer.read().decode("utf-8", "replace")
    try:
        return file.read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise TopoCliError(
            f"a table must be a file that can be read, got {file} ({error.strerror}); "
            "save it with: nvidia-smi topo -m > topo.txt"
        ) from None


def _ask() -> str:
    """What this machine's own tool prints."""
    for command in TOOLS:
        if shutil.which(command[0]):
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, timeout=WAIT, check=True
                )
            except (OSError, subprocess.SubprocessError) as error:
                raise TopoCliError(f"{' '.join(command)} must work, got: {error}") from None
            return done.stdout
    raise TopoCliError(
        "this machine has neither nvidia-smi nor rocm-smi; give a file: coursekit topo topo.txt"
    )


def _ring(table: Table) -> Order | None:
    from coursekit.topology import TopologyError, best_ring, build

    if len(table.gpus) < 2:
        return None
    try:
        return best_ring(build(table))
    except TopologyError:
        return None


def _report(table: Table, found: list[Any], ring: Order | None) -> str:
    classes = ", ".join(f"{count} x {kind}" for kind, count in table.classes.most_common())
    head = f"{len(table.gpus)} GPUs, {len(table.nics)} network cards"
    lines = [head + (f"; pairs: {classes}" if classes else "")]
    lines += [f"  {'ok' if f.good else '--'}  {f}  [{f.id}]" for f in found]
    lines += [f"  ..  {note.text}" for note in table.notes]
    if ring is not None:
        names = " ".join(table.gpus[r] for r in ring.ranks)
        slow = ", ".join(
            f"{table.gpus[a]}-{table.gpus[b]} ({table.link(table.gpus[a], table.gpus[b]) or '?'})"
            for a, b in ring.slowest
        )
        lines += [f"best ring: {names}", f"  its slowest pairs: {slow}"]
    return "\n".join(lines)


def _json(table: Table, found: list[Any], ring: Order | None) -> str:
    told = {
        "vendor": table.vendor,
        "gpus": table.gpus,
        "nics": table.nics,
        "pairs": {f"{a}-{b}": kind for (a, b), kind in table.pairs.items()},
        "findings": [{"id": f.id, "devices": f.devices, "text": str(f)} for f in found],
        "notes": [{"kind": n.kind, "text": n.text} for n in table.notes],
        "best_ring": [table.gpus[r] for r in ring.ranks] if ring else None,
    }
    return json_format.dumps(told, indent=1, ensure_ascii=False)
