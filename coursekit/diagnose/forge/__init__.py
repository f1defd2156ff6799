"""Logs of a job that never ran, with a known fault: to practise on, and to test with.

`forge("shm.too_small", seed=3)` writes what NCCL, PyTorch and the launchers print in that case, in
the wording of the cluster's versions, with names, addresses and sizes by seed. The first line says
that it is generated. `faults()` lists what can be written; each is the id of the verdict that
`coursekit.diagnose.diagnose` must give first.
"""

from coursekit.diagnose.forge._cluster import VERSIONS, Cluster
from coursekit.diagnose.forge._forge import Forged, faults, forge

__all__ = ["VERSIONS", "Cluster", "Forged", "faults", "forge"]
