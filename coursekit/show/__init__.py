"""Figures and widgets. They draw what others computed or measured.

A figure is stored as plotly's own data: JupyterLab shows it alive without running anything. Words
are in the language set by `coursekit.language`.
"""

import os

import plotly.io as pio

from coursekit.show._cost_explorer import explore
from coursekit.show._explorer import memory_explorer
from coursekit.show._pipeline_live import pipeline_explorer, pipelines
from coursekit.show.attention import ring_attention_player
from coursekit.show.collective import before_after, digit_owners
from coursekit.show.costs import cost_curves
from coursekit.show.cube import rank_cube
from coursekit.show.curves import curves
from coursekit.show.experts import load, token_flow
from coursekit.show.gantt import gantt
from coursekit.show.libraries import algorithms_table, libraries
from coursekit.show.links import matrix_table
from coursekit.show.memory import memory_bars
from coursekit.show.parallel import saturation, shards, stages
from coursekit.show.pipeline import bubble, schedule
from coursekit.show.plans import pareto, seconds, volumes
from coursekit.show.player import compare, player
from coursekit.show.rings import ring_search
from coursekit.show.tension import compute_vs_communication
from coursekit.show.topology import topology
from coursekit.show.traffic import matrix
from coursekit.show.winners import winners

__all__ = [
    "algorithms_table",
    "before_after",
    "bubble",
    "compare",
    "compute_vs_communication",
    "cost_curves",
    "curves",
    "digit_owners",
    "explore",
    "gantt",
    "libraries",
    "load",
    "matrix",
    "matrix_table",
    "memory_bars",
    "memory_explorer",
    "pareto",
    "pipeline_explorer",
    "pipelines",
    "player",
    "rank_cube",
    "ring_attention_player",
    "ring_search",
    "saturation",
    "schedule",
    "seconds",
    "shards",
    "stages",
    "token_flow",
    "topology",
    "volumes",
    "winners",
]

if "PLOTLY_RENDERER" not in os.environ:
    pio.renderers.default = "plotly_mimetype"
