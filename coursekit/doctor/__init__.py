"""``coursekit doctor``: can the course run here, and if not, what is the next step.

Whatever may crash or hang is asked in another process with a time limit; the calling
process imports no torch and never touches CUDA.
"""

from ._facts import Facts, gather
from ._lines import Line, can_run, judge
from ._screen import as_json, as_text

__all__ = ["Facts", "Line", "as_json", "as_text", "can_run", "examine", "gather", "judge"]


def examine() -> list[Line]:
    """Examine this machine: one line for each thing the course uses, in a fixed order.

    Takes some seconds: torch is imported, mpirun is run, and two ranks all-reduce.
    """
    return judge(gather())
