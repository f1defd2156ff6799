"""The facts about this machine, as they are; what they mean is told in `_lines`."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import re
import resource
import shutil
import socket
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from coursekit.ranks._errors import RanksError
from coursekit.ranks._local import loopback
from coursekit.ranks._mpi import find_mpirun, mpi_environment, mpirun_command

from ._ask import Answer, ask, ask_inside, from_json, inside_command

# A first import of torch from a cold network disk has been seen to take a minute.
TORCH_SECONDS = 180.0
RANKS_SECONDS = 180.0
MPI_SECONDS = 60.0
TOOL_SECONDS = 20.0


@dataclass(frozen=True)
class Facts:
    """What was found. Sizes are bytes; an `Answer` holds a value or an error.

    Attributes:
        shm: size of /dev/shm, None where there is none.
        gloo: interface and address; empty name when the chosen interface is not there.
        outside: this machine's interface and address as other machines may reach it, or None.
    """

    python: str
    prefix: str
    torch: Answer
    ranks: Answer
    mpirun: Answer
    mpi: Answer
    mpi_cuda: Answer
    smi: Answer
    topo: Answer
    gloo: tuple[str, str]
    outside: tuple[str, str] | None
    shm: int | None
    cores: int
    memory: int
    files: int
    jupyterlab: str | None
    env: dict[str, str] = field(default_factory=dict)


def gather() -> Facts:
    """Find the facts; the slow questions are asked side by side."""
    with ThreadPoolExecutor() as pool:
        torch = pool.submit(ask_inside, "torch", TORCH_SECONDS)
        smi = pool.submit(nvidia_smi, "--query-gpu=name,memory.total", "--format=csv,noheader")
        topo = pool.submit(nvidia_smi, "topo", "-m")
        mpirun = which_mpirun()
        mpi = pool.submit(ask_mpi, mpirun)
        mpi_cuda = pool.submit(ask_mpi_cuda, mpirun)
        # Last and alone: two ranks that wait for a busy machine look like two that hang.
        torch.result(), mpi.result()
        ranks = ask_inside("ranks", RANKS_SECONDS)
    return Facts(
        python=platform.python_version(),
        prefix=sys.prefix,
        torch=torch.result(),
        ranks=ranks,
        mpirun=mpirun,
        mpi=mpi.result(),
        mpi_cuda=mpi_cuda.result(),
        smi=smi.result(),
        topo=topo.result(),
        gloo=gloo_interface(),
        outside=outside_interface(),
        shm=shm_size(),
        cores=core_count(),
        memory=memory_size(),
        files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        jupyterlab=version_of("jupyterlab"),
    )


def nvidia_smi(*arguments: str) -> Answer:
    """The driver's own tool; an error where there is none."""
    tool = shutil.which("nvidia-smi")
    return ask([tool, *arguments], TOOL_SECONDS) if tool else Answer(error="no nvidia-smi")


def which_mpirun() -> Answer:
    """The mpirun that ``Ranks(..., launcher="mpi")`` would use."""
    try:
        return Answer(find_mpirun())
    except RanksError as error:
        return Answer(error=str(error))


def ask_mpi(mpirun: Answer) -> Answer:
    """Really start two MPI ranks; the value is what the first to answer said."""
    if mpirun.error:
        return mpirun
    with tempfile.TemporaryDirectory(prefix="coursekit-") as folder:
        try:
            command = mpirun_command(mpirun.value, 2, inside_command("mpi"))
        except RanksError as error:
            return Answer(error=str(error))
        return from_json(ask(command, MPI_SECONDS, mpi_environment(folder)))


def ask_mpi_cuda(mpirun: Answer) -> Answer:
    """Whether Open MPI was built for CUDA: True, False, or an error where it does not say."""
    info = Path(mpirun.value or "").with_name("ompi_info")
    if mpirun.error or not info.exists():
        return Answer(error="only Open MPI's ompi_info tells")
    said = ask([str(info), "--parsable", "--all"], TOOL_SECONDS)
    found = re.search(r"built_with_cuda_support:value:(true|false)", said.value or "")
    return Answer(found[1] == "true") if found else Answer(error=said.error or "ompi_info is mute")


def gloo_interface() -> tuple[str, str]:
    """Interface and address of Gloo between ranks of this machine."""
    name = os.environ.get("GLOO_SOCKET_IFNAME") or loopback()
    for single in name.split(","):
        for address in psutil.net_if_addrs().get(single, []):
            if address.family in (socket.AF_INET, socket.AF_INET6):
                return single, address.address
    return name, ""


def outside_interface() -> tuple[str, str] | None:
    """The interface that leads off this machine. Choosing a route sends no packet."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # an address reserved for documentation, RFC 5737
        own = probe.getsockname()[0]
        for name, addresses in psutil.net_if_addrs().items():
            if any(a.address == own for a in addresses):
                return name, own
    return None


def shm_size() -> int | None:
    """Size of /dev/shm in bytes."""
    try:
        return shutil.disk_usage("/dev/shm").total
    except OSError:
        return None


def core_count() -> int:
    """Cores that this process may use; a container's quota counts."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    cores = allowed or os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        cores = min(cores, max(1, int(quota) // int(period)))
    return cores


def memory_size() -> int:
    """Memory in bytes that this process may use; a container's limit counts."""
    total = psutil.virtual_memory().total
    with contextlib.suppress(OSError, ValueError):
        total = min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return total


def version_of(package: str) -> str | None:
    """A package's version, None when it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
