"""Forking a rank from a process that has imported torch, and seeing it end."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import io
import os
import resource
import shutil
import signal
import socket
import sys
import traceback
from dataclasses import dataclass
from typing import Any

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def preload() -> None:
    """Import what every rank needs; CUDA and MPI stay untouched."""
    import ctypes.util  # noqa: F401
    import linecache  # noqa: F401

    import psutil  # noqa: F401
    import torch
    import torch.distributed
    import torch.distributed.distributed_c10d
    import torch.distributed.rendezvous  # noqa: F401

    try:
        import mpi4py

        mpi4py.rc.initialize = False
        from mpi4py import MPI  # noqa: F401
    except (ImportError, RuntimeError):
        pass  # the course runs without MPI; `coursekit doctor` says what is missing
    from . import _worker  # noqa: F401


def become_reaper() -> None:
    """Adopt what ranks leave behind, so that it can be ended with them."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


@dataclass
class Ends:
    """The file descriptors that a rank takes over."""

    control: int
    stdout: int
    stderr: int

    def close(self) -> None:
        """Close this process's copies."""
        for descriptor in (self.control, self.stdout, self.stderr):
            with contextlib.suppress(OSError):
                os.close(descriptor)


def fork_rank(ends: Ends, config: dict[str, Any], close: list[int]) -> int:
    """Fork one rank and return its pid; `close` are the parent's own descriptors."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        _become_rank(ends, config, close, parent)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _become_rank(ends: Ends, config: dict[str, Any], close: list[int], parent: int) -> None:
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    os.setsid()
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    for descriptor in close:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _take_output(ends)
    _take_environment(config)
    _move_in(config)
    _no_core_file()
    crash = open(config["crash_file"], "w")  # noqa: SIM115 - stays open for the fault handler
    faulthandler.enable(file=crash, all_threads=True)
    if hasattr(faulthandler, "register"):
        faulthandler.register(signal.SIGUSR1, file=crash, all_threads=True)
    from ._worker import main

    main(socket.socket(fileno=ends.control), config)


def _take_output(ends: Ends) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (ends.stdout, 1), (ends.stderr, 2)):
        os.dup2(source, target)
    for descriptor in (null, ends.stdout, ends.stderr):
        if descriptor > 2:
            os.close(descriptor)
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(io.FileIO(n, "w", closefd=False), "utf-8", "replace", line_buffering=True)
        for n in (1, 2)
    )
    _line_buffer_c()


def _line_buffer_c() -> None:
    libc = ctypes.CDLL(None)
    try:
        stream = ctypes.c_void_p.in_dll(libc, "stdout")
    except ValueError:
        return
    libc.setvbuf(stream, None, 1, 0)


def _take_environment(config: dict[str, Any]) -> None:
    os.environ.clear()
    os.environ.update(config["env"])
    sys.path[:] = config["path"]
    sys.argv = ["rank"]
    with contextlib.suppress(OSError):
        os.chdir(config["cwd"])


def _move_in(config: dict[str, Any]) -> None:
    """Do what the rank's site wants before there is a thread or a socket."""
    first = config.get("first")
    if first is not None:
        getattr(importlib.import_module(first.module), first.function)(*first.arguments)


def _no_core_file() -> None:
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


def end(pid: int) -> None:
    """Kill a rank and everything in its session."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def end_group(pid: int) -> None:
    """Kill what a rank that has ended left in its session."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def reap() -> list[tuple[int, int]]:
    """Collect the children that have ended: pid and wait status."""
    ended: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended.append((pid, status))


def sweep(keep: set[int]) -> None:
    """Kill the children of this process that are not in `keep`: ranks' orphans."""
    import psutil

    for child in psutil.Process().children():
        if child.pid not in keep:
            with contextlib.suppress(psutil.Error):
                child.kill()


def read_crash(path: str) -> str:
    """What the fault handler wrote for a rank, if anything."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(64 << 10)
    except OSError:
        return ""


def remove_tree(path: str) -> None:
    """Remove a session's folder."""
    shutil.rmtree(path, ignore_errors=True)
