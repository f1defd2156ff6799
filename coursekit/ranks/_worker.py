"""A rank: the process that runs the learner's code.

The main thread runs calls one after another.  A side thread reads the control
socket, so that it can answer "where do you stand?", interrupt the main thread
or break its connections while that thread is blocked in a collective.
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import os
import queue
import signal
import socket
import sys
import threading
import time
import types
from collections.abc import Callable, Iterable
from typing import Any

from . import _group, _observe, _wire
from ._tracebacks import pack

Message = dict[str, Any]
_REPR_LIMIT = 4000


def main(sock: socket.socket, config: Message) -> None:
    """Serve one rank until the control socket closes; never returns."""
    _Worker(sock, config).serve()


class _Worker:
    def __init__(self, sock: socket.socket, config: Message) -> None:
        self.sock = sock
        self.config = config
        self.rank: int = config["rank"]
        self.size: int = config["size"]
        self.lock = threading.Lock()
        self.calls: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.busy = False
        self.pid = os.getpid()
        self.main_thread = threading.get_ident()
        self.group = _group.Group(config)
        self.space = types.ModuleType("__main__")
        self.prelude: set[str] = set()

    def serve(self) -> None:
        signal.signal(signal.SIGINT, self._on_interrupt)
        sys.modules["__main__"] = self.space
        threading.Thread(target=self._listen, name="coursekit-control", daemon=True).start()
        self._reply({"kind": "ready", **self._start()})
        while True:
            try:
                self._handle(self.calls.get())
            except KeyboardInterrupt:
                continue

    def _start(self) -> Message:
        try:
            facts = self.group.start(self._announce)
        except BaseException as error:
            return {"error": pack(error)}
        names = {**self.group.names(), "__builtins__": __builtins__, "__name__": "__main__"}
        self.space.__dict__.update(names)
        _settle(self.config)
        self.prelude = set(self.space.__dict__)
        return {"facts": facts}

    # -- side thread ------------------------------------------------------

    def _listen(self) -> None:
        reader = _wire.Reader(self.sock)
        orders: dict[str, Callable[[Message], None]] = {
            "where": self._tell_stand,
            "unblock": self._unblock,
            "interrupt": lambda _: self._interrupt(),
        }
        while True:
            try:
                got = reader.read()
            except EOFError:
                os._exit(0)
            if got is None:
                continue
            message = _wire.loads(got[1])
            order = orders.get(message["kind"])
            if order is None:
                self.calls.put(message)
            else:
                order(message)

    def _tell_stand(self, message: Message) -> None:
        mpi_size = self.size if self.group.comm is not None else 0
        known = self.config.get("addresses", {})
        stand = _observe.watch_answer(
            self.rank, self.main_thread, lambda: self.busy, mpi_size, known
        )
        self._reply({"kind": "stand", "id": message["id"], "stand": stand})

    def _unblock(self, _: Message) -> None:
        """Get the main thread out of whatever it is in, keeping the process."""
        while not self.calls.empty():
            self._drop(self.calls.get())
        self.group.sever()
        for _attempt in range(8):
            time.sleep(0.03)
            if not self.busy:
                return
            self._interrupt()

    def _drop(self, message: Message) -> None:
        error = pack(RuntimeError("not run: an earlier call failed and the ranks were recovered"))
        facts = {"names": self._names(), "seq": None, "ok": False, "error": error}
        self._reply({"kind": "done", "id": message["id"], **facts})

    def _interrupt(self) -> None:
        if self.busy:
            signal.pthread_kill(self.main_thread, signal.SIGINT)

    def _on_interrupt(self, *_: object) -> None:
        if self.busy:
            raise KeyboardInterrupt

    # -- main thread ------------------------------------------------------

    def _handle(self, message: Message) -> None:
        if message["kind"] == "finish":
            self.group.finish()
            os._exit(0)
        if message["kind"] == "reset":
            self._reply({"kind": "ready", **self._reset(message)})
            return
        try:
            answer = self._attempt(message)
        except KeyboardInterrupt as error:
            answer = {"ok": False, "error": pack(error)}
        self.busy = False
        flush_output()
        facts = {"names": self._names(), "seq": self.group.sequence()}
        self._reply({"kind": "done", "id": message["id"], **facts, **answer})

    def _attempt(self, message: Message) -> Message:
        try:
            self.busy = True
            value = getattr(self, "_do_" + message["kind"])(message)
            self.busy = False
            return {"ok": True, "value": value}
        except BaseException as error:
            self.busy = False
            return {"ok": False, "error": pack(error), "stand": self._stand_of(error)}

    def _stand_of(self, error: BaseException) -> Any:
        mpi_size = self.size if self.group.comm is not None else 0
        return _observe.stand_of(self.rank, error, mpi_size)

    def _reset(self, message: Message) -> Message:
        try:
            self.group.restart(message["store"], self._announce)
        except BaseException as error:
            return {"error": pack(error)}
        self.space.__dict__.update(self.group.names())
        return {"facts": self.group.facts()}

    def _announce(self, where: Message) -> None:
        """Tell the notebook where this rank serves the store that the others need."""
        self._reply({"kind": "store", "store": where})

    def _names(self) -> list[str]:
        return sorted(
            n for n in self.space.__dict__ if n not in self.prelude and not n.startswith("_")
        )

    def _reply(self, message: Message) -> None:
        if os.getpid() != self.pid:
            os._exit(0)  # a child that the learner's code forked came back into this loop
        try:
            parts = _wire.dumps(message)
        except Exception as error:
            failure = pack(_unsendable(message.get("value"), error))
            parts = _wire.dumps({**message, "ok": False, "value": None, "error": failure})
        try:
            _wire.send(self.sock, _wire.MESSAGE, parts, self.lock)
        except OSError:
            os._exit(0)

    # -- calls ------------------------------------------------------------

    def _do_fn(self, message: Message) -> Any:
        fn, args, kwargs = _wire.unseal(message["payload"])
        for function in _functions((fn, *args, *kwargs.values())):
            self._lend_names(function)
        return fn(*args, **kwargs)

    def _lend_names(self, fn: Any) -> None:
        """Let names that the notebook lacks resolve to this rank's own."""
        known = getattr(fn, "__globals__", None)
        module = sys.modules.get(getattr(fn, "__module__", None) or "")
        if known is None or getattr(module, "__dict__", None) is known:
            return
        beside = [f for f in known.values() if getattr(f, "__globals__", None) is known]
        for function in (fn, *beside):
            for name in _names_used(function.__code__):
                if name in self.space.__dict__:
                    known.setdefault(name, self.space.__dict__[name])

    def _do_cell(self, message: Message) -> str | None:
        label, source = message["label"], message["source"]
        _remember_source(label, source)
        tree = ast.parse(source, label)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr) and not message["quiet"]:
            last = ast.Expression(tree.body.pop().value)
        space = self.space.__dict__
        exec(compile(tree, label, "exec"), space)
        if last is None:
            return None
        value = eval(compile(last, label, "eval"), space)
        if value is None:
            return None
        space["_"] = value
        text = repr(value)
        if len(text) > _REPR_LIMIT:
            text = f"{text[:_REPR_LIMIT]} ... ({len(text)} characters; use ranks.pull)"
        return text

    def _do_push(self, message: Message) -> None:
        self.space.__dict__.update(_wire.unseal(message["payload"]))

    def _do_pull(self, message: Message) -> Any:
        names: list[str] = message["names"]
        for name in names:
            if name not in self.space.__dict__:
                have = ", ".join(self._names()) or "nothing yet"
                raise NameError(f"no variable {name!r} on rank {self.rank}; it has: {have}")
        values = tuple(self.space.__dict__[n] for n in names)
        return values[0] if len(values) == 1 else values


