"""`Ranks`: real rank processes that a notebook starts, talks to, watches and stops."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

from . import _picture
from ._arguments import check_on, check_size, check_timeout, sealed, send_by_value
from ._attach import AttachLauncher
from ._backend import check_backend, choose_backend
from ._call import Call
from ._errors import RankDied, RanksStartError, RanksUsageError
from ._launchers import make_launcher
from ._member import describe_end, signal_of
from ._session import Session
from ._site import Site

_made: list[weakref.ref[Ranks]] = []


class Ranks:
    """A set of real processes that hold one process group between cells.

    Parameters
    ----------
    size : int
        World size: how many ranks.
    backend : {"auto", "gloo", "nccl"}
        ``auto`` takes NCCL when there are at least `size` GPUs, else Gloo.
    launcher : {"local", "mpi", "attach"}
        ``local`` forks the ranks here; ``mpi`` runs them under mpirun, with
        ``comm`` (mpi4py) beside torch's process group; ``attach`` waits for ranks
        that torchrun, srun or mpirun start, on any machines.
    timeout : float or None
        Seconds after which a call that has not ended counts as hung; None waits
        forever. Every call can set its own.
    host : str, optional
        Attach only: this machine's address as the other machines reach it.
    port : int
        Attach only: the port to listen on; 0 takes a free one.
    site : Site, optional
        Local only: where the ranks live, such as in network namespaces; `faults.cluster`
        makes one.

    Raises
    ------
    RanksUsageError
        A parameter breaks a rule.
    RanksStartError
        A rank did not come up.

    Examples
    --------
    >>> with Ranks(2) as ranks:
    ...     ranks.run(lambda: rank)
    [0, 1]
    """

    def __init__(
        self,
        size: int,
        backend: str = "auto",
        launcher: str = "local",
        timeout: float | None = 60.0,
        *,
        host: str | None = None,
        port: int = 0,
        site: Site | None = None,
    ) -> None:
        check_size(size)
        check_timeout(timeout)
        self.size, self.timeout = size, timeout
        self._asked = check_backend(backend)
        self._launcher = make_launcher(launcher, host=host, port=port, size=size, site=site)
        self._session = Session(size, "", self._launcher, {"mpi": launcher == "mpi"})
        self._finalizer = weakref.finalize(self, self._session.close)
        self._starting = threading.Lock()
        self._started = False
        self.reason = "waiting for the ranks to join"
        if launcher != "attach":
            self.wait()
        _made.append(weakref.ref(self))

    @property
    def backend(self) -> str:
        """``gloo`` or ``nccl``; empty until attached ranks have joined."""
        return self._session.backend

    def wait(self) -> Ranks:
        """Wait until every rank is there; only attached ranks are not from the start."""
        self._check_open()
        with self._starting:
            if not self._started:
                self._start()
        return self

    def _start(self) -> None:
        try:
            if isinstance(self._launcher, AttachLauncher):
                self._launcher.gather(list(range(self.size)), report=print)
            backend, self.reason = choose_backend(self._asked, self.size, self._launcher)
            self._session.backend = backend
            self._session.start()
        except RanksStartError as error:
            # Agents that are late may still come; a machine that failed to start will again.
            if self._launcher.name != "attach":
                self.close()
            raise error from None
        except BaseException:
            self.close()
            raise
        self._started = True

    # -- running ----------------------------------------------------------

    def run(
        self,
        fn: Callable[..., Any],
        *args: Any,
        on: Iterable[int] | None = None,
        timeout: float | str | None = "default",
        **kwargs: Any,
    ) -> list[Any]:
        """Call ``fn(*args, **kwargs)`` on the ranks and return their results.

        Parameters
        ----------
        fn : callable
            Any function: of a cell, a lambda, a closure, a class. Names that it
            uses and the notebook does not define (``rank``, ``size``, ``dist``,
            ``torch``, ``device``, ``comm``, and what ``%%ranks`` cells defined)
            resolve to the rank's own.
        on : iterable of int, optional
            The ranks to use; all by default.
        timeout : float or None, optional
            Seconds for this call.

        Returns
        -------
        list
            One result a rank, in the order of `on`. Tensors come back on the CPU.

        Raises
        ------
        RankFailed, RankDied, RanksHung, RanksUsageError
        """
        call = self._begin(Call, on, self._function(fn, args, kwargs))
        values: list[Any] = call.wait(self._seconds(timeout))
        return values

    def submit(
        self,
        fn: Callable[..., Any],
        *args: Any,
        on: Iterable[int] | None = None,
        timeout: float | str | None = "default",
        **kwargs: Any,
    ) -> list[Future[Any]]:
        """Like `run`, at once: one future a rank, to wait for with `concurrent.futures`."""
        call = self._begin(Call, on, self._function(fn, args, kwargs))
        seconds = self._seconds(timeout)
        threading.Thread(target=_settle, args=(call, seconds), daemon=True).start()
        return [call.futures[r] for r in call.ranks]

    def cell(
        self,
        source: str,
        *,
        on: Iterable[int] | None = None,
        label: str = "In[ranks]",
        timeout: float | str | None = "default",
    ) -> None:
        """Run source text on the ranks, as ``%%ranks`` does; names persist on each rank."""
        quiet = source.rstrip().endswith(";")
        job = {"kind": "cell", "source": source, "label": label, "quiet": quiet}
        self._begin(_CellCall, on, job).wait(self._seconds(timeout))

    def push(self, *, on: Iterable[int] | None = None, **variables: Any) -> None:
        """Set variables on the ranks: ``ranks.push(lr=0.1)``."""
        if not variables:
            raise RanksUsageError("push needs names and values, got none; try ranks.push(lr=0.1)")
        job = {"kind": "push", "payload": sealed(variables)}
        self._begin(Call, on, job).wait(self._seconds("default"))

    def pull(self, *names: str, on: Iterable[int] | None = None) -> list[Any]:
        """Get variables of the ranks: a list with one value a rank, or one tuple a rank."""
        if not names or not all(isinstance(n, str) for n in names):
            raise RanksUsageError(f'pull needs names as text, got {names!r}; try ranks.pull("x")')
        job = {"kind": "pull", "names": list(names)}
        values: list[Any] = self._begin(Call, on, job).wait(self._seconds("default"))
        return values

    # -- life -------------------------------------------------------------

    def restart(self) -> None:
        """Start every rank again, with no variables."""
        self._check_open()
        self._session.restart_all()

    def close(self) -> None:
        """End the ranks; nothing is left of them."""
        self._finalizer()

    @property
    def closed(self) -> bool:
        """Whether the ranks have been closed."""
        return not self._finalizer.alive

    @property
    def pids(self) -> list[int]:
        """Process ids, by rank, each on its rank's own host."""
        return [m.pid or 0 for m in self._session.members]

    def command(self, launcher: str = "torchrun") -> str:
        """Attach only: the line that starts the ranks, for torchrun, srun or mpirun."""
        if not isinstance(self._launcher, AttachLauncher):
            raise RanksUsageError("only attached ranks have a command; try launcher='attach'")
        return self._launcher.command(launcher)

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return _picture.text(self._picture())

    def _repr_html_(self) -> str:
        return _picture.page(self._picture())

    def _picture(self) -> str | tuple[str, list[list[str]]]:
        if self.closed:
            return f"{self.size} ranks, closed"
        if self._started:
            title = f"{self.size} ranks on {self.backend} ({self.reason})"
            return title, _picture.rows(self.backend, [m.facts for m in self._session.members])
        if isinstance(self._launcher, AttachLauncher):
            return f"{self._launcher.progress()}. Start them with:\n\n  {self.command()}"
        return f"{self.size} ranks, not started"

    # -- inside -------------------------------------------------------------

    def _begin(self, kind: type[Call], on: Iterable[int] | None, job: dict[str, Any]) -> Any:
        chosen = check_on(on, self.size)
        self.wait()
        self._bury_dead()
        call = kind(self._session, chosen)
        self._session.dispatch(call, job)
        return call

    def _check_open(self) -> None:
        if self.closed:
            raise RanksUsageError("these ranks are closed; make new ones: ranks = Ranks(4)")
        if self._session.owner != os.getpid():
            raise RanksUsageError(
                "ranks belong to the process that made them, and this is a fork of it; "
                "make new ones here: ranks = Ranks(4)"
            )

    def _bury_dead(self) -> None:
        dead = self._session.dead()
        if not dead or self._session.busy():
            return
        first = dead[0]
        told = ", ".join(f"rank {m.rank} {describe_end(m.status)}" for m in dead)
        cost = self._session.recover()
        raise RankDied(
            f"a process ended between two calls: {told}.\nNow: {cost}. Run the cell again.",
            first.rank,
            signal_of(first.status),
            None,
        )

    def _function(self, fn: Any, args: Any, kwargs: Any) -> dict[str, Any]:
        if not callable(fn):
            kind = type(fn).__name__
            raise RanksUsageError(
                f"run needs a function, got {kind}; try ranks.run(lambda: rank), "
                "or a %%ranks cell for statements"
            )
        for function in (fn, *args, *kwargs.values()):
            if callable(function):
                send_by_value(function)
        return {"kind": "fn", "payload": sealed((fn, args, kwargs))}

    def _seconds(self, timeout: float | str | None) -> float | None:
        if isinstance(timeout, str):
            return self.timeout
        check_timeout(timeout)
        return timeout


class _CellCall(Call):
    def _show_values(self, values: list[Any]) -> None:
        self.transcript.end()
        for rank, text in zip(self.ranks, values, strict=True):
            if text is not None:
                self.transcript.add(rank, f"Out: {text}")


def current() -> Ranks:
    """Return the newest ranks that are open; ``%%ranks`` uses them."""
    _made[:] = [ref for ref in _made if (ranks := ref()) is not None and not ranks.closed]
    found = _made[-1]() if _made else None
    if found is None:
        raise RanksUsageError("no ranks are there; start some first: ranks = Ranks(4)")
    return found


def _settle(call: Call, seconds: float | None) -> None:
    try:
        values = call.wait(seconds)
    except BaseException as error:
        for future in call.futures.values():
            future.set_exception(error)
        return
    for r, value in zip(call.ranks, values, strict=True):
        call.futures[r].set_result(value)
