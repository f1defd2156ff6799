"""Finds what is wrong with a command before it runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from . import _rules_env, _rules_mpirun, _rules_srun, _rules_torchrun
from ._context import Block, Setup, block_of
from ._errors import LaunchError
from ._finding import Finding

__all__ = ["check"]

MPIS = ("5", "4", "mpich")
_NOT_THERE = frozenset({"nccl-info", "nccl_info", "ncclinfo", "nccl-version", "nccl-smi"})
_ASK = 'python -c "import torch; print(torch.cuda.nccl.version())"'
# What word processors and web pages make of -- and of quotes.
_TYPESET = {"\u2013": "--", "\u2014": "--", "\u2212": "-", "\u201c": '"', "\u201d": '"',
            "\u2018": "'", "\u2019": "'", "\u00a0": " "}  # fmt: skip


def check(
    text: str,
    *,
    nccl: str = "2.29.7",
    mpi: str = "5",
    gpus: int | None = None,
    root: bool = False,
    files: Mapping[str, str] | None = None,
) -> list[Finding]:
    """What is wrong with a command line or a small shell block; nothing in it is run.

    Understands torchrun, `python -m torch.distributed.run`, mpirun, srun and #SBATCH lines, the
    variables that the block sets, and files that it writes with `cat > hosts.txt <<EOF`.

    Args:
        text: the line or block, with `export` lines, lines that go on, and comments.
        nccl: NCCL's version; `coursekit.cost.nccl.of_torch` tells a torch wheel's.
        mpi: "5" or "4" for Open MPI's version, or "mpich".
        gpus: how many a node has, if that is known.
        root: whether root will run it.
        files: hostfiles by the name that the block uses.

    Returns:
        Findings in the order of the lines; empty if nothing is wrong as far as is known.

    Raises:
        LaunchError: an unknown MPI or version.
    """
    if mpi not in MPIS:
        raise LaunchError(f"mpi must be one of {', '.join(MPIS)}, got {mpi!r}; try mpi='5'")
    if not re.fullmatch(r"2\.\d{1,2}(\.\d{1,2})?", nccl):
        raise LaunchError(f"nccl must be a version such as '2.27' or '2.27.5', got {nccl!r}")
    setup = Setup(nccl, mpi, gpus, root, files or {})
    block = block_of(text, setup)
    found = [*_broken(block), *_commands(block, text), *_rules_env.rules(block),
             *_rules_torchrun.rules(block), *_rules_mpirun.rules(block),
             *_rules_srun.rules(block)]  # fmt: skip
    return _ordered(found)


def _ordered(found: list[Finding]) -> list[Finding]:
    kept: dict[tuple[str, int, str], Finding] = {}
    for one in found:
        kept.setdefault((one.id, one.line, str(sorted(one.values.items()))), one)
    return sorted(kept.values(), key=lambda f: f.line)


def _broken(block: Block) -> Iterator[Finding]:
    for line, written, why in block.script.bad:
        fixed = written.rstrip() if why == "blank" else ""
        yield Finding(f"shell.{why}", line, written.strip(), fixed.strip())


def _commands(block: Block, text: str) -> Iterator[Finding]:
    for command in block.script.commands:
        words = [w.value for w in command.words]
        if words and words[0] in _NOT_THERE:
            yield Finding("shell.nccl_info", command.number, command.text, _ASK, {"tool": words[0]})
        if len(words) > 2 and words[0] == "export" and "=" in words[2:3]:
            fixed = f"export {words[1]}={' '.join(words[3:])}"
            yield Finding("shell.spaces", command.number, command.text, fixed, {"name": words[1]})
    for number, line in enumerate(text.splitlines(), 1):
        shown = line.split(" #")[0]
        odd = sorted(c for c in _TYPESET if c in shown)
        if odd and not shown.lstrip().startswith("#"):
            fixed = shown
            for char in odd:
                fixed = fixed.replace(char, _TYPESET[char])
            fixed = re.sub(r"(?<!\S)--(np|x|n|N|H)\b", r"-\1", fixed)
            yield Finding("shell.typeset", number, line.strip(), fixed.strip(),
                          {"chars": " ".join(odd)})  # fmt: skip