def _functions(values: Iterable[Any]) -> list[Any]:
    """The functions among some values, and those that they carry in their closures."""
    found: list[Any] = []
    left = list(values)
    while left:
        value = left.pop()
        if hasattr(value, "__globals__") and all(value is not other for other in found):
            found.append(value)
            for cell in getattr(value, "__closure__", None) or ():
                with contextlib.suppress(ValueError):  # a cell that is still empty
                    left.append(cell.cell_contents)
    return found


def _settle(config: Message) -> None:
    import torch

    torch.set_num_threads(config["threads"])
    if config["crowded"] and hasattr(os, "SCHED_BATCH"):
        # Ranks that outnumber the cores preempt each other at every message otherwise.
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _unsendable(value: Any, error: Exception) -> TypeError:
    return TypeError(
        f"a result must be something that can be pickled, got {type(value).__name__} "
        f"({str(error).splitlines()[0]}); return a tensor, an array or plain Python values"
    )


def _names_used(code: types.CodeType) -> set[str]:
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return set(code.co_names).union(*(_names_used(c) for c in inner))


def _remember_source(label: str, source: str) -> None:
    import linecache

    lines = source.splitlines(keepends=True)
    linecache.cache[label] = (len(source), None, lines, label)


def flush_output() -> None:
    """Push out what Python and C still hold back."""
    for stream in (sys.stdout, sys.stderr):
        # The learner may have put anything in their place.
        with contextlib.suppress(Exception):
            stream.flush()
    ctypes.CDLL(None).fflush(None)
