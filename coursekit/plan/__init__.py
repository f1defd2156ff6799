"""Plans for training on many GPUs: what each must hold, and how long it takes.

Sizes are in bytes (GB = 10**9, GiB = 2**30), arithmetic in FLOPs, time in days.
"""

from coursekit.plan._rules import PlanError
from coursekit.plan._strategies import Strategy, ledger
from coursekit.plan.flops import Gpu, days, exact_flops, gpu, layer_flops, train_flops
from coursekit.plan.memory import Memory, Policy, gpu_memory
from coursekit.plan.models import Model, model, models
from coursekit.plan.volume import (
    Volume,
    dp_volume,
    layerwise_volume,
    local_parameters,
    pipeline_volume,
    tp_volume,
    zero_volume,
)

__all__ = [
    "Gpu",
    "Memory",
    "Model",
    "PlanError",
    "Policy",
    "Strategy",
    "Volume",
    "days",
    "dp_volume",
    "exact_flops",
    "gpu",
    "gpu_memory",
    "layer_flops",
    "layerwise_volume",
    "ledger",
    "local_parameters",
    "model",
    "models",
    "pipeline_volume",
    "tp_volume",
    "train_flops",
    "zero_volume",
]
