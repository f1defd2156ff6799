"""The environment that all builders share: which interface, and a log for each process."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ._errors import LaunchError

__all__ = ["LOG", "environment"]

LOG = "nccl.%h.%p.log"
_INTERFACE = re.compile(r"[A-Za-z0-9_.@-]+")


def environment(
    interface: str, log: str, given: Mapping[str, str] | None, gloo: bool = True
) -> dict[str, str]:
    """NCCL's and Gloo's interface, NCCL's log, then what was asked for.

    One interface is written as `=eth0` for NCCL, else `eth0` would stand for eth01 too; Gloo knows
    exact names only and neither `=` nor `^` (NCCL's env.rst; gloo/transport/tcp).
    """
    made: dict[str, str] = {}
    if interface:
        if not _INTERFACE.fullmatch(interface):
            raise LaunchError(
                f"interface must be one name as `ip -br link` shows it, got {interface!r}; "
                "try interface='eth0'"
            )
        made["NCCL_SOCKET_IFNAME"] = f"={interface}"
        if gloo:
            made["GLOO_SOCKET_IFNAME"] = interface
    if log:
        if "%p" not in log or "%h" not in log:
            raise LaunchError(
                "log must hold %h and %p, which NCCL replaces by host and process, got "
                f"{log!r}; try log={LOG!r}"
            )
        made["NCCL_DEBUG"] = "INFO"
        made["NCCL_DEBUG_FILE"] = log
    return {**made, **(given or {})}
