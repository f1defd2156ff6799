"""How long the planner takes and how much memory, and what it predicts beside what was published.

Each search runs in a process of its own, whose peak memory is printed. Prints only; a search over
its limit (2 s up to 16,384 GPUs, 10 s above, 1 GB) and a prediction more than 25 % off are marked.

    python tests/bench/plan.py
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time

from coursekit import plan

JOBS = [
    ("llama2-7b", 8, "a100", {}),
    ("course-100b", 64, "a100", {}),
    ("llama3-70b", 1024, "h100", {}),
    ("deepseek-v3", 2048, "h800", {"fp8": True, "overlap": ("dp", "cp", "pp", "ep")}),
    ("llama3-405b", 16_384, "h100", {}),
    ("llama3-405b", 131_072, "h100", {"batch": 16_384}),
    ("deepseek-v3", 131_072, "nvl72", {"batch": 131_072}),
]


def one(index: int) -> None:
    """Run one search and print its row."""
    model, gpus, machine, options = JOBS[index]
    begin = time.perf_counter()
    found = plan.best(model, gpus, machine, **options)
    took = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    tried = len(found.outcomes) + len(found.rejected)
    over = took > (2 if gpus <= 16_384 else 10) or peak > 1e9
    print(
        f"{model:12} {gpus:7} {tried:7} plans {took:6.2f} s {peak / 1e6:5.0f} MB  "
        f"{found.best.plan}, MFU {found.best.mfu:.0%}{'   OVER ITS LIMIT' if over else ''}",
        flush=True,
    )


def main() -> None:
    """Print the searches, then the published runs."""
    for index in range(len(JOBS)):
        subprocess.run([sys.executable, __file__, str(index)], check=True)
    print(f"\npublished runs; constants {plan.fitted()}, fitted on three rows of the first table")
    for name in ("megatron_sc21", "llama3_405b", "deepseek_v3"):
        for run in plan.published(name):
            made = run.predict()
            ratio = run.told(made) / run.tflops
            mark = "   MORE THAN 25 % OFF" if abs(ratio - 1) > 0.25 else ""
            print(
                f"{run.name:42} published {run.tflops:5.0f} TFLOP/s, predicted / published "
                f"{ratio:.2f}{mark}"
            )


if __name__ == "__main__":
    one(int(sys.argv[1])) if len(sys.argv) > 1 else main()
