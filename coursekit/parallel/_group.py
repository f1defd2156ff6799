"""Groups of ranks: where they come from, and the course's own collectives on them."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from coursekit.comm import connect, execute
from coursekit.comm.names import all_gather_whole, reduce_scatter_whole
from coursekit.schedule import Schedule, build

from ._errors import ParallelError


def mesh(**degrees: int) -> DeviceMesh:
    """A mesh over all ranks, one axis per parallel mode; the last one's ranks are neighbours.

    Args:
        degrees: such as ``dp=2, tp=2``: every rank calls it with the same, in the same order.

    Returns:
        DeviceMesh: ``mesh["tp"]`` is this rank's group along that axis; all modes take it.

    Raises:
        ParallelError: the product of the degrees is not the world size.
    """
    product = 1
    for degree in degrees.values():
        product *= degree
    if not dist.is_initialized():
        raise ParallelError("mesh() needs ranks; call it inside ranks.run(...) or under torchrun")
    world = dist.get_world_size()
    if not degrees or product != world or min(degrees.values()) < 1:
        told = ", ".join(f"{name}={degree}" for name, degree in degrees.items())
        raise ParallelError(
            f"the degrees' product must be the world size {world}, got {told or 'none'}: "
            f"{product}; try mesh(dp={world}) or other factors of {world}"
        )
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    return init_device_mesh(device, tuple(degrees.values()), mesh_dim_names=tuple(degrees))


def group_of(group: Any = None) -> dist.ProcessGroup:
    """The process group of a mesh with one axis, of a group itself, or of all ranks for None.

    Raises:
        ParallelError: it is none of these, or the mesh has several axes.
    """
    if group is None:
        if not dist.is_initialized():
            raise ParallelError(
                "a parallel mode needs ranks, got a process without any; call it inside "
                "ranks.run(...) or under torchrun"
            )
        return dist.distributed_c10d._get_default_group()
    if isinstance(group, DeviceMesh):
        if group.ndim != 1:
            raise ParallelError(
                f"a mode runs along one axis of a mesh, got all of {group.mesh_dim_names}; "
                f"pick one: mesh[{(group.mesh_dim_names or ('dp',))[0]!r}]"
            )
        return group.get_group()
    if not isinstance(group, dist.ProcessGroup):
        raise ParallelError(
            f"group must be a process group or one axis of a mesh, got {type(group).__name__}; "
            "leave it out for all ranks"
        )
    return group


class Own:
    """The course's own reduce-scatter and all-gather: ring schedules, run message by message.

    On Gloo they send what the formula says; Gloo's own reduce_scatter is an all_reduce inside.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.comm = connect(group)

    def reduce_scatter(self, whole: Tensor) -> Tensor:
        """Sum flat tensors of a length that the size divides; this rank's part, a view of `whole`.

        What else `whole` held is spoilt.
        """
        execute(_ring("reduce_scatter", self.comm.size), self.comm, whole)
        return part(whole, self.comm.rank, self.comm.size)

    def all_gather(self, whole: Tensor) -> None:
        """Fill a flat tensor in which every rank has put its own part."""
        execute(_ring("all_gather", self.comm.size), self.comm, whole)


class Library:
    """The same from the process group's backend, such as NCCL."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group, self.rank, self.size = group, group.rank(), group.size()

    def reduce_scatter(self, whole: Tensor) -> Tensor:
        """As `Own.reduce_scatter`, in new memory."""
        mine = torch.empty_like(part(whole, self.rank, self.size))
        reduce_scatter_whole()(mine, whole, group=self.group)
        return mine

    def all_gather(self, whole: Tensor) -> None:
        """As `Own.all_gather`."""
        mine = part(whole, self.rank, self.size).clone()
        all_gather_whole()(whole, mine, group=self.group)


def collectives(kind: str, group: dist.ProcessGroup) -> Own | Library:
    """``own`` or ``library``."""
    if kind not in ("own", "library"):
        raise ParallelError(f"collectives must be 'own' or 'library', got {kind!r}; try 'own'")
    return Own(group) if kind == "own" else Library(group)


def part(whole: Tensor, rank: int, size: int) -> Tensor:
    """A rank's view of a flat tensor that `size` divides."""
    length = whole.numel() // size
    return whole[rank * length : (rank + 1) * length]


@cache
def _ring(collective: str, size: int) -> Schedule:
    return build(collective, "ring", size)
