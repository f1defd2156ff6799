"""Topology tables among the lines, as `coursekit.topology` reads them."""

from __future__ import annotations

from coursekit.diagnose._facts import Facts
from coursekit.topology import Finding, Table, TopologyError, findings, parse


def tables(facts: Facts) -> list[Table]:
    """Every source's table; lines that only look like one are left alone."""
    found = []
    for lines in facts.tables.values():
        # A header and a row at least, or it is somebody's line that begins with GPU0.
        if len(lines) > 1:
            try:
                table = parse("\n".join(lines))
            except TopologyError:
                continue
            if table.pairs or table.rows:
                found.append(table)
    return found


def told(facts: Facts) -> list[tuple[Finding, str, str]]:
    """Findings with the source and the first line of their table."""
    names = [e.fields["gpu"] for e in facts.of("gpu.name")]
    gpu = facts.gpu or (names[0] if names else "")
    found = []
    for source, lines in facts.tables.items():
        if len(lines) < 2:
            continue
        try:
            table = parse("\n".join(lines))
        except TopologyError:
            continue
        if table.rows:
            found += [(f, source, lines[0].strip()) for f in findings(table, gpu)]
    return found
