"""What ranks print: collected by line, labelled, shown live and then in rank order."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import time
from typing import Any

LIVE_AFTER = 0.4
_TAIL = 200
_LIMIT = 20_000
# Gloo announces every new group on stdout; it says nothing about the learner's program.
_CHATTER = re.compile(r"^\[Gloo\] Rank \d+ is connected to \d+ peer ranks\.")


class Transcript:
    """The lines of one call, by rank, in the order in which each rank wrote them."""

    def __init__(self, ranks: list[int]) -> None:
        self._lines: dict[int, list[tuple[str, str]]] = {r: [] for r in ranks}
        self._arrival: list[tuple[int, str]] = []
        self._part: dict[tuple[int, str], bytes] = {}
        self._dropped: dict[int, int] = {}
        self._lock = threading.Lock()
        self.count = 0

    def feed(self, rank: int, stream: str, data: bytes) -> None:
        """Take bytes of a rank's output."""
        with self._lock:
            text = self._part.pop((rank, stream), b"") + data
            *lines, rest = text.split(b"\n")
            if rest:
                self._part[rank, stream] = rest
            for line in lines:
                self._add(rank, stream, line)

    def add(self, rank: int, text: str) -> None:
        """Append whole lines of our own, such as a value."""
        with self._lock:
            for line in text.splitlines():
                self._add(rank, "stdout", line.encode())

    def end(self) -> None:
        """Take what came without a newline at its end."""
        with self._lock:
            for (rank, stream), rest in self._part.items():
                self._add(rank, stream, rest)
            self._part.clear()

    def _add(self, rank: int, stream: str, raw: bytes) -> None:
        # A progress bar overwrites its line; what it last showed is what counts.
        line = raw.decode("utf-8", "replace").rstrip("\r").rsplit("\r", 1)[-1]
        if _CHATTER.match(line):
            return
        kept = self._lines.setdefault(rank, [])
        if len(kept) >= _LIMIT:
            self._dropped[rank] = self._dropped.get(rank, 0) + 1
            return
        kept.append((stream, line))
        self._arrival.append((rank, line))
        self.count += 1

    def since(self, start: int) -> list[str]:
        """Labelled lines in the order of arrival."""
        return [f"[rank {r}] {line}" for r, line in self._arrival[start:]]

    def ordered(self) -> list[tuple[str, str]]:
        """Stream and labelled line, rank by rank."""
        out = []
        for rank in sorted(self._lines):
            out += [(s, f"[rank {rank}] {line}") for s, line in self._lines[rank]]
            if rank in self._dropped:
                out.append(("stderr", f"[rank {rank}] ... {self._dropped[rank]} more lines"))
        return out

    def last_errors(self, rank: int, count: int = 5) -> list[str]:
        """The last lines that a rank wrote to stderr."""
        return [line for s, line in self._lines.get(rank, []) if s == "stderr"][-count:]


class Screen:
    """Shows a transcript while its call runs and when it has ended.

    In a notebook the live lines stand in a display that the ordered ones replace;
    on a terminal they are printed as they come; elsewhere (a pipe, a test, a
    stored notebook) only the ordered ones are printed.
    """

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._began = time.monotonic()
        self._shown = 0
        self._handle: Any = None
        self._mode = _mode()

    def refresh(self) -> None:
        """Show what is new; called now and then while the call runs."""
        if self._mode == "plain" or self._transcript.count == self._shown:
            return
        if self._mode == "terminal":
            for line in self._transcript.since(self._shown):
                print(line, flush=True)
            self._shown = self._transcript.count
        elif time.monotonic() - self._began > LIVE_AFTER:
            self._shown = self._transcript.count
            self._update(self._transcript.since(max(0, self._shown - _TAIL)))

    def finish(self) -> None:
        """Show the transcript in rank order."""
        self._transcript.end()
        if self._mode == "terminal":
            self.refresh()
        elif self._handle is not None:
            self._update([line for _, line in self._transcript.ordered()])
        else:
            for stream, line in self._transcript.ordered():
                print(line, file=sys.stderr if stream == "stderr" else sys.stdout)

    def _update(self, lines: list[str]) -> None:
        from IPython.display import display

        data = {"text/plain": "\n".join(lines)}
        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(data, raw=True)


def _mode() -> str:
    if os.environ.get("COURSEKIT_LIVE") == "0":
        return "plain"
    if in_kernel():
        return "notebook"
    with contextlib.suppress(AttributeError, ValueError):
        if sys.stdout.isatty():
            return "terminal"
    return "plain"


def in_kernel() -> bool:
    """Whether this process is a Jupyter kernel."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return shell is not None and hasattr(shell, "kernel")
