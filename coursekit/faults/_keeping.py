"""This side of the process that holds a cluster's namespaces."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

from ._errors import FaultsError

_ALL: weakref.WeakSet[Keeper]


class Keeper:
    """This side of the process that holds the namespaces; FaultsError when it cannot be had."""

    def __init__(self, size: int, user: bool) -> None:
        script = str(Path(__file__).with_name("_keeper.py"))
        # Linux takes the end of the thread that started a process for the end of the parent.
        lasting = threading.current_thread() is threading.main_thread()
        own = str(os.getpid() if lasting else 0)
        kind = "user" if user else "root"
        command = [sys.executable, "-E", "-s", "-S", script, str(size), kind, own]
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._lock = threading.Lock()
        _ALL.add(self)
        started = self._answer()
        self.paths: list[list[str]] = started["paths"]
        self.pid: int = started["pid"]

    def run(self, jobs: list[dict[str, Any]]) -> list[str]:
        """Run programs in the namespaces and return what they printed."""
        with self._lock:
            told: list[str] = self._ask(jobs)["told"]
        return told

    def switch(self, table: str) -> int:
        """Join the ranks by a switch whose rates are in a file; return its process."""
        with self._lock:
            pid: int = self._ask({"switch": table})["switch"]
        return pid

    def _ask(self, question: Any) -> dict[str, Any]:
        assert self._child.stdin is not None
        # Where it cannot be asked, the lack of an answer tells why.
        with contextlib.suppress(OSError):
            self._child.stdin.write(json.dumps(question) + "\n")
            self._child.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "the keeper has ended"}
        if "error" in answer:
            if not line or not hasattr(self, "paths"):
                self.close()
            raise FaultsError(answer["error"])
        return answer

    def close(self) -> None:
        """End the process; the kernel takes the namespaces back with it."""
        self.abandon()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(2)
        if self._child.poll() is None:
            self._child.kill()
            self._child.wait(5)

    def abandon(self) -> None:
        """Let go of the pipes; in a fork of this process the keeper is not ours."""
        for pipe in (self._child.stdin, self._child.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()


_ALL = weakref.WeakSet()


def _abandon_all() -> None:
    for keeper in list(_ALL):
        keeper.abandon()


os.register_at_fork(after_in_child=_abandon_all)
