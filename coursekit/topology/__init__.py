"""A machine as a graph of links: read from `nvidia-smi topo -m`, or built from what is known of it.

Bandwidths are in bytes/s each way (GB = 10**9 bytes).
"""

from coursekit.topology._errors import TopologyError
from coursekit.topology.build import Speeds, build
from coursekit.topology.findings import Finding, findings
from coursekit.topology.machine import Topology
from coursekit.topology.parse import parse
from coursekit.topology.presets import card, cluster, machine, names, speeds, star, table
from coursekit.topology.rings import (
    Order,
    best_chain,
    best_ring,
    count_rings,
    order,
    spanning_tree,
)
from coursekit.topology.table import Note, Table

__all__ = [
    "Finding",
    "Note",
    "Order",
    "Speeds",
    "Table",
    "Topology",
    "TopologyError",
    "best_chain",
    "best_ring",
    "build",
    "card",
    "cluster",
    "count_rings",
    "findings",
    "machine",
    "names",
    "order",
    "parse",
    "spanning_tree",
    "speeds",
    "star",
    "table",
]
