"""Logs, dumps and topology tables in; ranked verdicts out, each with the lines that prove it.

`diagnose` reads NCCL's lines (2.4 to 2.32), PyTorch's about it (2.0 to 2.14), flight recorders'
dumps, `ncclras`, `torchfrtrace`, torchrun, Gloo, Open MPI, UCX and topology tables, in any mixture
and with whatever a launcher put in front. `coursekit.diagnose.forge` writes such logs with a known
fault. What a verdict means, and which lines give it, is data: data/rules/*.yaml.

A root cause goes before what follows from it: hardware, memory and settings, then ranks that call
different things, then a rank that is missing, then time-outs, then connections that closed.
What a log does not hold is said to be not logged, never to be off.
"""

from coursekit.diagnose._diagnose import diagnose
from coursekit.diagnose._errors import DiagnoseError
from coursekit.diagnose._event import Event, Line
from coursekit.diagnose._report import Report, Verdict
from coursekit.diagnose._rules import Rule, rules

__all__ = ["DiagnoseError", "Event", "Line", "Report", "Rule", "Verdict", "diagnose", "rules"]
