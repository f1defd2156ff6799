"""``coursekit plan``: the fastest plan for a model on so many GPUs, and why."""

from __future__ import annotations

import json as json_format
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from coursekit.plan.search import Search
    from coursekit.plan.step import Outcome

GB = 1e9
# In the order of how often people ask for them.
ASKED = ("tp", "cp", "pp", "ep", "zero")


class PlanCliError(Exception):
    """A user's mistake: one line on the terminal."""


def plan(
    model: Annotated[str, typer.Option(help="A card, such as llama3-405b.")],
    gpus: Annotated[int, typer.Option(help="How many GPUs, 8 to 131072.")],
    machine: Annotated[str, typer.Option(help="A card, such as h100.")] = "h100",
    sequence: Annotated[int, typer.Option(help="Tokens in a sequence; 0: the card's.")] = 0,
    batch: Annotated[int, typer.Option(help="Sequences in a step; 0: the card's.")] = 0,
    fp8: Annotated[bool, typer.Option("--fp8", help="Matrix products in 8 bits.")] = False,
    top: Annotated[int, typer.Option(help="How many plans to print.")] = 8,
    json: Annotated[Path, typer.Option(help="Write all of it here.")] = Path("plan.json"),
) -> None:
    """Choose TP x CP x PP x EP x DP x ZeRO: try all plans, print the fastest and why.

    Writes JSON besides. Times are predicted; memory is that of the fullest GPU. Exit code 1 when no
    plan fits.
    """
    from coursekit.plan import PlanError, best

    try:
        search = best(model, gpus, machine, sequence=sequence, batch=batch, fp8=fp8)
    except PlanError as error:
        raise PlanCliError(str(error)) from None
    try:
        json.write_text(json_format.dumps(as_json(search), indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise PlanCliError(
            f"--json must be a file that can be written, got {json}: {error}"
        ) from None
    print(table(search, top))
    print(f"\nAll of it is in {json}.")
    raise typer.Exit(0 if search.outcomes else 1)


def table(search: Search, top: int = 8) -> str:
    """The best plans, the winner's bytes, and each degree's other values."""
    job = search.job
    lines = [
        f"{job.model.title} on {search.gpus} x {job.machine.gpu.title} ({job.machine.title}), "
        f"{job.batch} sequences of {job.sequence} tokens",
        f"{len(search.outcomes)} plans fit, {len(search.rejected)} do not",
    ]
    if not search.outcomes:
        return "\n".join([*lines, *_rejected(search)])
    best = search.best
    others = [o for o in search.outcomes if o is not best]
    lines += ["", _HEAD, *(_row(o) for o in [best, *others[: max(0, top - 1)]])]
    lines += ["", f"The first, {best.plan}:"]
    seconds = {k: v for k, v in best.seconds.parts.items() if v > 0.001 * best.seconds.total}
    told = sorted(seconds.items(), key=lambda p: -p[1])
    lines += ["  seconds  " + ", ".join(f"{name} {value:.3g}" for name, value in told)]
    lines += [f"  memory   {best.memory}, of {job.machine.room / GB:.0f} that are free"]
    lines += [f"  sends    {_size(row.bytes)} a GPU for {row.group} over the {row.wire}"
              for row in best.sent]  # fmt: skip
    lines += ["", "Other values of one degree, the rest chosen anew:"]
    lines += [f"  {name:5} {_values(search, name)}" for name in ASKED if name != "ep" or
              job.model.experts]  # fmt: skip
    return "\n".join([*lines, "", *_rejected(search)])


_HEAD = f"{'step s':>9} {'TFLOP/s':>8} {'MFU':>6} {'GB':>5}  plan"


def _row(outcome: Outcome) -> str:
    return (
        f"{outcome.seconds.total:9.3f} {outcome.tflops:8.0f} {outcome.mfu:6.1%} "
        f"{outcome.memory.gb:5.0f}  {outcome.plan}"
    )


def _values(search: Search, name: str) -> str:
    best = search.best.seconds.total
    told = []
    for value, made in search.by(name).items():
        if isinstance(made, str):
            told.append(f"{value}: {made}")
        else:
            told.append(f"{value}: {made.seconds.total / best - 1:+.1%}")
    return "; ".join(told)


def _rejected(search: Search) -> list[str]:
    return ["Why the others do not run, by the first reason of each:"] + [
        f"  {count:6d}  {reason}" for reason, count in search.reasons.most_common()
    ]


def _size(count: float) -> str:
    return f"{count / GB:.3g} GB"


def as_json(search: Search) -> dict[str, Any]:
    """All plans that fit, and the reasons of those that do not."""
    job = search.job
    return {
        "model": job.model.title,
        "machine": job.machine.title,
        "gpus": search.gpus,
        "sequence": job.sequence,
        "batch": job.batch,
        "fp8": job.fp8,
        "best": _outcome(search.best) if search.outcomes else None,
        "plans": [_outcome(o) for o in search.outcomes],
        "rejected": dict(search.reasons.most_common()),
    }


def _outcome(outcome: Outcome) -> dict[str, Any]:
    return {
        "plan": asdict(outcome.plan),
        "seconds": outcome.seconds.parts,
        "step_seconds": outcome.seconds.total,
        "memory_bytes": asdict(outcome.memory),
        "tflops_per_gpu": outcome.tflops,
        "mfu": outcome.mfu,
        "sent_bytes": [asdict(row) for row in outcome.sent],
    }
