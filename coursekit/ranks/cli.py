"""``coursekit ranks``: the command that remote ranks are started with."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

app = typer.Typer(help="Ranks on other machines.", no_args_is_help=True)


@app.callback()
def ranks() -> None:
    """Ranks on other machines."""


@app.command()
def serve(
    connect: Annotated[str, typer.Option(help="HOST:PORT that the notebook shows.")],
) -> None:
    """Serve one rank to a notebook; run me under torchrun, srun or mpirun."""
    from . import _attach
    from . import serve as agent
    from ._place import ServeError

    try:
        code = agent.main(connect, os.environ.get(_attach.SECRET_NAME))
    except ServeError as error:
        print(f"coursekit ranks serve: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    raise typer.Exit(code)
