"""Ranks under any mpirun, without the hand-over: the agents of attach, on loopback."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from ._attach import SECRET_NAME, AttachLauncher
from ._mpi import find_mpirun, mpi_environment, mpirun_command, mpirun_failed
from ._server_client import Event, fork_server
from ._session import Session


class PlainMpiLauncher(AttachLauncher):
    """Runs ``coursekit ranks serve`` under mpirun and serves its ranks as if attached."""

    name = "mpi"
    replaces_one = False

    def __init__(self, size: int) -> None:
        self._mpirun = find_mpirun()
        self._given = dict(os.environ)
        super().__init__(host=None, port=0, size=size)
        self.server = fork_server()
        self.folder = self.server.new_folder()
        self._round = 0
        self._ended: Event | None = None
        self._job = f"p{os.getpid()}-{self.port}-"

    def gather(
        self,
        ranks: list[int],
        timeout: float | None = None,
        report: Callable[[str], None] | None = None,
    ) -> None:
        """Start mpirun if it does not run, then wait for its agents."""
        if self._round == 0:
            self._run()
        del report  # nobody has to start these
        super().gather(ranks, timeout)

    def _run(self) -> None:
        self._round += 1
        self._ended = None
        program = [sys.executable, "-m", "coursekit", "ranks", "serve"]
        program += ["--connect", f"{self.host}:{self.port}"]
        env = mpi_environment(self.folder, self._given)
        env |= {SECRET_NAME: self.secret, "OMP_NUM_THREADS": "1"}
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        command = mpirun_command(self._mpirun, self._size, program)
        key = f"{self._job}{self._round}-launcher"
        self.server.execute(key, command, env, self.folder, self._on_event)

    def _on_event(self, event: Event) -> None:
        self._ended = event

    def check(self) -> None:
        """Raise when mpirun has ended."""
        if self._ended is not None:
            raise mpirun_failed(self.folder, self._size, len(self._joined))

    def before_restart_all(self, session: Session) -> None:
        """An MPI job cannot replace a process: start a new job."""
        for m in session.members:
            if m.channel is not None:
                m.channel.close()
        self.server.forget(self._job, os.path.join(self.folder, "none"))
        with self._news:
            self._joined.clear()
        self._run()

    def close(self, session: Session) -> None:
        """Send the agents home, end mpirun, remove the folder."""
        super().close(session)
        self.server.forget(self._job, self.folder)
