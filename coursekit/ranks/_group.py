"""A rank's process group: made, broken on purpose, and made anew."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from datetime import timedelta
from typing import Any

Announce = Callable[[dict[str, Any]], None]

_FOREVER = timedelta(days=7)
_START = timedelta(seconds=60)


class Group:
    """The default process group of one rank, and its MPI communicator if it has one.

    The group's own timeout is out of the way (7 days): the notebook watches the
    ranks and knows more than the library when something hangs.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self.rank: int = config["rank"]
        self.size: int = config["size"]
        self.local_rank: int = config["local_rank"]
        self.backend: str = config["backend"]
        self.mpi: bool = config.get("mpi", False)
        self.store: dict[str, Any] = config["store"]
        self.comm: Any = None
        self.device = "cpu"
        self._kept: set[str] = set()

    def start(self, announce: Announce) -> dict[str, Any]:
        """Choose the GPU, initialise MPI where asked, and join the group."""
        import torch

        if self.backend == "nccl":
            torch.cuda.set_device(self.local_rank)
            self.device = f"cuda:{self.local_rank}"
        # MPI waits for every rank, and the other ranks wait to hear of the store.
        store = self._store(self.store, announce)
        if self.mpi:
            self._start_mpi()
        self._kept = set(_sockets().values())
        self._join(store)
        return self.facts()

    def restart(self, store: dict[str, Any], announce: Announce) -> None:
        """Leave the group, whatever its state, and join a new one."""
        import torch.distributed as dist

        try:
            dist.destroy_process_group()
        except Exception:
            _forget_groups()
        self._join(self._store(store, announce))

    def facts(self) -> dict[str, Any]:
        """What the notebook shows of this rank."""
        import torch

        facts: dict[str, Any] = {
            "rank": self.rank,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "device": self.device,
            "torch": torch.__version__,
        }
        if self.backend == "nccl":
            facts["gpu"] = torch.cuda.get_device_name(self.local_rank)
            facts["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
        if self.comm is not None:
            from mpi4py import MPI

            facts["mpi"] = MPI.Get_library_version().split(",")[0].strip()
        return facts

    def names(self) -> dict[str, Any]:
        """The names that every cell on this rank finds."""
        import torch
        import torch.distributed as dist

        names = {
            "rank": self.rank,
            "size": self.size,
            "torch": torch,
            "dist": dist,
            "device": torch.device(self.device),
        }
        return names if self.comm is None else {**names, "comm": self.comm}

    def sequence(self) -> int | None:
        """How many collectives this rank has issued on the default group."""
        import torch.distributed as dist

        from ._observe import sequence_number

        return sequence_number(dist.group.WORLD) if dist.is_initialized() else None

    def sever(self) -> None:
        """Break the group's connections, so that a blocked collective returns.

        No abort call gets a rank out of a Gloo collective; closing the TCP
        connections under it does, at once.  NCCL has an abort of its own.
        """
        if self.backend == "nccl":
            _abort_nccl()
        for descriptor, name in _sockets().items():
            if name not in self._kept:
                _shut(descriptor)

    def finish(self) -> None:
        """Leave the MPI job in order, so that mpirun has nothing to complain about."""
        if self.comm is not None:
            from mpi4py import MPI

            MPI.Finalize()

    def _start_mpi(self) -> None:
        from mpi4py import MPI

        if not MPI.Is_initialized():
            MPI.Init_thread(MPI.THREAD_MULTIPLE)
        self.comm = MPI.COMM_WORLD
        if self.comm.Get_size() != self.size:
            raise RuntimeError(
                f"MPI started {self.comm.Get_size()} processes where {self.size} ranks were asked "
                "for: mpirun and mpi4py use different MPI libraries; run `coursekit doctor`"
            )

    def _join(self, store: Any) -> None:
        import torch
        import torch.distributed as dist

        both = "cpu:gloo,cuda:nccl" if self.backend == "nccl" else self.backend
        device = torch.device(self.device) if self.backend == "nccl" else None
        dist.init_process_group(
            both,
            store=store,
            rank=self.rank,
            world_size=self.size,
            timeout=_FOREVER,
            device_id=device,
        )

    def _store(self, where: dict[str, Any], announce: Announce) -> Any:
        from torch.distributed import FileStore, TCPStore  # type: ignore[attr-defined]

        if "file" in where:
            return FileStore(where["file"], self.size)
        if "serve" in where:
            host = where["serve"]
            server = TCPStore(host, 0, None, True, timeout=_START, wait_for_workers=False)
            announce({"host": host, "port": server.port})
            return server
        return TCPStore(where["host"], where["port"], None, False, timeout=_START)


def _abort_nccl() -> None:
    import torch
    import torch.distributed as dist

    try:
        backend: Any = dist.group.WORLD
        backend._get_backend(torch.device("cuda")).abort()
    except (RuntimeError, AttributeError):
        return


def _forget_groups() -> None:
    """Drop a group that cannot be destroyed any more."""
    import torch.distributed.distributed_c10d as c10d

    c10d._update_default_pg(None)
    for registry in ("pg_map", "pg_names", "pg_group_ranks", "pg_backend_config", "pg_to_tag"):
        getattr(c10d._world, registry).clear()


def _sockets() -> dict[int, str]:
    """This process's sockets by descriptor; empty where the system has no /proc."""
    found: dict[int, str] = {}
    if not os.path.isdir("/proc/self/fd"):
        return found
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            name = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            continue
        if name.startswith("socket:"):
            found[int(descriptor)] = name
    return found


def _shut(descriptor: int) -> None:
    try:
        sock = socket.socket(fileno=os.dup(descriptor))
    except OSError:
        return
    try:
        if sock.family in (socket.AF_INET, socket.AF_INET6) and sock.type == socket.SOCK_STREAM:
            sock.getpeername()
            sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    finally:
        sock.close()
