"""A learner's own collective, run and recorded on real ranks."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coursekit.comm import Log, Recording, merge, record
from coursekit.ranks import Ranks, RanksHung
from coursekit.schedule import WrongSchedule, prove

from ._loop import values

WRONG = "are not the sum over all ranks"


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
    ranks.run(_import)  # outside the limit, which is for the learner's program
    with tempfile.TemporaryDirectory(prefix="coursekit-record-") as folder:
        try:
            how = (elements, chunks, dtype, mpi, folder, collective)
            logs = ranks.run(_run, function, *how, **limit)
        except RanksHung as hung:
            error = hung
            plan = (ranks.size, elements, values(0, 1, dtype).itemsize, chunks or ranks.size)
            logs = [_left(folder, Log(rank, *plan)) for rank in range(ranks.size)]
    found = merge(logs, collective, root=root, error=error)
    if collective == "all_reduce" and error is None and not any(WRONG in n for n in found.notes):
        _doubt(found)
    return found


def _import() -> None:
    """Import on the rank what a recording needs."""
    import coursekit.comm._watch  # noqa: F401


def _doubt(found: Recording) -> None:
    """Say so where the numbers are right and the schedule is not: then something was not seen."""
    try:
        prove(found.schedule)
    except WrongSchedule:
        found.notes.append(
            "the numbers are right, though the schedule is not proved: data moved in a way that "
            "was not followed (numpy, a collective, another thread), or right by chance"
        )


def _run(
    function: Callable[..., Any],
    elements: int,
    chunks: int | None,
    dtype: str,
    mpi: bool,
    folder: str,
    collective: str,
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
    if complaint := _complaint(buffer.cpu(), collective, log, dtype):
        log.note(complaint)
    return log


def _complaint(buffer: Any, collective: str, log: Log, dtype: str) -> str:
    """What is wrong with an all-reduce's numbers: they may be the sum or the average of the ranks'.

    The schedule tells where numbers went; this tells whether they are right.
    """
    import torch

    if collective != "all_reduce":
        return ""
    each = torch.stack([values(r, log.elements, dtype).double() for r in range(log.size)])
    got = buffer.double()
    wanted = (each.sum(0), each.mean(0), each.amax(0), each.amin(0), each.prod(0))
    if any(torch.allclose(got, right, rtol=1e-2) for right in wanted):
        return ""
    wrong = (got - wanted[0]).abs() > 1e-2 * wanted[0].abs()
    first = int(wrong.nonzero()[0])
    return (
        f"{int(wrong.sum())} of {log.elements} numbers {WRONG}; "
        f"the first is number {first}: {got[first]:g} instead of {wanted[0][first]:g}"
    )


def _left(folder: str, blank: Log) -> Log:
    """What a rank had done when it was stopped."""
    path = f"{folder}/{blank.rank}"
    if Path(path).exists():
        return Log.recover(path)
    blank.note("what it had done is not known: it had not begun, or runs on another machine")
    return blank
