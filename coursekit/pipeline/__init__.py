"""Pipeline schedules as data: who does which micro-batch's forward and backward, in which order.

A schedule is written down, checked, counted, simulated and drawn without a single rank;
`coursekit.parallel.Pipeline` runs the very same one on ranks.
"""

from ._action import Action
from ._build import bubble, build, names
from ._check import check
from ._errors import PipelineError
from ._messages import Post, Step, steps
from ._schedule import PipelineSchedule
from ._simulate import Bar, Timeline, peak, simulate

__all__ = [
    "Action",
    "Bar",
    "PipelineError",
    "PipelineSchedule",
    "Post",
    "Step",
    "Timeline",
    "bubble",
    "build",
    "check",
    "names",
    "peak",
    "simulate",
    "steps",
]
