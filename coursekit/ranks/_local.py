"""Ranks on this machine, forked from the fork server."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from . import _wire
from ._io import Channel
from ._member import Member
from ._server_client import Event, ForkServer, fork_server
from ._session import Session
from ._site import Site
from ._stand import Stand
from ._tracebacks import Frame, crash_frames


def loopback() -> str:
    """Name of the loopback interface."""
    names = [name for _, name in socket.if_nameindex() if name.startswith("lo")]
    return names[0] if names else "lo"


def rank_config(session: Session, rank: int, store: dict[str, Any]) -> dict[str, Any]:
    """What every worker needs to know, whatever started it."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "rank": rank,
        "size": session.size,
        "local_rank": rank,
        "backend": session.backend,
        "store": store,
        "threads": max(1, (cores or 1) // session.size),
        "crowded": session.size > (cores or 1),
        **session.config,
    }


class LocalLauncher:
    """Fork every rank from the fork server; a rank that died is replaced alone."""

    name = "local"
    replaces_one = True

    def __init__(self, site: Site | None = None) -> None:
        self.site = site
        self.server: ForkServer = fork_server()
        self.folder = self.server.new_folder()
        self._pids: dict[int, int] = {}
        self._round = 0

    def launch(self, session: Session, ranks: list[int], store: dict[str, Any]) -> None:
        """Fork the ranks; they find everything they need in the fork."""
        self._round += 1
        for r in ranks:
            self._fork(session, r, store, self.environment(r))

    def environment(self, rank: int) -> dict[str, str]:
        """The notebook's environment, and Gloo bound to loopback or as the rank's site has it."""
        own = {"GLOO_SOCKET_IFNAME": loopback(), "OMP_NUM_THREADS": "1"}
        theirs = self.site.environment(rank) if self.site is not None else {}
        return {**own, **os.environ, **theirs}

    def _fork(
        self, session: Session, rank: int, store: dict[str, Any], env: dict[str, str]
    ) -> None:
        ours, theirs = socket.socketpair()
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        for sock in (ours, theirs):
            _wire.widen(sock)
        config = {
            **rank_config(session, rank, store),
            "env": env,
            "path": [p or os.getcwd() for p in sys.path],
            "cwd": os.getcwd(),
            "folder": self.folder,
            "crash_file": self._crash_file(rank),
        }
        if self.site is not None:
            config["first"] = self.site.first(rank)
            config["addresses"] = self.site.addresses()
        pipes = {out_read: "stdout", err_read: "stderr"}
        channel = Channel(session.hub, rank, ours, session, pipes)
        session.members[rank].channel = channel

        def on_event(event: Event) -> None:
            if event["event"] == "forked":
                self._pids[rank] = event["pid"]
            else:
                channel.finish(event.get("status"), event.get("crash", ""))

        try:
            fds = (theirs.fileno(), out_write, err_write)
            self.server.fork(self._key(session, rank), config, fds, on_event)
        finally:
            theirs.close()
            os.close(out_write)
            os.close(err_write)

    def _key(self, session: Session, rank: int) -> str:
        return f"{session.id}r{rank}-{self._round}"

    def _crash_file(self, rank: int) -> str:
        return os.path.join(self.folder, f"crash-{rank}-{self._round}")

    def kill(self, session: Session, rank: int) -> None:
        """Kill a rank with all that it started."""
        del session
        pid = self._pids.get(rank)
        if pid is not None:
            self.server.kill_pid(pid)

    def peek(self, member: Member) -> Stand | None:
        """Ask the kernel, and the fault handler, about a rank that does not answer."""
        pid = self._pids.get(member.rank)
        if pid is None:
            return None
        try:
            if psutil.Process(pid).status() == psutil.STATUS_STOPPED:
                return Stand(member.rank, "stopped")
            before = self._crash_size(member.rank)
            os.kill(pid, signal.SIGUSR1)
        except (psutil.Error, ProcessLookupError):
            return None
        time.sleep(0.1)
        return Stand(member.rank, "silent", frames=self._dumped(member.rank, before))

    def _crash_size(self, rank: int) -> int:
        path = Path(self._crash_file(rank))
        return path.stat().st_size if path.exists() else 0

    def _dumped(self, rank: int, start: int) -> tuple[Frame, ...]:
        path = Path(self._crash_file(rank))
        return crash_frames(path.read_text(errors="replace")[start:]) if path.exists() else ()

    def gpus(self) -> tuple[int, str]:
        """How many GPUs this machine offers, and why there are none."""
        facts = self.server.gpus()
        return len(facts["gpus"]), facts.get("why", "")

    def resume(self, member: Member) -> None:
        """Let a rank that was stopped go on."""
        pid = self._pids.get(member.rank)
        if pid is not None:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                return

    def store(self, session: Session, serial: int) -> dict[str, Any]:
        """A file in the session's folder."""
        del session
        if self.site is not None:
            self.site.joining()
        return {"file": os.path.join(self.folder, f"store-{serial}")}

    def joined(self) -> None:
        """The ranks are connected: the site may be as it is meant to be."""
        if self.site is not None:
            self.site.joined()

    def before_restart_all(self, session: Session) -> None:
        """Nothing beside the ranks needs a new start."""

    def close(self, session: Session) -> None:
        """End the ranks and remove the folder."""
        self.server.forget(session.id, self.folder)
