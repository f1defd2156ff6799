"""The whole way from sources to a report."""

from __future__ import annotations

from typing import Any

from coursekit.diagnose import _rank, _sources
from coursekit.diagnose._facts import Facts
from coursekit.diagnose._report import Report


def diagnose(source: Any, *more: Any, gpu: str = "") -> Report:
    r"""What went wrong, or that nothing did.

    Parameters
    ----------
    source, *more
        A path, a folder (all files in it), the text itself, an iterable of paths or of lines, or a
        flight recorder's dump that is loaded already. All of them are taken as one job's.
    gpu : str
        The GPU's name, such as ``H20``, where it is known: a topology table does not say it.

    Raises
    ------
    DiagnoseError
        There is no such file, or it is none of these.

    Examples
    --------
    >>> diagnose("node-a:1:2 [0] init.cc:497 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 "
    ...          "both on CUDA device 1000").first.id
    'init.duplicate_gpu'
    """
    facts = Facts(gpu=gpu)
    for one in (source, *more):
        _sources.read(one, facts)
    return finish(facts)


def finish(facts: Facts) -> Report:
    """The report of what was read."""
    found = _rank.verdicts(facts)
    return Report(tuple(found), tuple(facts.sources), facts.lines, facts.bytes)
