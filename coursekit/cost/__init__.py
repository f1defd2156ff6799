"""What a collective costs: closed forms, and the price of any schedule.

Everything rests on one model, Hockney's with one port: a message of n bytes takes
alpha + n * beta seconds, adding n bytes takes n * gamma; a rank sends one message at a time and
meanwhile receives one; ranks go through the steps of a schedule together. Then

    T = alphas * alpha + betas * beta + gammas * gamma

where `alphas` counts the messages, `betas` the bytes sent or received and `gammas` the bytes added
on the way that decides, step by step, at the busiest rank. `closed_form` gives the three numbers
by formula, `price` by looking at every transfer; where the chunks divide the bytes they are equal.

Units: bytes, seconds; alpha in seconds, beta and gamma in seconds a byte; bandwidths in GB/s, which
are 10**9 bytes a second as nccl-tests prints them. nbytes is always the size of the whole buffer:
all blocks together for all_gather, reduce_scatter, all_to_all, scatter and gather.

Sources, as the formulas name them:

- Hockney 1994: The communication challenge for MPP. Parallel Computing 20(3).
- Bruck 1997: Bruck, Ho, Kipnis, Upfal & Weathersby, Efficient algorithms for all-to-all
  communications in multiport message-passing systems. IEEE TPDS 8(11).
- Rabenseifner 2004: Optimization of collective reduction operations. ICCS 2004.
- Thakur et al. 2005: Thakur, Rabenseifner & Gropp, Optimization of collective communication
  operations in MPICH. IJHPCA 19(1).
- Chan et al. 2007: Chan, Heimlich, Purkayastha & van de Geijn, Collective communication: theory,
  practice, and experience. Concurrency and Computation 19(13).
- Patarasuk & Yuan 2009: Bandwidth optimal all-reduce algorithms for clusters of workstations.
  JPDC 69(2).
- Sanders et al. 2009: Sanders, Speck & Traff, Two-tree algorithms for full bandwidth broadcast,
  reduction and scan. Parallel Computing 35(12).
- Sanders & Sibeyn 2003: A bandwidth latency tradeoff for broadcast and reduction. Information
  Processing Letters 86(1).
- Cho et al. 2019: Cho, Finkler, Kung & Hunter, BlueConnect: decomposing all-reduce for deep
  learning on heterogeneous network hierarchy. MLSys 2019.

Errors: CostError (a ValueError) for numbers; unknown collectives, algorithms and options are
`coursekit.schedule.ScheduleError`.

`coursekit.cost.nccl` is another model beside this one: NCCL's own, by which it chooses.
"""

from coursekit.cost import nccl
from coursekit.cost._bandwidth import algbw, busbw, busbw_factor
from coursekit.cost._closed import (
    best_segments,
    closed_form,
    crossover,
    formula,
    n_half,
)
from coursekit.cost._model import Cost, CostError
from coursekit.cost._price import price
from coursekit.cost._rounds import Round, rounds, rounds_of
from coursekit.cost._simulate import Simulated, simulate

__all__ = [
    "Cost",
    "CostError",
    "Round",
    "Simulated",
    "algbw",
    "best_segments",
    "busbw",
    "busbw_factor",
    "closed_form",
    "crossover",
    "formula",
    "n_half",
    "nccl",
    "price",
    "rounds",
    "rounds_of",
    "simulate",
]
