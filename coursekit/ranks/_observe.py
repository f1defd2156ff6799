"""On a rank: what its main thread is doing, read from a side thread."""

from __future__ import annotations

import linecache
import re
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from . import _links
from ._stand import COLLECTIVE, IDLE, P2P, PYTHON, Stand
from ._tracebacks import Frame

_OWN = {str(Path(__file__).parent), str(Path(__file__).parents[1] / "faults")}
_LIBRARIES = tuple(
    {sysconfig.get_path(k) for k in ("stdlib", "platstdlib", "purelib", "platlib")} | _OWN
)
# Functions of a hook below torch's names: the call has not begun, or another took its place.
_PUT_OFF, _INSTEAD = "before_the_call", "instead_of_the_call"
_C10D = ("distributed_c10d.py", "functional_collectives.py")
_POINT_TO_POINT = {
    "send": "dst",
    "recv": "src",
    "isend": "dst",
    "irecv": "src",
}
_NOT_AN_OP = {"wrapper", "_wait_tensor", "wait"}
_MPI_CALL = re.compile(r"\b(?:comm|COMM_WORLD)\.(\w+)\s*\(")
_MPI_P2P = {"send", "Send", "recv", "Recv", "sendrecv", "Sendrecv", "ssend", "Ssend", "probe"}


def stand(rank: int, thread: int, busy: bool, mpi_size: int = 0) -> Stand:
    """Describe the main thread of this rank now."""
    if not busy:
        return Stand(rank, IDLE)
    top = sys._current_frames().get(thread)
    return _stand_in(rank, [(f, f.f_lineno) for f in _stack(top)], mpi_size)


def stand_of(rank: int, error: BaseException, mpi_size: int = 0) -> Stand:
    """Describe where a rank stood when an exception was raised."""
    stack, trace = [], error.__traceback__
    while trace is not None:
        stack.append((trace.tb_frame, trace.tb_lineno))
        trace = trace.tb_next
    return _stand_in(rank, stack, mpi_size)


def _stand_in(rank: int, stack: list[tuple[FrameType, int]], mpi_size: int) -> Stand:
    own = tuple(
        Frame(f.f_code.co_filename, line, f.f_code.co_name, _source(f, line))
        for f, line in stack
        if not f.f_code.co_filename.startswith((*_LIBRARIES, "<frozen"))
    )
    for f, _ in reversed(stack):
        if f.f_code.co_name == _PUT_OFF:
            return Stand(rank, PYTHON, frames=own)
        if f.f_code.co_name == _INSTEAD:
            return _in_other_call(rank, f, own)
    for f, _ in stack:
        if f.f_code.co_filename.endswith(_C10D) and f.f_code.co_name not in _NOT_AN_OP:
            return _in_torch(rank, f, own)
    return _in_pending_work(rank, own) or _in_mpi(rank, own, mpi_size)


def _stack(top: FrameType | None) -> list[FrameType]:
    frames = []
    while top is not None:
        frames.append(top)
        top = top.f_back
    return frames[::-1]


def _source(frame: FrameType, line: int) -> str:
    return linecache.getline(frame.f_code.co_filename, line).strip()


def _in_torch(rank: int, frame: FrameType, own: tuple[Frame, ...]) -> Stand:
    name, values = frame.f_code.co_name, frame.f_locals
    group = values.get("group")
    if name in _POINT_TO_POINT:
        peer = values.get(_POINT_TO_POINT[name])
        what = _describe(values.get("tensor"))
        return Stand(rank, P2P, op=name, what=what, peer=peer, frames=own)
    members, seq = _group_facts(group)
    return Stand(
        rank, COLLECTIVE, op=name, seq=seq, what=_buffer(values), members=members, frames=own
    )


def _in_other_call(rank: int, frame: FrameType, own: tuple[Frame, ...]) -> Stand:
    values = frame.f_locals
    op, what, peer = values["op"], _describe(values["tensor"]), values["peer"]
    if peer is not None:
        cut = (peer,) if values["stuck"]() else ()
        return Stand(rank, P2P, op=op, what=what, peer=peer, frames=own, cut=cut)
    members, seq = _group_facts(values["group"])
    return Stand(rank, COLLECTIVE, op=op, seq=seq, what=what, members=members, frames=own)


def _buffer(values: dict[str, Any]) -> str:
    for name in ("tensor", "input_tensor", "input", "tensor_list", "obj", "object_list"):
        found = _describe(values.get(name))
        if found:
            return found
    return ""


def _describe(value: Any) -> str:
    if isinstance(value, list | tuple) and value:
        value = value[0]
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is None or dtype is None:
        return ""
    return f"{str(dtype).removeprefix('torch.')}{list(shape)}"


def _group_facts(group: Any) -> tuple[tuple[int, ...], int | None]:
    import torch.distributed as dist

    try:
        actual = group if group is not None else dist.group.WORLD
        members = tuple(dist.get_process_group_ranks(actual))
    except (RuntimeError, ValueError, KeyError, AttributeError):
        return (), None
    return members, sequence_number(actual)


def sequence_number(group: Any) -> int | None:
    """How many collectives this rank has issued on a group; None where not counted."""
    try:
        return int(group._get_sequence_number_for_group())
    except (RuntimeError, AttributeError, ValueError):
        return None


def _in_pending_work(rank: int, own: tuple[Frame, ...]) -> Stand | None:
    """Recognise ``work.wait()``: C++ code, so only the learner's line shows it."""
    if not own or ".wait(" not in own[-1].source:
        return None
    members, seq = _group_facts(None)
    if seq is None:
        return None
    return Stand(rank, COLLECTIVE, op="wait()", seq=seq, members=members, frames=own)


def _in_mpi(rank: int, own: tuple[Frame, ...], mpi_size: int) -> Stand:
    """mpi4py's functions have no Python frame: the learner's source line names them."""
    match = _MPI_CALL.search(own[-1].source) if own and mpi_size else None
    if match is None or match[1] in ("Get_rank", "Get_size"):
        return Stand(rank, PYTHON, frames=own)
    state = P2P if match[1] in _MPI_P2P else COLLECTIVE
    return Stand(rank, state, op=f"comm.{match[1]}", members=tuple(range(mpi_size)), frames=own)


def watch_answer(
    rank: int, thread: int, busy: Callable[[], bool], mpi_size: int, addresses: dict[str, int]
) -> Stand:
    """`stand`, but never an exception: the answer to a hang must always come.

    What its TCP connections say of the way to the other ranks stands with it.
    """
    try:
        found = stand(rank, thread, busy(), mpi_size)
        return found if found.state == IDLE else _links.beside(found, addresses)
    except Exception as error:
        return Stand(rank, PYTHON, note=f"its stack could not be read: {error}")
