"""Plans for training on many GPUs: what each must hold, and how long it takes.

Sizes are in bytes (GB = 10**9, GiB = 2**30), arithmetic in FLOPs, time in days.
"""

from coursekit.plan._footprint import footprint
from coursekit.plan._rules import PlanError
from coursekit.plan._seconds import Efficiency, fitted
from coursekit.plan._strategies import Strategy, ledger
from coursekit.plan._volume_tokens import context_volume, expert_volume
from coursekit.plan.flops import Gpu, days, exact_flops, gpu, layer_flops, train_flops
from coursekit.plan.hybrid import hybrid_volume
from coursekit.plan.machines import Machine, machine, machines
from coursekit.plan.memory import Memory, Policy, gpu_memory
from coursekit.plan.models import Model, model, models
from coursekit.plan.plans import Job, Plan, broken_rule, job
from coursekit.plan.published import Run, fit, published
from coursekit.plan.search import Search, best, enumerate, try_all
from coursekit.plan.sent import Sent, sent
from coursekit.plan.step import Outcome, Step, evaluate
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
    "Efficiency",
    "Gpu",
    "Job",
    "Machine",
    "Memory",
    "Model",
    "Outcome",
    "Plan",
    "PlanError",
    "Policy",
    "Run",
    "Search",
    "Sent",
    "Step",
    "Strategy",
    "Volume",
    "best",
    "broken_rule",
    "context_volume",
    "days",
    "dp_volume",
    "enumerate",
    "evaluate",
    "exact_flops",
    "expert_volume",
    "fit",
    "fitted",
    "footprint",
    "gpu",
    "gpu_memory",
    "hybrid_volume",
    "job",
    "layer_flops",
    "layerwise_volume",
    "ledger",
    "local_parameters",
    "machine",
    "machines",
    "model",
    "models",
    "pipeline_volume",
    "published",
    "sent",
    "tp_volume",
    "train_flops",
    "try_all",
    "zero_volume",
]
