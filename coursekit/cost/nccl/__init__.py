"""NCCL's own choice of algorithm and protocol, worked out from its published constants.

NCCL prices every algorithm with every protocol and takes the least of

    t = latency + bytes / (1000 bandwidth)

in microseconds and GB/s, by formulas and constants that are in its source (src/graph/tuning.cc)
and differ from version to version, and from what its search found on the machine: channels times
bandwidth. `choose` gives the choice, `times` the whole table with the reasons why something is
off; `parse_algo` and `left_without` read NCCL_ALGO and NCCL_PROTO as a version does.

The model is known for 2.19 to 2.30; `source(version)` tells what was read. 2.31 moved it to
src/tuning/: other versions are an error. CollNet (SHARP) and tuner plugins are not priced; nor
are sends and receives, so there is no all_to_all. Machines whose search result is not published
(GB200, DGX-1) are an error too; a `Machine` can be written from one's own log.

Held against published tables (`tests/bench/nccl_model.py` prints them all): on A100 and Hopper
nodes the time from 1 GiB on is within 5 %, up to 16 MiB NCCL takes about 1 to 3 times as long.
On B200 NCCL 2.27 expects too much of the switch by 25 to 43 %. It is a model of the choice.

Units: bytes, microseconds, GB/s (10**9 bytes a second). Data with sources: data/nccl_*.yaml.

Errors: NcclError (a CostError, so a ValueError); unknown collectives are
`coursekit.schedule.ScheduleError`.
"""

from ._choice import Candidate, Choice, choose, times
from ._env import Setting, parse_algo, parse_proto
from ._machines import Graph, Machine, Paths, machine, machines
from ._names import NcclError, served
from ._rules import left_without
from ._versions import of_torch, source

__all__ = [
    "Candidate",
    "Choice",
    "Graph",
    "Machine",
    "NcclError",
    "Paths",
    "Setting",
    "choose",
    "left_without",
    "machine",
    "machines",
    "of_torch",
    "parse_algo",
    "parse_proto",
    "served",
    "source",
    "times",
]
