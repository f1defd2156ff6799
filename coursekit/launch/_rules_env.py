"""What is wrong with variables: NCCL's, PyTorch's and Gloo's.

Sources: NCCL's env.rst (values, and what a shared NCCL_DEBUG_FILE does); debug.cc; PyTorch's
ProcessGroupNCCL.hpp; Gloo's tcp device, which takes interface names as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from typing import Any

from coursekit import _data
from coursekit.cost.nccl import NcclError, left_without, parse_algo, parse_proto

from ._context import Block, Set
from ._facts import everything, found_set, nodes_of_block, per_node, refilled
from ._finding import Finding

__all__ = ["rules"]

_OURS = re.compile(r"(NCCL|TORCH_NCCL|TORCH_FR|GLOO)_[A-Z0-9_]+")
_TRUE = frozenset({"1", "true", "yes", "on"})


@cache
def _names() -> dict[str, Any]:
    table = _data.load("launch_env.yaml")
    words = {k: tuple(table[k].split()) for k in ("documented", "undocumented", "torch", "levels",
                                                 "subsystems")}  # fmt: skip
    nccl = {f"NCCL_{n}" for n in words["documented"] + words["undocumented"]}
    return {**table, **words, "good": {f"NCCL_{n}" for n in words["documented"]},
            "known": nccl | set(words["torch"])}  # fmt: skip


def rules(block: Block) -> Iterator[Finding]:
    """All findings about the block's variables."""
    nodes = nodes_of_block(block)
    for setting in block.sets:
        if _OURS.fullmatch(setting.name):
            yield from _name(setting)
        if "$" not in setting.value:
            yield from _value(setting, nodes)
    yield from _algorithms(block)
    yield from _kept_here(block)


def _name(setting: Set) -> Iterator[Finding]:
    name, table = setting.name, _names()
    if name in table["renamed"]:
        new = table["renamed"][name]
        yield found_set(setting, "env.renamed", refilled(setting, _raw(setting), new), new=new)
    elif name in table["removed"]:
        since, new = table["removed"][name]
        yield found_set(setting, "env.removed", refilled(setting, None), since=since,
                        new=new or "-")  # fmt: skip
    elif name not in table["known"] and not name.startswith("NCCL_FASTRAK"):
        good = sorted(table["good"] | set(table["torch"]))
        near = get_close_matches(name, good, 1, 0.84)
        if near:
            yield found_set(setting, "env.typo", refilled(setting, _raw(setting), near[0]),
                            near=near[0])  # fmt: skip


def _raw(setting: Set) -> str:
    """The value as it was written, quotes and all."""
    written = re.search(rf"{setting.name}=(\"[^\"]*\"|'[^']*'|\S*)", setting.command.text)
    return written[1] if written else setting.value


def _value(setting: Set, nodes: int | None) -> Iterator[Finding]:
    name, value, several = setting.name, setting.value, nodes != 1
    if name == "NCCL_DEBUG_FILE":
        yield from _log(setting, nodes or 1)
    elif name == "NCCL_DEBUG" and value.upper() not in _names()["levels"]:
        near = get_close_matches(value.upper(), ["INFO", "WARN", "VERSION", "TRACE"], 1, 0.5)
        level = near[0] if near else "INFO"
        yield found_set(setting, "env.debug_level", refilled(setting, level), near=level)
    elif name == "NCCL_DEBUG_SUBSYS":
        words = [w for w in value.upper().lstrip("^").split(",") if w]
        odd = [w for w in words if w not in _names()["subsystems"]]
        if odd:
            kept = ",".join(w for w in words if w not in odd) or "INIT,ENV"
            kept = f"^{kept}" if value.startswith("^") else kept
            yield found_set(setting, "env.subsystem", refilled(setting, kept), odd=", ".join(odd))
    elif name == "NCCL_SOCKET_IFNAME":
        yield from _interfaces(setting, several)
    elif name == "GLOO_SOCKET_IFNAME" and re.search(r"[\^=]", value):
        keep = "eth0" if "^" in value else value.replace("=", "")
        yield found_set(setting, "env.gloo_syntax", refilled(setting, keep))
    elif name == "NCCL_IB_DISABLE" and several and value.lower() in _TRUE:
        yield found_set(setting, "env.ib_disabled", refilled(setting, None))
    elif name in ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE") and value.lower() in _TRUE:
        yield found_set(setting, "env.path_disabled", refilled(setting, None))


