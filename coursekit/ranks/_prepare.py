"""What importing the package does in a notebook."""

from __future__ import annotations

import sys

from ._magic import register
from ._output import in_kernel
from ._server_client import fork_server


def prepare() -> None:
    """In IPython, add ``%%ranks``; in a Jupyter kernel, start the fork server ahead of time."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    if shell is None:
        return
    register(shell)
    if in_kernel():
        fork_server()
