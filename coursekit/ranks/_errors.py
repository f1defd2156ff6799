"""What can go wrong with ranks.

RanksError
 |- RanksUsageError   a call that cannot work: the rule, what was got, the next step
 |- RanksStartError   the ranks did not come up
 |- RankFailed        a rank raised; its own traceback is shown
 |- RankDied          a rank's process ended: its signal or exit code
 `- RanksHung         the timeout passed; where every rank stands

In a notebook they are shown as their message alone: the frames of this package
say nothing about the mistake.
"""

from __future__ import annotations

from typing import Any

from ._stand import Stand


class RanksError(Exception):
    """Base of every error that `coursekit.ranks` raises."""

    def _render_traceback_(self) -> list[str]:
        return f"{type(self).__name__}: {self}".splitlines()


class RanksUsageError(RanksError, ValueError):
    """The call breaks a rule; nothing was sent to any rank."""


class RanksStartError(RanksError):
    """The ranks could not be started; the message says which step failed."""


class RankFailed(RanksError):  # noqa: N818 - the name says what happened to the rank
    """A rank raised an exception.

    Attributes
    ----------
    rank : int
        The rank whose failure is the root cause, as far as the evidence goes.
    type_name : str
        Name of the exception class that it raised.
    failures : dict[int, str]
        Every failing rank's traceback, as text.
    """

    def __init__(self, message: str, rank: int, type_name: str, failures: dict[int, str]) -> None:
        super().__init__(message)
        self.rank, self.type_name, self.failures = rank, type_name, failures


class RankDied(RanksError):  # noqa: N818
    """A rank's process ended.

    Attributes
    ----------
    rank : int
    signal : str or None
        Such as ``"SIGKILL"``; None when the process exited by itself.
    exitcode : int or None
    """

    def __init__(self, message: str, rank: int, signal: str | None, exitcode: int | None) -> None:
        super().__init__(message)
        self.rank, self.signal, self.exitcode = rank, signal, exitcode


class RanksHung(RanksError, TimeoutError):  # noqa: N818
    """The timeout passed before every rank was done.

    Attributes
    ----------
    stands : list[Stand]
        Where each rank stood.
    culprits : list[int]
        The ranks that the others waited for, where the evidence names them.
    """

    def __init__(self, message: str, stands: list[Stand], culprits: list[int]) -> None:
        super().__init__(message)
        self.stands, self.culprits = stands, culprits

    def __reduce__(self) -> Any:
        return type(self), (str(self), self.stands, self.culprits)
