"""What is asked inside a fresh Python: ``python -m coursekit.doctor._inside QUESTION``."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any


def torch() -> dict[str, Any]:
    """Torch's version, what it was built for, and the GPUs that it sees."""
    import torch
    import torch.distributed as dist

    nccl = dist.is_available() and dist.is_nccl_available()
    return {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "gloo": dist.is_available() and dist.is_gloo_available(),
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if nccl else None,  # type: ignore[no-untyped-call]
        "gpus": torch.cuda.device_count(),
    }


def mpi() -> dict[str, Any]:
    """The MPI library that mpi4py uses, and how many ranks it found; run under mpirun."""
    from mpi4py import MPI

    return {"library": MPI.Get_library_version().strip("\0 \n"), "size": MPI.COMM_WORLD.size}


def ranks() -> dict[str, Any]:
    """Start two ranks and sum ``rank + 1`` over them: 3 on both."""
    from coursekit import Ranks

    start = time.monotonic()
    with Ranks(2, timeout=30) as two:
        values = two.run(_sum_of_ranks)
        seconds = time.monotonic() - start
        return {"values": values, "backend": two.backend, "seconds": seconds}


def _sum_of_ranks() -> float:
    import torch
    import torch.distributed as dist

    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    total = torch.tensor(dist.get_rank() + 1.0, device=device)
    dist.all_reduce(total)
    return total.item()


QUESTIONS: dict[str, Callable[[], dict[str, Any]]] = {"torch": torch, "mpi": mpi, "ranks": ranks}

if __name__ == "__main__":
    # One write: lines of several MPI ranks must not mix.
    sys.stdout.write(json.dumps(QUESTIONS[sys.argv[1]]()) + "\n")
