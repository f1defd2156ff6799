"""Faults as data: what goes wrong, on which rank, at which of its calls."""

from __future__ import annotations

from dataclasses import dataclass

from ._errors import FaultsError

DTYPES = ("float16", "bfloat16", "float32", "float64", "int32", "int64", "uint8")
LASTING = ("straggler", "uneven_data")


@dataclass(frozen=True)
class Fault:
    """One mistake of one rank; the functions of this package make them.

    Attributes
    ----------
    kind : str
        The name of the function that made it, such as ``skip``.
    rank : int
        The rank that makes the mistake.
    nth : int
        At which of its calls, counted from 1 when the ``with`` begins.
    op : str or None
        Count only calls of this name, such as ``all_reduce``.
    seconds : float
        How late a straggler is.
    dtype : str
        What a wrong dtype is.
    """

    kind: str
    rank: int
    nth: int = 1
    op: str | None = None
    seconds: float = 0.0
    dtype: str = ""

    def __post_init__(self) -> None:
        _whole(self.rank, "rank", 0)
        _whole(self.nth, "nth", 1)
        number = isinstance(self.seconds, int | float) and not isinstance(self.seconds, bool)
        if not number or self.seconds < 0:
            raise FaultsError(f"seconds must be a number from 0 up, got {self.seconds!r}; try 2")
        if self.dtype and self.dtype not in DTYPES:
            raise FaultsError(f"dtype must be one of {', '.join(DTYPES)}, got {self.dtype!r}")

    def __str__(self) -> str:
        if self.kind == "full_shared_memory":
            return f"{self.kind} on rank {self.rank}"
        lasts = " and from then on" if self.kind in LASTING else ""
        return f"{self.kind} on rank {self.rank}, at its {self.op or 'call'} {self.nth}{lasts}"


def skip(rank: int, nth: int = 1, op: str | None = None) -> Fault:
    """The rank leaves its nth call out, as behind an ``if`` that is false only there.

    The others wait for it at the end, one call ahead.
    """
    return Fault("skip", rank, nth, op)


def uneven_data(rank: int, nth: int = 2, op: str | None = None) -> Fault:
    """The rank has nothing left from its nth call on, as where its data ends earlier.

    It finishes, and the others wait for it in a call that it never makes.
    """
    return Fault("uneven_data", rank, nth, op)


def wrong_order(rank: int, nth: int = 1, op: str | None = None) -> Fault:
    """The rank makes its nth call after the one that follows it.

    Two different operations hang or fail; two of the same kind and size end well, with each
    other's data: Gloo notices nothing.
    """
    return Fault("wrong_order", rank, nth, op)


def wrong_size(rank: int, nth: int = 1, op: str | None = None) -> Fault:
    """The rank brings buffers twice as long to its nth call."""
    return Fault("wrong_size", rank, nth, op)


def wrong_dtype(rank: int, nth: int = 1, op: str | None = None, dtype: str = "float64") -> Fault:
    """The rank brings another dtype to its nth call.

    One of the same width, such as int32 for float32, gives a wrong result without an error.
    """
    return Fault("wrong_dtype", rank, nth, op, dtype=dtype)


def wrong_group(rank: int, nth: int = 1, op: str | None = None) -> Fault:
    """The rank makes its nth call in another group, of itself and the rank that follows it."""
    return Fault("wrong_group", rank, nth, op)


def crash(rank: int, nth: int = 1, op: str | None = None) -> Fault:
    """The rank raises `InjectedError` in its nth call."""
    return Fault("crash", rank, nth, op)


def kill(rank: int, nth: int = 1, op: str | None = None) -> Fault:
    """The rank is killed in its nth call, as by the kernel when memory runs out (SIGKILL)."""
    return Fault("kill", rank, nth, op)


def stop(rank: int, nth: int = 1, op: str | None = None) -> Fault:
    """The rank is stopped in its nth call, as a machine that freezes (SIGSTOP)."""
    return Fault("stop", rank, nth, op)


def straggler(rank: int, seconds: float, nth: int = 1, op: str | None = None) -> Fault:
    """The rank comes late to its nth call and to every one after it.

    Nothing fails as long as the time suffices: the others wait, and their own calls seem slow.
    """
    return Fault("straggler", rank, nth, op, seconds=seconds)


def full_shared_memory(rank: int) -> Fault:
    """Nothing fits into ``/dev/shm`` any more, for this rank and the processes that it starts.

    It gets a small file system of its own there, which needs root on Linux.
    """
    return Fault("full_shared_memory", rank)


def _whole(value: int, name: str, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise FaultsError(f"{name} must be a whole number from {least} up, got {value!r}")
