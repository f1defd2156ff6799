"""The launchers by name."""

from __future__ import annotations

from typing import Any

from ._errors import RanksUsageError
from ._site import Site

_NAMES = ("local", "mpi", "attach")


def make_launcher(
    name: str, *, host: str | None, port: int, size: int, site: Site | None = None
) -> Any:
    """Return the launcher of that name; RanksUsageError for another name."""
    if name not in _NAMES:
        raise RanksUsageError(
            f"launcher must be one of {', '.join(_NAMES)}, got {name!r}; try launcher='local'"
        )
    if site is not None and name != "local":
        raise RanksUsageError(
            f"a site is for ranks that are forked here, got launcher={name!r}; leave launcher out"
        )
    if name == "attach":
        from ._attach import AttachLauncher

        return AttachLauncher(host=host, port=port, size=size)
    if host is not None or port:
        raise RanksUsageError("host and port belong to launcher='attach'; leave them out here")
    if name == "mpi":
        from ._mpi import MpiLauncher, can_hand_over, find_mpirun
        from ._mpi_plain import PlainMpiLauncher

        kind = MpiLauncher if can_hand_over(find_mpirun()) else PlainMpiLauncher
        return kind(size)
    from ._local import LocalLauncher

    return LocalLauncher(site)
