"""What the tests of ranks share: seeing that nothing is left behind."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from coursekit import Ranks


def gone(pids: list[int], seconds: float = 2.0) -> list[int]:
    """Return the processes of `pids` that still run after at most `seconds`."""
    until = time.monotonic() + seconds
    while True:
        alive = [p for p in pids if _runs(p)]
        if not alive or time.monotonic() > until:
            return alive
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def folder_of(ranks: Ranks) -> str:
    return ranks._launcher.folder


@contextmanager
def clean_ranks(size: int, **options: object) -> Iterator[Ranks]:
    """Ranks whose processes and folder must be gone afterwards, whatever happened."""
    ranks = Ranks(size, **options)
    folder = folder_of(ranks)
    seen = set(ranks.pids)
    try:
        yield ranks
        seen |= set(ranks.pids)
    finally:
        ranks.close()
    assert gone(sorted(seen)) == []
    assert not os.path.exists(folder)


def all_reduce_works(ranks: Ranks) -> bool:
    """Whether the ranks compute a right sum together."""

    def total() -> float:
        x = torch.full((3,), float(rank))  # noqa: F821 - names of the rank
        dist.all_reduce(x)  # noqa: F821
        return x.tolist()

    size = ranks.size
    return ranks.run(total) == [[size * (size - 1) / 2] * 3] * size


ROOT = Path(__file__).parents[1]
