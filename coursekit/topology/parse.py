"""Reads the tables of `nvidia-smi topo` and `rocm-smi --showtopo`, also as people paste them."""

from __future__ import annotations

import re

from coursekit.topology import _nvidia, _rocm
from coursekit.topology._errors import TopologyError
from coursekit.topology.table import Note, Table

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\].*?(?:\x07|\x1b\\)")
_LIMIT = 1_000_000


def parse(text: str) -> Table:
    r"""A table from what a terminal printed.

    Reads ``nvidia-smi topo -m``, ``-mp`` and ``-p2p``, old and new, with tabs or spaces, with
    colours, with columns or cells glued together, or cut; and ``rocm-smi --showtopo``. A row that
    does not fit its columns is left out, and a pair whose two rows contradict each other too: notes
    say so.

    Raises
    ------
    TopologyError
        There is no table, or more than a million characters.

    Examples
    --------
    >>> parse(" GPU0 GPU1\nGPU0 X NV4\nGPU1 NV4 X").pairs
    {('GPU0', 'GPU1'): 'NV4'}
    """
    if len(text) > _LIMIT:
        raise TopologyError(
            f"a topology table has at most {_LIMIT} characters, got {len(text)}; "
            "give only what nvidia-smi topo -m printed"
        )
    plain = _ANSI.sub("", text)
    notes = [Note("ansi", "colour codes were taken out")] if plain != text else []
    lines = plain.expandtabs(8).splitlines()
    read = _rocm.read if _rocm.is_one(lines) else _nvidia.read
    table = read(lines, notes)
    if table is None:
        raise TopologyError(
            "a topology table must have rows such as 'GPU0  X  NV12', got none; give the output of "
            "nvidia-smi topo -m, or of rocm-smi --showtopo"
        )
    return table
