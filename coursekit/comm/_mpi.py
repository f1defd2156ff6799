"""Communicators of mpi4py."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from ._comm import Request
from ._errors import CommError


class MpiComm:
    """An mpi4py communicator, by its buffer protocol."""

    def __init__(self, comm: Any) -> None:
        from mpi4py import MPI

        self._comm, self._byte = comm, MPI.BYTE
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()
        self.name = "mpi"

    def isend(self, buffer: Any, dest: int, tag: int = 0) -> Request:
        """Start to send a buffer to rank `dest`."""
        request: Request = self._comm.Isend([_bytes(buffer), self._byte], dest, tag)
        return request

    def irecv(self, buffer: Any, source: int, tag: int = 0) -> Request:
        """Start to receive into a buffer from rank `source`."""
        request: Request = self._comm.Irecv([_bytes(buffer), self._byte], source, tag)
        return request

    def barrier(self) -> None:
        """Return when every rank has called it."""
        self._comm.Barrier()


@functools.cache
def cuda_aware() -> bool | None:
    """Whether this MPI takes buffers in GPU memory; None where it does not say.

    Open MPI answers by `MPIX_Query_cuda_support`, MPICH and its relatives by
    `MPIX_GPU_query_support` (https://www.mpich.org/static/docs/latest/www3/).
    """
    from mpi4py import MPI

    library = ctypes.CDLL(MPI.__file__)
    if hasattr(library, "MPIX_Query_cuda_support"):
        return bool(library.MPIX_Query_cuda_support())
    if hasattr(library, "MPIX_GPU_query_support"):
        cuda, answer = 0, ctypes.c_int(0)
        failed = library.MPIX_GPU_query_support(ctypes.c_int(cuda), ctypes.byref(answer))
        return None if failed else bool(answer.value)
    return None


def _bytes(buffer: Any) -> Any:
    import torch

    if buffer.device.type == "cpu":
        return buffer.view(torch.uint8).numpy()
    if buffer.device.type != "cuda" or not cuda_aware():
        raise CommError(_refusal(buffer.device))
    # MPI knows nothing of CUDA streams: what was started on this buffer must be over.
    torch.cuda.current_stream(buffer.device).synchronize()
    return buffer.view(torch.uint8)


def _refusal(device: Any) -> str:
    if device.type != "cuda":
        why = "MPI takes buffers on the CPU, or on a GPU where it is CUDA-aware"
    elif cuda_aware() is None:
        why = "this MPI does not say whether it is CUDA-aware"
    else:
        why = "this MPI is not CUDA-aware"
    return f"{why}, got a buffer on {device}; copy it with .cpu(), or use NCCL for GPU tensors"
