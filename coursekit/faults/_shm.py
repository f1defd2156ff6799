"""On a rank: a ``/dev/shm`` of its own with no room in it."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_NEW_MOUNTS = 0x00020000
_BIND, _RECURSIVE, _PRIVATE = 4096, 16384, 1 << 18
_DETACH = 2
_PLACE = "/dev/shm"
_covered = False


def cover() -> str | None:
    """Mount a full file system over ``/dev/shm``, for this thread; return why it cannot be.

    The ranks' own folders stay as they are: through them a new process group meets.
    """
    global _covered
    if not os.path.isdir(_PLACE):
        return f"this system has no {_PLACE}; leave full_shared_memory out"
    folders = [p for p in Path(_PLACE).glob("coursekit-*") if p.is_dir() and os.access(p, os.W_OK)]
    held: dict[Path, int] = {}
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        _try(libc.unshare(_NEW_MOUNTS))
        _mount(libc, "none", "/", None, _RECURSIVE | _PRIVATE)
        # Opened in the new namespace: a mount of the old one cannot be bound here.
        held = {p: os.open(p, os.O_RDONLY | os.O_DIRECTORY) for p in folders}
        _mount(libc, "full", _PLACE, "tmpfs", 0, f"size=4k,nr_inodes={len(folders) + 8}")
        _covered = True
        for path, descriptor in held.items():
            path.mkdir()
            _mount(libc, f"/proc/self/fd/{descriptor}", str(path), None, _BIND)
        _fill()
    except OSError as error:
        uncover()
        return (
            f"a {_PLACE} of its own could not be made for the rank ({error}); "
            "full_shared_memory needs root, or ranks of cluster(way='user')"
        )
    finally:
        for descriptor in held.values():
            os.close(descriptor)
    return None


def uncover() -> None:
    """Show the common ``/dev/shm`` again."""
    global _covered
    if _covered:
        ctypes.CDLL(None).umount2(_PLACE.encode(), _DETACH)
    _covered = False


def _fill() -> None:
    with open(f"{_PLACE}/full", "wb", buffering=0) as file:
        try:
            while file.write(b"\0" * 4096):
                pass
        except OSError:
            return


def _mount(
    libc: ctypes.CDLL, source: str, target: str, kind: str | None, flags: int, data: str = ""
) -> None:
    text = [None if t is None else t.encode() for t in (source, target, kind)]
    _try(libc.mount(*text, ctypes.c_ulong(flags), data.encode()))


def _try(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
