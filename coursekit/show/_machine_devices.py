"""Devices of a machine as markers with names."""

from __future__ import annotations

import plotly.graph_objects as go

from coursekit.i18n import text
from coursekit.show._machine_places import Places
from coursekit.show._template import INK, PALETTE
from coursekit.topology import Topology

# With more network cards than that their names stand under the pointer only.
LABELLED = 4
LOOKS = {  # symbol, size, colour
    "gpu": ("square", 34, PALETTE[0]),
    "nic": ("square", 13, PALETTE[2]),
    "pcie": ("circle", 14, INK),
    "cpu": ("square", 30, PALETTE[1]),
    "leaf": ("circle", 18, PALETTE[0]),
    "spine": ("circle", 26, PALETTE[0]),
}
BESIDE = {"gpu": "middle center", "cpu": "middle center", "nic": "middle right"}


def devices(machine: Topology, where: Places) -> list[go.Scatter]:
    """A marker a device; its name is on it, beside it, or under the pointer."""
    traces = []
    for kind, (symbol, size, colour) in LOOKS.items():
        names = [n for n in where.at if machine.kind(n) == kind]
        if not names:
            continue
        many = machine.size > 16
        traces.append(go.Scatter(
            x=[round(where.at[n][0], 3) for n in names],
            y=[round(where.at[n][1], 3) for n in names],
            mode="markers+text",
            marker={"symbol": symbol, "size": size * (0.6 if many and kind == "gpu" else 1),
                    "color": colour, "line": {"width": 0}},
            text=[_label(machine, n, many) for n in names],
            textposition=BESIDE.get(kind, "bottom center"),
            textfont={"size": 11 if kind in ("gpu", "cpu") else 10,
                      "color": "#ffffff" if kind in ("gpu", "cpu") else INK},
            hovertext=[_hover(machine, n) for n in names],
            hovertemplate="%{hovertext}<extra></extra>",
            showlegend=False,
        ))  # fmt: skip
    return traces


def _label(machine: Topology, name: str, many: bool) -> str:
    kind, short = machine.kind(name), name.rpartition(".")[2]
    if kind == "gpu":
        return short.replace("GPU", "" if many else "GPU<br>")
    if kind == "cpu":
        return short.replace("cpu", "CPU<br>")
    if kind == "nic":
        return short if sum(machine.kind(n) == "nic" for n in machine.graph) <= LABELLED else ""
    return text(f"machine.{kind}") if kind == "spine" else ""


def _hover(machine: Topology, name: str) -> str:
    kind = machine.kind(name)
    if kind == "pcie":
        kind = "bridge" if name.rpartition(".")[2].startswith(("phb", "node")) else "pcie"
    return f"{name}: {text(f'machine.{kind}')}"
