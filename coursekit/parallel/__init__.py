"""Parallel modes, written to be read: data, ZeRO, layer-wise, tensor, pipeline, experts, context.

Each mode is one module, and stands beside the same model on one process in the tests. They need
ranks: call them inside `Ranks.run`, a ``%%ranks`` cell, or a script under torchrun.
"""

from ._context_gpt import ContextParallel
from ._errors import ParallelError
from ._group import group_of, mesh
from ._rows import share, weigh
from ._seam import Seam
from .context import pairs, places, ring_attention, ulysses
from .data import Bucketed, DataParallel, Flat, Naive
from .expert import ExpertParallel, Experts, Routed, Router
from .gpt import GPT, small
from .layerwise import LayerWise
from .pipeline import Pipeline
from .tensor import ColumnLinear, RowLinear, TensorParallel
from .text import batch, characters, decode, encode, text
from .zero import Zero

__all__ = [  # noqa: RUF022  # plain order, as everywhere
    "Bucketed",
    "ColumnLinear",
    "ContextParallel",
    "DataParallel",
    "ExpertParallel",
    "Experts",
    "Flat",
    "GPT",
    "LayerWise",
    "Naive",
    "ParallelError",
    "Pipeline",
    "Routed",
    "Router",
    "RowLinear",
    "Seam",
    "TensorParallel",
    "Zero",
    "batch",
    "characters",
    "decode",
    "encode",
    "group_of",
    "mesh",
    "pairs",
    "places",
    "ring_attention",
    "share",
    "small",
    "text",
    "ulysses",
    "weigh",
]
