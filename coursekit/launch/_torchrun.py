"""Lines for torchrun.

Sources: torch/distributed/run.py of PyTorch 2.13 (its help and its text on rendezvous).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ._command import Command, Part, count, exports, own, safe
from ._environment import environment as variables
from ._errors import LaunchError

__all__ = ["torchrun", "torchrun_parts"]

PORT = 29500


def torchrun(
    nodes: int,
    gpus_per_node: int,
    script: str,
    *,
    arguments: Sequence[str] = (),
    endpoint: str = "",
    port: int = PORT,
    job: str = "job1",
    restarts: int = 0,
    interface: str = "",
    log: str = "",
    environment: Mapping[str, str] | None = None,
) -> Command:
    """A torchrun line: the same one on every node.

    Args:
        nodes, gpus_per_node: one process a GPU is started.
        script: the training script; `arguments` follow it.
        endpoint: one node's name, where the processes meet; needed for several nodes.
        port: on that node, free there.
        job: the rendezvous's id, the same on all nodes, another one for another job.
        restarts: how often all processes are started anew after a failure.
        interface: the network interface for NCCL and Gloo.
        log: NCCL's log, such as `nccl.%h.%p.log`, one file a process.
        environment: more variables, exported.

    Raises:
        LaunchError: several nodes without a meeting point that all can reach, and the like.
    """
    made = variables(interface, log, environment)
    parts = torchrun_parts(nodes, gpus_per_node, endpoint, port, job, restarts)
    return Command("torchrun", tuple(exports(made)), (*parts, *script_parts(script, arguments)))


def torchrun_parts(
    nodes: int, gpus_per_node: int, endpoint: str, port: int, job: str, restarts: int = 0,
    quoted: bool = True,
) -> list[Part]:  # fmt: skip
    count("nodes", nodes)
    count("gpus_per_node", gpus_per_node)
    count("restarts", restarts, 0)
    parts = [Part("torchrun", "torchrun", {"world": nodes * gpus_per_node})]
    if nodes == 1:
        parts.append(Part("--standalone", "standalone"))
    else:
        parts.append(Part(f"--nnodes={nodes}", "nnodes", {"nodes": nodes}))
    parts.append(Part(f"--nproc-per-node={gpus_per_node}", "nproc", {"gpus": gpus_per_node}))
    if nodes > 1:
        where = f"{_meeting(endpoint) if quoted else endpoint}:{count('port', port)}"
        shown = where if quoted else f'"{where}"'
        parts += [
            Part("--rdzv-backend=c10d", "rdzv_backend"),
            Part(f"--rdzv-endpoint={shown}", "rdzv_endpoint", {"where": where}),
            Part(f"--rdzv-id={own(job) if quoted else job}", "rdzv_id"),
        ]
    if restarts:
        parts.append(Part(f"--max-restarts={restarts}", "restarts", {"restarts": restarts}))
    return parts


def _meeting(endpoint: str) -> str:
    if not endpoint:
        raise LaunchError(
            "several nodes must have an endpoint, the name of one of them where all meet, got "
            "none; try endpoint='node1'"
        )
    if endpoint == "localhost" or endpoint.startswith("127."):
        raise LaunchError(
            f"the endpoint must be reachable from every node, got {endpoint!r}, which each node "
            "takes for itself; try endpoint='node1'"
        )
    return safe(endpoint, "endpoint")


def script_parts(script: str, arguments: Sequence[str]) -> list[Part]:
    if not script or script.startswith("-"):
        raise LaunchError(f"script must be a file such as 'train.py', got {script!r}")
    parts = [Part(own(script), "script")]
    if arguments:
        parts.append(Part(" ".join(map(own, arguments)), "arguments"))
    return parts
