"""What a table shows that matters for communication."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from coursekit.i18n import text
from coursekit.topology.build import switched
from coursekit.topology.table import LOCAL, Table, fast, width


@dataclass(frozen=True)
class Finding:
    """One thing that a table shows.

    Parameters
    ----------
    id : str
        Such as ``topo.nvlink_islands``; its words stand in ``data/text/topology.yaml``.
    devices : tuple of str
        What it is about.
    good : bool
        Whether nothing need be done about it.
    """

    id: str
    devices: tuple[str, ...] = ()
    good: bool = False

    def __str__(self) -> str:
        key = self.id.replace("topo.", "").replace("p2p.", "p2p_")
        return text(f"topology.{key}", devices=", ".join(self.devices))


def findings(table: Table, gpu: str = "") -> list[Finding]:
    """All that the table shows, what matters most first.

    Parameters
    ----------
    gpu : str
        The GPU's name, such as ``H20``, where it is known: some always have NVLink, so that a
        table without it hides it.
    """
    found = [*_links(table, gpu), *_cards(table), *_places(table), *_paste(table)]
    return sorted(found, key=_weight)


# What costs bandwidth stands first, then what is good to know, in the order in which it was found.
COSTLY = ("p2p.not_supported", "topo.gpu_off_fabric", "topo.mp_view_hides_nvlink",
          "topo.pcie_only", "topo.nvlink_islands", "topo.partial_nvlink", "topo.xgmi_multihop",
          "topo.nic_missing_local")  # fmt: skip
# Cards for boards with NVLink only; H20, H800 and A800 are sold as such boards too.
_ALWAYS_NVLINK = ("SXM", "HGX", "DGX", "HBM3", "H20", "H800", "GB200", "B200")


def _weight(finding: Finding) -> int:
    return COSTLY.index(finding.id) if finding.id in COSTLY else len(COSTLY)


def _links(table: Table, gpu: str) -> Iterator[Finding]:
    if len(table.gpus) == 1:
        yield Finding("topo.single_gpu", table.gpus)
        return
    if table.vendor == "amd":
        yield from _amd(table)
        return
    states = {a: s for (a, _), s in table.p2p.items() if s not in ("OK", "X")}
    if states:
        yield Finding("p2p.not_supported", tuple(states))
    islands, missing = table.islands, table.without_nvlink
    if not islands and any(word in gpu.upper() for word in _ALWAYS_NVLINK):
        yield Finding("topo.mp_view_hides_nvlink", table.gpus)
        return
    if not islands:
        yield Finding("topo.pcie_only", table.gpus)
        yield from _odd_one(table)
        return
    alone = tuple(g for g in table.gpus if not any(g in group for group in islands))
    if not missing and not table.unknown:
        yield Finding("topo.full_nvlink", table.gpus, good=True)
        if not switched(table) and len(table.gpus) > 2:
            yield Finding("topo.direct_mesh_not_switch", table.gpus, good=True)
    elif alone and len(islands) == 1 and switched(table):
        yield Finding("topo.gpu_off_fabric", alone)
    elif len(islands) > 1 or alone:
        yield Finding("topo.nvlink_islands", tuple("+".join(group) for group in islands))
    elif missing:
        yield Finding("topo.partial_nvlink", tuple(f"{a}-{b}" for a, b in missing))


def _amd(table: Table) -> Iterator[Finding]:
    if not any(fast(kind) for kind in table.classes):
        yield Finding("topo.pcie_only", table.gpus)
    elif table.indirect:
        yield Finding("topo.xgmi_multihop", tuple(f"{a}-{b}" for a, b in table.indirect))
    elif not table.without_nvlink:
        yield Finding("topo.xgmi_full", table.gpus, good=True)


def _odd_one(table: Table) -> Iterator[Finding]:
    """One GPU that is farther from all others than these from each other."""
    far = {"SYS", "SOC"}
    for gpu in table.gpus:
        others = [o for o in table.gpus if o != gpu]
        away = all(table.link(gpu, o) in far for o in others)
        together = all(table.link(a, b) not in far for a in others for b in others if a != b)
        if away and together and len(others) > 1:
            yield Finding("topo.odd_gpu_out", (gpu,))


def _cards(table: Table) -> Iterator[Finding]:
    nearest = {gpu: table.nearest_nics(gpu) for gpu in table.gpus}
    told = {gpu: found for gpu, found in nearest.items() if found[0]}
    if not table.nics or not told:
        return
    grace = all("," in table.numa.get(g, "") for g in table.gpus)
    far = tuple(gpu for gpu, (kind, _) in told.items() if kind not in LOCAL)
    if far and not grace:
        yield Finding("topo.nic_missing_local", far)
    own = {gpu: tuple(cards) for gpu, (kind, cards) in told.items() if kind in LOCAL}
    shared = [cards for cards, count in Counter(own.values()).items() if count > 1]
    if shared:
        sharing = (tuple(g for g in own if own[g] == cards) for cards in shared)
        yield Finding("topo.nic_shared_pairs", tuple("+".join(group) for group in sharing))
    first = [table.nics.index(cards[0]) for cards in own.values()]
    if len(first) == len(table.gpus) and first != sorted(first):
        if first == sorted(first, reverse=True):
            yield Finding("topo.nic_order_reversed", table.gpus)
        else:
            yield Finding("topo.nic_order_interleaved", table.gpus)


def _places(table: Table) -> Iterator[Finding]:
    values = [table.numa.get(gpu, "") for gpu in table.gpus]
    lists = [v for v in values if "," in v or "-" in v]
    if lists and len(lists) == len(values):
        if all(width(k) == MNNVL_WIDTH for k in table.classes) and len(values) <= MNNVL_TRAY:
            yield Finding("topo.mnnvl_node", table.gpus)
        yield Finding("topo.grace_numa", table.gpus)
        return
    counts = Counter(v for v in values if v)
    if len(set(counts.values())) > 1:
        yield Finding("topo.numa_uneven", tuple(f"NUMA {v}: {n}" for v, n in counts.items()))
    numbers = [int(v) for v in values if v.isdigit()]
    if len(numbers) == len(values) and numbers != sorted(numbers):
        yield Finding("topo.numa_not_monotonic", tuple(map(str, dict.fromkeys(numbers))))
    if not any(table.cpus.values()) and len(table.gpus) > 1 and table.vendor == "nvidia":
        yield Finding("topo.container_no_affinity", table.gpus)


# A GB200 tray: four GPUs with 18 NVLinks each into switches outside it.
MNNVL_WIDTH = 18
MNNVL_TRAY = 4


def _paste(table: Table) -> Iterator[Finding]:
    kinds = {note.kind for note in table.notes}
    if "cut" in kinds:
        yield Finding("topo.truncated", tuple(g for g in table.gpus if g not in table.rows))
    if "glued" in kinds:
        yield Finding("topo.glued_cells")
    if "contradiction" in kinds:
        yield Finding("topo.contradiction")
    if kinds & {"row", "header"}:
        yield Finding("topo.not_read")
