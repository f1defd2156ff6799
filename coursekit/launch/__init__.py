"""Launcher lines: written for torchrun, mpirun and srun, and checked before they run.

`torchrun`, `mpirun` and `srun` write a `Command`: its text is the line, `command.explain()` says
what each option is for, `command.files` holds the hostfile. `check` reads a line or a small shell
block and tells what is wrong, what that does, and what to write instead. Nothing is ever run.

Errors: LaunchError (a ValueError). Both languages of the course: `coursekit.i18n.language`.
Sources stand in the modules; names of variables with theirs in data/launch_env.yaml.
"""

from ._check import check
from ._command import Command, Part
from ._errors import LaunchError
from ._finding import Finding
from ._mpirun import mpirun
from ._srun import srun
from ._torchrun import torchrun

__all__ = ["Command", "Finding", "LaunchError", "Part", "check", "mpirun", "srun", "torchrun"]
