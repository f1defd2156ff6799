"""Putting faults into ranks for the length of a block, and taking them out again."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from coursekit.ranks import Ranks, RanksError

from . import _hook, _shm
from ._errors import FaultsError
from ._fault import Fault


@contextlib.contextmanager
def inject(ranks: Ranks, *faults: Fault) -> Iterator[tuple[Fault, ...]]:
    """Within the block, ranks make these mistakes; afterwards they make them no more.

    What follows from it is left to happen: the run in the block raises what `Ranks` raises for
    a real mistake, a hang after its timeout.

    Parameters
    ----------
    ranks : Ranks
        Also those of a `cluster`.
    faults : Fault
        From `skip`, `wrong_order`, `wrong_size`, `wrong_dtype`, `wrong_group`, `crash`, `kill`,
        `stop`, `straggler`, `uneven_data` and `full_shared_memory`.

    Raises
    ------
    FaultsError
        No fault, a rank that is not there, or a fault that this machine cannot have.

    Notes
    -----
    The hook stands below the names that programs use, so it does not matter how a call was
    imported. It sees what Python asks of a process group; calls that torch's C++ makes itself
    (the reducer of DDP, functional collectives) pass by it, uncounted.

    Examples
    --------
    >>> with inject(ranks, skip(2)):
    ...     ranks.run(step, timeout=3)
    RanksHung: no end after 3 s. Where every rank stands: ...
    """
    _check(ranks, faults)
    try:
        problems = ranks.run(_install, faults)
        for rank, problem in enumerate(problems):
            if problem is not None:
                raise FaultsError(f"rank {rank}: {problem}")
        yield faults
    finally:
        _take_back(ranks)


def _check(ranks: Ranks, faults: tuple[Fault, ...]) -> None:
    if not faults or not all(isinstance(f, Fault) for f in faults):
        raise FaultsError(
            f"inject needs ranks and faults, got {list(faults)}; try inject(ranks, skip(1))"
        )
    for fault in faults:
        if fault.rank >= ranks.size:
            raise FaultsError(
                f"rank must be one from 0 to {ranks.size - 1}, got {fault.rank} for {fault.kind}"
            )
    if ranks.size < 2 and any(f.kind == "wrong_group" for f in faults):
        raise FaultsError("wrong_group needs two ranks at least, got one; try Ranks(4)")
    if sys.platform != "linux" and any(f.kind == "full_shared_memory" for f in faults):
        raise FaultsError("full_shared_memory is Linux's; try another fault")


def _take_back(ranks: Ranks) -> None:
    """A rank that died meanwhile is replaced first, which the first attempt tells."""
    for _ in range(2):
        if ranks.closed:
            return
        try:
            ranks.run(_remove)
            return
        except RanksError:
            continue


def _install(faults: tuple[Fault, ...]) -> str | None:
    """On every rank: put the hook in place; return why a fault cannot be had."""
    _remove()
    _hook.install(faults)
    mine = _hook.rank_here()
    if any(f.kind == "full_shared_memory" and f.rank == mine for f in faults):
        return _shm.cover()
    return None


def _remove() -> None:
    _hook.remove()
    _shm.uncover()
