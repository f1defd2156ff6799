"""``coursekit launch``: launcher lines written, explained and checked."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from coursekit.launch import Command

__all__ = ["LaunchCliError", "app"]

MOST = 1_000_000

app = typer.Typer(help="Write, explain and check torchrun, mpirun and srun lines.",
                  no_args_is_help=True)  # fmt: skip


class LaunchCliError(Exception):
    """A user's mistake: one line on the terminal."""


_Nodes = Annotated[int, typer.Option(help="How many nodes.")]
_Each = Annotated[int, typer.Option(help="GPUs, so processes, on a node.")]
_Interface = Annotated[str, typer.Option(help="The network interface, such as eth0.")]
_Log = Annotated[str, typer.Option(help="NCCL's log, such as nccl.%h.%p.log.")]
_Lang = Annotated[str, typer.Option(help="en or zh.")]
_Script = Annotated[str, typer.Argument(help="What each process runs.")]


@app.command()
def torchrun(
    script: _Script = "train.py",
    nodes: _Nodes = 1,
    gpus: _Each = 8,
    endpoint: Annotated[str, typer.Option(help="One node's name; for several nodes.")] = "",
    port: Annotated[int, typer.Option(help="Free on that node.")] = 29500,
    interface: _Interface = "",
    log: _Log = "",
    lang: _Lang = "en",
) -> None:
    """Write a torchrun line and explain it."""
    from coursekit import launch

    _show(lang, lambda: launch.torchrun(nodes, gpus, script, endpoint=endpoint, port=port,
                                        interface=interface, log=log))  # fmt: skip


@app.command()
def mpirun(
    program: _Script = "./train",
    nodes: Annotated[int, typer.Option(help="node1, node2, ...; 1: this machine.")] = 1,
    hosts: Annotated[str, typer.Option(help="Their names instead: a,b,c.")] = "",
    ranks: Annotated[int, typer.Option(help="Ranks on a node.")] = 8,
    version: Annotated[str, typer.Option(help="Open MPI's: 5 or 4.")] = "5",
    hostfile: Annotated[str, typer.Option(help="The hostfile's name.")] = "",
    interface: _Interface = "",
    log: _Log = "",
    forward: Annotated[str, typer.Option("-x", help="Variables to hand on: A,B.")] = "",
    ucx: Annotated[bool, typer.Option("--ucx", help="Ask for UCX by name.")] = False,
    oversubscribe: Annotated[
        bool, typer.Option("--oversubscribe", help="More ranks than cores, to try it out.")
    ] = False,
    lang: _Lang = "en",
) -> None:
    """Write an mpirun line for Open MPI, with its hostfile, and explain it."""
    from coursekit import launch

    _show(lang, lambda: launch.mpirun(_split(hosts) or nodes, ranks, program, version=version,
                                      hostfile=hostfile, interface=interface, log=log,
                                      forward=_split(forward), ucx=ucx,
                                      oversubscribe=oversubscribe))  # fmt: skip


@app.command()
def srun(
    script: _Script = "train.py",
    nodes: _Nodes = 1,
    gpus: _Each = 8,
    starts: Annotated[str, typer.Option(help="torchrun or mpi.")] = "torchrun",
    cpus: Annotated[int, typer.Option(help="Processor cores for each GPU.")] = 0,
    interface: _Interface = "",
    log: _Log = "",
    lang: _Lang = "en",
) -> None:
    """Write an srun line, to stand in a job script, and explain it."""
    from coursekit import launch

    _show(lang, lambda: launch.srun(nodes, gpus, script, starts=starts, cpus_per_gpu=cpus,
                                    interface=interface, log=log))  # fmt: skip


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="A shell file; - for what is piped in.")],
    nccl: Annotated[str, typer.Option(help="NCCL's version.")] = "2.29.7",
    mpi: Annotated[str, typer.Option(help="5 or 4 for Open MPI, or mpich.")] = "5",
    gpus: Annotated[int, typer.Option(help="GPUs on a node; 0: not known.")] = 0,
    root: Annotated[bool, typer.Option("--root", help="Root will run it.")] = False,
    hostfile: Annotated[
        list[Path] | None, typer.Option(help="A hostfile that the lines name.")
    ] = None,
    lang: _Lang = "en",
) -> None:
    """Tell what is wrong with launcher lines; nothing in them is run.

    Exit code 1 when something is wrong, 0 when nothing is.
    """
    from coursekit import launch
    from coursekit.i18n import language, text

    files = {key: _text(p) for p in hostfile or [] for key in (str(p), p.name, f"./{p.name}")}
    try:
        language(lang)
        found = launch.check(_text(file), nccl=nccl, mpi=mpi, gpus=gpus or None, root=root,
                             files=files)  # fmt: skip
    except ValueError as error:
        raise LaunchCliError(str(error)) from None
    print("\n".join(map(str, found)) or text("launch.right"))
    raise typer.Exit(1 if found else 0)


def _show(lang: str, write: Callable[[], Command]) -> None:
    from coursekit.i18n import language

    try:
        language(lang)
        command = write()
    except ValueError as error:
        raise LaunchCliError(str(error)) from None
    print(f"{command.block}\n\n{command.explain()}")


def _split(names: str) -> list[str]:
    return [name for name in names.split(",") if name]


def _text(file: Path) -> str:
    if str(file) == "-":
        data = sys.stdin.buffer.read(MOST)
    else:
        try:
            with file.open("rb") as stream:
                data = stream.read(MOST)
        except OSError as error:
            raise LaunchCliError(
                f"the lines must be in a file that can be read, got {file} ({error.strerror}); "
                "try: coursekit launch check run.sh"
            ) from None
    return data.decode("utf-8", "replace")
