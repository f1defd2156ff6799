"""Lines for Slurm's srun, to stand in a job script or after salloc.

Sources: srun(1) (--nodes, --ntasks-per-node, --gpus-per-node, --cpus-per-task, --export,
--kill-on-bad-exit, --mpi); torch/distributed/run.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ._command import Command, Part, count, exports
from ._environment import environment as variables
from ._errors import LaunchError
from ._torchrun import PORT, script_parts, torchrun_parts

__all__ = ["srun"]

_FIRST = 'head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'


def srun(
    nodes: int,
    gpus_per_node: int,
    script: str,
    *,
    arguments: Sequence[str] = (),
    starts: str = "torchrun",
    port: int = PORT,
    cpus_per_gpu: int = 0,
    interface: str = "",
    log: str = "",
    environment: Mapping[str, str] | None = None,
) -> Command:
    """An srun line: it starts torchrun once a node, or an MPI program once a GPU.

    Args:
        nodes, gpus_per_node: what the job has.
        script: the training script, or with `starts="mpi"` the program; `arguments` follow it.
        starts: "torchrun" or "mpi".
        port: for torchrun's meeting, free on the first node.
        cpus_per_gpu: processor cores for each GPU; 0 leaves it to Slurm, which gives one a task.
        interface, log, environment: as for `torchrun`; srun hands exported variables on.

    Raises:
        LaunchError: an unknown `starts`, and the like.
    """
    if starts not in ("torchrun", "mpi"):
        raise LaunchError(f"starts must be 'torchrun' or 'mpi', got {starts!r}; "
                          "try starts='torchrun'")  # fmt: skip
    count("nodes", nodes)
    count("gpus_per_node", gpus_per_node)
    count("cpus_per_gpu", cpus_per_gpu, 0)
    tasks = 1 if starts == "torchrun" else gpus_per_node
    before = exports(variables(interface, log, environment))
    parts = [Part("srun", "srun")]
    if starts == "mpi":
        parts.append(Part("--mpi=pmix", "mpi_pmix"))
    parts += [
        Part(f"--nodes={nodes}", "nodes", {"nodes": nodes}),
        Part(f"--ntasks-per-node={tasks}", f"ntasks_{starts}", {"gpus": gpus_per_node}),
        Part(f"--gpus-per-node={gpus_per_node}", "gpus_per_node", {"gpus": gpus_per_node}),
    ]
    if cpus_per_gpu:
        cpus = cpus_per_gpu * gpus_per_node // tasks
        parts.append(Part(f"--cpus-per-task={cpus}", "cpus_per_task", {"cpus": cpus}))
    parts.append(Part("--kill-on-bad-exit=1", "kill"))
    if starts == "torchrun":
        if nodes > 1:
            before = [Part(_FIRST, "head"), *before]
        inner = torchrun_parts(nodes, gpus_per_node, '$head', port, '"$SLURM_JOB_ID"',
                               quoted=False)  # fmt: skip
        parts += inner
    return Command("srun", tuple(before), (*parts, *script_parts(script, arguments)))
