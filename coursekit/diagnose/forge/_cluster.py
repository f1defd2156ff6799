"""A cluster to write logs of: hosts, ranks, versions, addresses, all from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cached_property

from coursekit.diagnose._errors import DiagnoseError

# NCCL releases, and the torch that ships each (or one near it).
VERSIONS = {
    "2.14.3": "2.0", "2.18.5": "2.1", "2.19.3": "2.2", "2.20.5": "2.4", "2.21.5": "2.6",
    "2.23.4": "2.6", "2.24.3": "2.6", "2.26.5": "2.7", "2.27.7": "2.9", "2.28.9": "2.11",
    "2.29.7": "2.13", "2.30.3": "2.14", "2.30.7": "2.14",
}  # fmt: skip
_NAMES = ("node-{:d}", "gpu{:03d}", "worker-{:d}.cluster.local", "ip-10-1-2-{:d}", "c{:02d}n{:02d}")
_CARDS = ("eth0", "ens3f0", "bond0", "eno1", "enp71s0")


@dataclass(frozen=True)
class Cluster:
    """Who takes part, and with what.

    Parameters
    ----------
    hosts, gpus : int
        Hosts, and ranks on each: rank r runs on host r // gpus.
    version : str
        NCCL's version, such as ``2.27.7``.
    torch : str
        PyTorch's version, such as ``2.9``; empty for the one that ships this NCCL.
    interface : str
        The network interface.
    seed : int
        Everything else: names, process ids, addresses, sizes.

    Raises
    ------
    DiagnoseError
        A number is below 1, or the version is not one of three numbers.
    """

    hosts: int = 2
    gpus: int = 4
    version: str = "2.27.7"
    torch: str = ""
    interface: str = "eth0"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.hosts < 1 or self.gpus < 1:
            raise DiagnoseError(
                f"a cluster must have hosts and gpus, got {self.hosts} x {self.gpus}; "
                "try Cluster(hosts=2, gpus=4)"
            )
        if not all(p.isdigit() for p in self.version.split(".")) or self.version.count(".") != 2:
            raise DiagnoseError(
                f"version must be such as 2.27.7, got {self.version!r}; "
                f"there are {', '.join(VERSIONS)}"
            )

    @property
    def size(self) -> int:
        """Ranks in all."""
        return self.hosts * self.gpus

    @property
    def number(self) -> tuple[int, ...]:
        """NCCL's version, to be compared."""
        return tuple(int(p) for p in self.version.split("."))

    @property
    def torch_number(self) -> tuple[int, ...]:
        """PyTorch's version, to be compared."""
        told = self.torch or VERSIONS.get(self.version, "2.9")
        return tuple(int(p) for p in told.split("."))

    @cached_property
    def _style(self) -> tuple[str, int, int, int]:
        rng = random.Random(f"cluster {self.seed}")
        subnet = rng.randrange(1, 250)
        return rng.choice(_NAMES), subnet, rng.randrange(1000, 60_000), rng.randrange(1, 90)

    def host(self, rank: int) -> str:
        """The name of a rank's host."""
        form, _, _, first = self._style
        number = first + rank // self.gpus
        return form.format(number, number)

    def address(self, rank: int) -> str:
        """The address of a rank's host."""
        number = rank // self.gpus + 1
        return f"10.{self._style[1]}.{number >> 8}.{number & 255}"

    def pid(self, rank: int) -> int:
        """The process id of a rank."""
        return self._style[2] + 13 * rank

    def device(self, rank: int) -> int:
        """A rank's GPU on its host."""
        return rank % self.gpus


def at_random(
    seed: int, *, least: tuple[int, int] = (1, 1), version: tuple[int, ...] = (2, 14)
) -> Cluster:
    """A cluster by seed: with so many hosts and GPUs at least, and no older NCCL."""
    rng = random.Random(f"at random {seed}")
    hosts = max(least[0], rng.choice((1, 2, 2, 3, 4)))
    gpus = max(least[1], rng.choice((2, 4, 4, 8)))
    fit = [v for v in VERSIONS if tuple(int(p) for p in v.split(".")) >= version]
    return Cluster(hosts, gpus, rng.choice(fit), "", rng.choice(_CARDS), seed)
