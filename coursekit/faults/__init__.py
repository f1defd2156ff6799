"""Faults and slow links, on real ranks.

`cluster` starts ranks whose links have the speeds that are asked for; `inject` lets ranks make
the mistakes from which real jobs hang, die or compute something wrong.
"""

from ._cluster import Cluster, cluster
from ._errors import FaultsError, InjectedError
from ._fault import (
    Fault,
    crash,
    full_shared_memory,
    kill,
    skip,
    stop,
    straggler,
    uneven_data,
    wrong_dtype,
    wrong_group,
    wrong_order,
    wrong_size,
)
from ._inject import inject
from ._rate import parse_rate

__all__ = [
    "Cluster",
    "Fault",
    "FaultsError",
    "InjectedError",
    "cluster",
    "crash",
    "full_shared_memory",
    "inject",
    "kill",
    "parse_rate",
    "skip",
    "stop",
    "straggler",
    "uneven_data",
    "wrong_dtype",
    "wrong_group",
    "wrong_order",
    "wrong_size",
]
