"""One small interface to torch.distributed and mpi4py; schedules run on it, and recorded from it.

Names are mpi4py's: a communicator has `rank` and `size`, and sends with `isend` and `irecv`.
"""

from ._comm import Comm, Request
from ._connect import connect
from ._errors import CommError
from ._execute import execute
from ._log import Log
from ._merge import Recording, merge
from ._record import record

__all__ = [
    "Comm",
    "CommError",
    "Log",
    "Recording",
    "Request",
    "connect",
    "execute",
    "merge",
    "record",
]
