"""Questions put to other processes, which may crash or hang without harm."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Answer:
    """What came back: a value, or why there is none."""

    value: Any = None
    error: str = ""


def ask(command: Sequence[str], seconds: float, env: Mapping[str, str] | None = None) -> Answer:
    """Run a command; its standard output is the value.

    It runs in a session of its own, so that at the time limit all that it started ends too.
    """
    # Files, not pipes: a grandchild that lives on would keep a pipe open.
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                env=None if env is None else dict(env), start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            return Answer(error=f"{command[0]} cannot be run: {error.strerror}")
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return Answer(error=f"no answer within {seconds:g} s")
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        out.seek(0)
        err.seek(0)
        said = out.read()
        return Answer(said) if status == 0 else Answer(error=_failure(status, err.read() or said))


def ask_inside(question: str, seconds: float) -> Answer:
    """Ask a function of `_inside` in a fresh Python; the value is what it returned."""
    return from_json(ask(inside_command(question), seconds))


def inside_command(question: str) -> list[str]:
    """The command that answers a question of `_inside` in JSON."""
    return [sys.executable, "-m", "coursekit.doctor._inside", question]


def from_json(answer: Answer) -> Answer:
    """Read the last line as JSON: libraries may print before it."""
    if answer.error:
        return answer
    try:
        return Answer(json.loads(answer.value.strip().splitlines()[-1]))
    except (ValueError, IndexError):
        return Answer(error=f"it answered {answer.value.strip()[-200:]!r}, not JSON")


def _failure(status: int, said: str) -> str:
    last = next((line.strip() for line in reversed(said.splitlines()) if line.strip()), "")
    if status < 0:
        return f"ended by {signal.Signals(-status).name}" + (f": {last}" if last else "")
    return last[:300] or f"exit code {status}"
