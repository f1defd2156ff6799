"""One small interface to torch.distributed and mpi4py, and schedules run on it.

Names are mpi4py's: a communicator has `rank` and `size`, and sends with `isend` and `irecv`.
"""

from ._comm import Comm, Request, connect
from ._errors import CommError
from ._execute import execute

__all__ = ["Comm", "CommError", "Request", "connect", "execute"]
