"""Flows that share links: max-min fair rates (Bertsekas & Gallager 1992, Data Networks, 6.5.2)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["fair_rates", "fair_seconds"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def fair_rates(flow: Ints, link: Ints, capacity: Floats, flows: int) -> Floats:
    """Rates at which no flow can have more without taking from one that has no more.

    Fill all flows evenly; when a link is full, its flows are done; go on with the others.

    Args:
        flow, link: pairs: this flow uses this link.
        capacity: of each link.
        flows: how many there are.
    """
    rates = np.zeros(flows)
    open_ = np.ones(flows, bool)
    left = capacity.copy()
    level = 0.0
    while open_.any():
        using = open_[flow]
        count = np.bincount(link[using], minlength=len(capacity))
        used = count > 0
        if not used.any():
            rates[open_] = np.inf
            break
        room = np.full(len(capacity), np.inf)
        room[used] = left[used] / count[used]
        step = room.min()
        level += step
        left[used] -= step * count[used]
        # Links full up to rounding fill at once.
        full = used & (room <= step * (1 + 1e-12))
        done = np.zeros(flows, bool)
        done[flow[full[link]]] = True
        done &= open_
        rates[done] = level
        open_ &= ~done
    return rates


def fair_seconds(flow: Ints, link: Ints, capacity: Floats, nbytes: Floats) -> Floats:
    """When each flow ends, if all begin at 0 and share anew whenever one has ended."""
    ends = np.zeros(len(nbytes))
    left = nbytes.astype(float)
    alive = left > 0
    now = 0.0
    while alive.any():
        names = np.flatnonzero(alive)
        place = np.full(len(nbytes), -1)
        place[names] = np.arange(len(names))
        use = alive[flow]
        rates = fair_rates(place[flow[use]], link[use], capacity, len(names))
        need = left[names] / rates
        step = need.min()
        now += step
        left[names] -= rates * step
        ended = names[need <= step * (1 + 1e-9)]
        ends[ended] = now
        left[ended] = 0.0
        alive[ended] = False
    return ends
