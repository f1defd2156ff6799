"""Holds the namespaces of a cluster: a process of its own, run as a script, of Python's own only.

It makes one network namespace for the bridge and one for each rank, none with a name, and runs
`ip` and `tc` in them when it is told to, one JSON object a line. When its input ends, however
that came about, it exits; with the last process inside, the kernel removes a namespace with all
the links in it. So there is nothing that could be left over.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

NEW_USER, NEW_NET = 0x10000000, 0x40000000
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def setns(descriptor: int) -> None:
    """Enter the namespace behind an open file; Python has this only from 3.12 on."""
    _checked(ctypes.CDLL(None, use_errno=True).setns(descriptor, 0), "setns")


def unshare(flags: int) -> None:
    """Leave some namespaces for new ones."""
    _checked(ctypes.CDLL(None, use_errno=True).unshare(flags), "unshare")


def enter(paths: Sequence[str]) -> None:
    """Enter namespaces in the order given: a user namespace before what it owns."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            setns(descriptor)
        finally:
            os.close(descriptor)


def _checked(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


class _Keeper:
    def __init__(self, size: int, user: bool) -> None:
        # Beside this file, for it runs as a script; before it is another user to the files.
        self.module = importlib.import_module("_switch")
        if user:
            _own_user_namespace()
        self.switch_place = _new_network()
        self.ranks = [_new_network() for _ in range(size)]
        setns(self.switch_place)
        own = f"/proc/{os.getpid()}"
        first = [f"{own}/ns/user"] if user else []
        self.paths = [[*first, f"{own}/fd/{n}"] for n in self.ranks]

    def run(self, jobs: Sequence[dict[str, Any]]) -> list[str]:
        """Run programs side by side, each in its place; return what they printed."""
        children = [(job, self._start(job)) for job in jobs]
        return [_result(job, child) for job, child in children]

    def switch(self, table: str) -> int:
        """Give every rank a TUN device and start the switch between them; return its process."""
        devices = []
        for place in self.ranks:
            setns(place)
            devices.append(self.module.open_tun("eth0"))
        setns(self.switch_place)
        running, parent = self.module.Switch(devices, table), os.getpid()
        if pid := os.fork():
            for device in devices:
                os.close(device)
            return pid
        try:
            die_with(parent)
            null = os.open(os.devnull, os.O_RDWR)
            for standard in (0, 1):
                os.dup2(null, standard)
            running.serve()
        finally:
            os._exit(1)

    def _start(self, job: dict[str, Any]) -> subprocess.Popen[str]:
        place = self.switch_place if job["rank"] is None else self.ranks[job["rank"]]
        child = subprocess.Popen(
            job["command"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PATH": _PATH},
            preexec_fn=lambda: setns(place),
        )
        assert child.stdin is not None
        child.stdin.write(job.get("input", ""))
        child.stdin.close()
        child.stdin = None
        return child


def _result(job: dict[str, Any], child: subprocess.Popen[str]) -> str:
    told, _ = child.communicate()
    if child.returncode and not job.get("may_fail"):
        lines = told.strip().splitlines()
        why = next((text for text in lines if "rror" in text), lines[0] if lines else "")
        raise OSError(f"{' '.join(job['command'])}: {why[:300]}")
    return told


def _own_user_namespace() -> None:
    user, group = os.geteuid(), os.getegid()
    unshare(NEW_USER)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"0 {user} 1"),
        ("gid_map", f"0 {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def _new_network() -> int:
    unshare(NEW_NET)
    return os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def die_with(parent: int) -> None:
    """Be killed with the parent, even while stopped: then the input's end is not seen."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit()


def main() -> None:
    """Serve until the input ends.

    Arguments: how many ranks, ``root`` or ``user``, and the parent to die with, or 0.
    """
    try:
        keeper = _Keeper(int(sys.argv[1]), sys.argv[2] == "user")
    except OSError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return
    if parent := int(sys.argv[3]):
        die_with(parent)
    print(json.dumps({"paths": keeper.paths, "pid": os.getpid()}), flush=True)
    for line in sys.stdin:
        answer: dict[str, Any]
        try:
            asked = json.loads(line)
            if isinstance(asked, dict):
                answer = {"switch": keeper.switch(asked["switch"])}
            else:
                answer = {"told": keeper.run(asked)}
        except OSError as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
