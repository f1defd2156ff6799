"""A learner's own collective, run and recorded on real ranks."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coursekit.comm import Log, Recording, merge, record
from coursekit.ranks import Ranks, RanksHung

from ._loop import values


def record_own(
    ranks: Ranks,
    function: Callable[..., Any],
    count: int | None = None,
    *,
    chunks: int | None = None,
    collective: str = "all_reduce",
    root: int | None = None,
    dtype: str = "float32",
    mpi: bool = False,
    timeout: float | None = None,
) -> Recording:
    """Run a collective that a learner wrote on every rank, and record its messages.

    Parameters
    ----------
    function : callable
        Called as ``function(buffer)`` on each rank, where `rank`, `size`, `torch` and `dist` are
        names; the result must be in the buffer. With `mpi` it is called as
        ``function(buffer, comm)`` with a recorded mpi4py communicator.
    count : int, optional
        Elements of the buffer; 12 a rank by default.
    chunks, collective, root
        As for `coursekit.comm.record` and `merge`.
    timeout : float, optional
        Seconds after which a program that does not end is stopped; the ranks' own by default.

    Returns
    -------
    coursekit.comm.Recording
        Also of a program that hung: its `error` is the RanksHung, its `deadlock` the circle.

    Raises
    ------
    RankFailed, RankDied
        The function raised on a rank, or its process ended.
    """
    elements = 12 * ranks.size if count is None else count
    error = None
    limit: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
    with tempfile.TemporaryDirectory(prefix="coursekit-record-") as folder:
        try:
            logs = ranks.run(_run, function, elements, chunks, dtype, mpi, folder, **limit)
        except RanksHung as hung:
            error = hung
            logs = [_left(folder, rank, ranks.size, elements, chunks) for rank in range(ranks.size)]
    return merge(logs, collective, root=root, error=error)


def _run(
    function: Callable[..., Any],
    elements: int,
    chunks: int | None,
    dtype: str,
    mpi: bool,
    folder: str,
) -> Log:
    import torch
    import torch.distributed as dist

    gpu = torch.cuda.is_available() and "nccl" in str(dist.get_backend_config())
    buffer = values(dist.get_rank(), elements, dtype).to("cuda" if gpu and not mpi else "cpu")
    comm = None
    if mpi:
        from mpi4py import MPI

        comm = MPI.COMM_WORLD
    with record(buffer, chunks, comm=comm) as log:
        if Path(folder).is_dir():  # ranks on other machines do not see it
            log.spill(f"{folder}/{log.rank}")
        function(*((buffer, log.comm) if mpi else (buffer,)))
    return log


def _left(folder: str, rank: int, size: int, elements: int, chunks: int | None) -> Log:
    """What a rank had done when it was stopped."""
    path = f"{folder}/{rank}"
    if Path(path).exists():
        return Log.recover(path)
    log = Log(rank, size, elements, 4, chunks or size)
    log.note("what it had done is not known: it had not begun, or runs on another machine")
    return log