def _log(setting: Set, nodes: int) -> Iterator[Finding]:
    value = setting.value
    if value.startswith("/dev/std"):
        return
    # A process's number is unique on one node only, and several nodes may share a folder.
    shared = nodes > 1 and "%h" not in value and not value.startswith("/tmp/")
    if "%p" not in value or shared:
        stem = re.sub(r"\.?%[hp]", "", value)
        root, dot, end = stem.rpartition(".")
        new = f"{root}.%h.%p.{end}" if dot and "/" not in end else f"{stem}.%h.%p"
        yield found_set(setting, "env.log_shared", refilled(setting, new))


def _interfaces(setting: Set, several: bool) -> Iterator[Finding]:
    names = setting.value.lstrip("^").lstrip("=").split(",")
    if not setting.value.startswith("^") and all(n.strip("=") == "lo" for n in names) and several:
        yield found_set(setting, "env.interface_lo", refilled(setting, "^lo,docker"))
    elif any("^" in n for n in names):
        bare = [n.lstrip("^") for n in names if setting.value.startswith("^") or "^" not in n]
        value = ("^" if setting.value.startswith("^") else "=") + ",".join(bare)
        yield found_set(setting, "env.interface_caret", refilled(setting, value))


def _algorithms(block: Block) -> Iterator[Finding]:
    for setting in block.sets:
        if setting.name not in ("NCCL_ALGO", "NCCL_PROTO") or "$" in setting.value:
            continue
        parse = parse_algo if setting.name == "NCCL_ALGO" else parse_proto
        try:
            read = parse(setting.value, block.setup.nccl)
        except NcclError as error:
            yield found_set(setting, "env.algo_refused", refilled(setting, None),
                            version=block.setup.nccl, why=str(error))  # fmt: skip
            continue
        if read.ignored:
            yield found_set(setting, "env.algo_ignored", refilled(setting, None),
                            version=block.setup.nccl, words=", ".join(read.ignored))  # fmt: skip
        if setting.name == "NCCL_ALGO":
            yield from _left(setting, block)


def _left(setting: Set, block: Block) -> Iterator[Finding]:
    protos = [s.value for s in block.sets if s.name == "NCCL_PROTO"]
    nodes = nodes_of_block(block) or 1
    each = max((per_node(x, block) or 8 for x in everything(block, "torchrun")), default=8)
    asked = {"version": block.setup.nccl, "nodes": nodes, "ranks_per_node": each}
    try:
        gone = left_without(setting.value, protos[-1] if protos else None, **asked)  # type: ignore[arg-type]
    except NcclError:
        return
    if gone:
        yield found_set(setting, "env.algo_alone", _instead(setting, asked),
                        version=block.setup.nccl, gone=", ".join(gone))  # fmt: skip


def _instead(setting: Set, asked: dict[str, Any]) -> str:
    """A value that keeps the wish for all-reduce and gives the others the ring back."""
    value = setting.value.lower()
    if not re.search(r"[;:]", value):
        others = f"ring,{value.lstrip('^')}" if not value.startswith("^") else "ring"
        wish = f"{others};allreduce:{value}"
        if not left_without(wish, None, **asked):
            return refilled(setting, f'"{wish}"')
    return refilled(setting, None)


def _kept_here(block: Block) -> Iterator[Finding]:
    """A line `NCCL_DEBUG=INFO` without export: the programs below do not get it."""
    for setting in block.sets:
        alone = setting.how == "line" and setting.name not in block.exported
        if alone and block.launches and _OURS.fullmatch(setting.name):
            yield found_set(setting, "env.not_exported", f"export {setting.command.text}")
