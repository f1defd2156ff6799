"""Which algorithm and protocol NCCL chooses, by message size and number of nodes."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from coursekit.cost import nccl
from coursekit.i18n import text
from coursekit.show._axes import size_label, time_label
from coursekit.show._template import figure
from coursekit.show._tint import bands

# One hue an algorithm, from light to dark by protocol: LL, LL128, Simple.
SHADES = {
    "Ring": ("#a9c8f0", "#6c9fdf", "#2f63ab"),
    "Tree": ("#f4c98a", "#e5a04a", "#a8641a"),
    "NVLS": ("#8fd0b5", "#5bb592", "#2b7d5f"),
    "NVLSTree": ("#c9b6e8", "#a78ad6", "#6a4fa8"),
    "PAT": ("#efb2cb", "#dc7ba5", "#a04471"),
    "CollNetDirect": ("#d3d9a0", "#b3bc62", "#7c852f"),
    "CollNetChain": ("#d8bda6", "#ba8f6b", "#84593a"),
}
PROTOCOLS = ("LL", "LL128", "Simple")
SIZES = tuple(1 << power for power in range(10, 35))
NODES = (1, 2, 4, 8, 16, 32, 64)


def winners(
    machine: str | nccl.Machine,
    collective: str = "all_reduce",
    *,
    sizes: Sequence[int] = SIZES,
    nodes: Sequence[int] | None = None,
    version: str = "2.30",
    algo: str | None = None,
    proto: str | None = None,
) -> go.Figure:
    """The cheapest algorithm and protocol of NCCL's model, in colours, over size and nodes.

    Parameters
    ----------
    machine : str or nccl.Machine
        Such as ``h100-8ndr``: see `coursekit.cost.nccl.machines`.
    collective : str
        One that the model prices.
    sizes : sequence of int
        Bytes of the whole buffer.
    nodes : sequence of int, optional
        1 to 64, or 1 where the machine's network is not known.
    version, algo, proto : str
        As in `coursekit.cost.nccl.choose`.

    Raises
    ------
    NcclError
        As `coursekit.cost.nccl.choose`; also for no sizes or nodes.

    Examples
    --------
    >>> show.winners("h100-8ndr")
    """
    found = nccl.machine(machine)
    rows = list(nodes if nodes is not None else NODES if found.network else NODES[:1])
    if not rows or not sizes:
        raise nccl.NcclError("sizes and nodes must name something, got none; try nodes=[1, 2, 4]")
    cells = [[_best(found, collective, size, n, version, algo, proto) for size in sizes]
             for n in rows]  # fmt: skip
    seen = {name for row in cells for name, _ in row}
    names = [f"{a} {p}" for a in SHADES for p in PROTOCOLS if f"{a} {p}" in seen]
    shades = [SHADES[a][PROTOCOLS.index(p)] for a, p in (name.split() for name in names)]
    drawn = figure(
        title={"text": text("machine.wins", collective=collective, machine=found.name,
                            version=version)},
        height=160 + 44 * max(2, len(rows)),
        margin={"t": 92, "b": 56},
        xaxis={"title": {"text": text("machine.size")}, "showgrid": False,
               "tickvals": list(range(0, len(sizes), 4)),
               "ticktext": [size_label(s) for s in sizes[::4]]},
        yaxis={"title": {"text": text("machine.nodes", n=found.network_ranks[-1]
                                      if found.network else found.ranks[-1])},
               "showgrid": False, "tickvals": list(range(len(rows))),
               "ticktext": list(map(str, rows))},
    )  # fmt: skip
    drawn.add_heatmap(
        z=[[names.index(name) for name, _ in row] for row in cells],
        zmin=-0.5, zmax=len(names) - 0.5, colorscale=bands(shades), showscale=False,
        text=[[told for _, told in row] for row in cells],
        hovertemplate="%{text}<extra></extra>", xgap=1, ygap=1,
    )  # fmt: skip
    for name, shade in zip(names, shades, strict=True):
        drawn.add_scatter(x=[None], y=[None], mode="markers", name=name,
                          marker={"symbol": "square", "size": 13, "color": shade})  # fmt: skip
    return drawn


def _best(
    machine: nccl.Machine, collective: str, size: int, nodes: int, version: str,
    algo: str | None, proto: str | None,
) -> tuple[str, str]:  # fmt: skip
    """The winner's name, and the words of its cell."""
    each = machine.network_ranks[-1] if nodes > 1 else machine.ranks[-1]
    args = (collective, size, machine, nodes, each, version, algo, proto)
    best = nccl.choose(*args)
    others = sorted((c for c in nccl.times(*args) if not c.off), key=lambda c: c.time_us)
    name = f"{best.algorithm} {best.protocol}"
    words = [
        text("machine.at", size=size_label(size), ranks=best.ranks, nodes=nodes),
        f"<b>{name}</b>",
        text("machine.predicted", time=time_label(best.time_us / 1e6), busbw=f"{best.busbw:.3g}"),
    ]
    if len(others) > 1:
        second = others[1]
        words.append(text("machine.next", name=f"{second.algorithm} {second.protocol}",
                          time=time_label(second.time_us / 1e6)))  # fmt: skip
    return name, "<br>".join(words)
