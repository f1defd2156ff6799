"""What tensor, pipeline and data parallelism send when they share the ranks, place by place.

Every rank sits in one group of each kind. What a group sends depends on its place in the pipeline
alone: an end has the embedding or the head besides its blocks. Which collectives each mode needs,
and how sizes count, is said in `volume`.
"""

from __future__ import annotations

from dataclasses import dataclass

from coursekit.plan._rules import PlanError, divides, positive
from coursekit.plan.models import Model
from coursekit.plan.volume import Volume


@dataclass(frozen=True)
class _Place:
    """What one place of the pipeline holds, whichever its tensor and data ranks."""

    blocks: int
    first: bool
    last: bool


def hybrid_volume(
    shape: Model,
    batch: int,
    sequence: int,
    *,
    dp: int = 1,
    tp: int = 1,
    pp: int = 1,
    chunks: int = 1,
    micro_batches: int = 1,
    sequence_parallel: bool = False,
    itemsize: int = 4,
    stage: int | None = None,
) -> list[Volume]:
    """Data times tensor times pipeline parallelism: rows for each place of the pipeline.

    Of a place, ``tp`` rows are what one of its `dp` tensor groups sends, ``dp`` rows one of its
    `tp` data groups, and ``pp`` rows one of its ``dp * tp`` ranks. With all places, a ledger of all
    ranks multiplies them so: ``ledger(volumes, tp=dp, dp=tp, pp=dp * tp)``.

    Without sequence parallelism every tensor rank sends its next stage the same activations; with
    it, each sends its own part of the sequence.

    Parameters
    ----------
    batch, sequence : int
        Rows of all replicas together, and the tokens of each.
    chunks, micro_batches : int
        Stages a rank, and micro-batches that each pipeline does in a step.
    sequence_parallel : bool
        Whether all-gather and reduce-scatter stand in the places of the all-reduces.
    stage : int, optional
        Only this place of the pipeline, from 0 to ``pp - 1``.

    Raises
    ------
    PlanError
        A number is not positive, a degree does not divide what it cuts, or there is no such place.

    Examples
    --------
    >>> rows = hybrid_volume(model("llama2-7b"), 16, 4096, dp=2, tp=8, pp=4, stage=1)
    >>> [row.group for row in rows]
    ['tp', 'tp', 'pp', 'pp', 'dp']
    """
    sizes = {"batch": batch, "sequence": sequence, "dp": dp, "tp": tp, "pp": pp, "chunks": chunks,
             "micro_batches": micro_batches, "itemsize": itemsize}  # fmt: skip
    for name, value in sizes.items():
        positive(name, value)
    divides("tp", tp, "heads", shape.heads)
    if batch % (dp * micro_batches):
        raise PlanError(
            f"dp times micro_batches must divide the batch, got {batch} rows for {dp} x "
            f"{micro_batches}; try batch={-(-batch // (dp * micro_batches)) * dp * micro_batches}"
        )
    if sequence_parallel:
        divides("tp", tp, "sequence", sequence)
    places = _places(shape.dense, pp, chunks)
    if stage is not None and stage not in range(pp):
        raise PlanError(f"stage must be from 0 to {pp - 1}, got {stage}; leave it out for all")
    wide = batch // dp * sequence * shape.hidden * itemsize
    rows = []
    for number, place in enumerate(places):
        if stage in (None, number):
            rows += _tensor(shape, place, tp, wide, micro_batches, sequence_parallel, itemsize)
            rows += _pipeline(shape, place, number, (pp, chunks, tp), wide, micro_batches,
                              sequence_parallel, itemsize)  # fmt: skip
            size = _held(shape, place, tp) * itemsize
            rows.append(Volume("dp", "step", "all_reduce", size, 1, dp))
    return [row for row in rows if row.sent]


def _places(shape: Model, pp: int, chunks: int) -> list[_Place]:
    stages = pp * chunks
    if shape.layers < stages:
        raise PlanError(
            f"every stage needs a block, got {shape.layers} blocks for {stages} stages; take a "
            f"model with at least {stages} layers"
        )
    # Where the number does not divide, the later stages have one more.
    cuts = [s * shape.layers // stages for s in range(stages + 1)]
    return [
        _Place(
            sum(cuts[s + 1] - cuts[s] for s in range(place, stages, pp)),
            place == 0,
            place == pp - 1,
        )
        for place in range(pp)
    ]


def _tensor(
    shape: Model, place: _Place, tp: int, wide: int, m: int, split: bool, itemsize: int
) -> list[Volume]:
    """A block has a pair each for attention and feed-forward part; the embedding has the second
    half of a pair, the head the first.
    """
    enters, leaves = 2 * place.blocks + place.last, 2 * place.blocks + place.first

    def row(phase: str, op: str, calls: int) -> Volume:
        return Volume("tp", phase, op, calls * wide, calls * m, tp)

    if split:
        rows = [
            row("forward", "all_gather", enters),
            row("forward", "reduce_scatter", leaves),
            row("backward", "all_gather", leaves),
            row("backward", "reduce_scatter", enters),
            Volume("tp", "step", "all_reduce", _uncut(shape, place) * itemsize, 1, tp),
        ]
    else:
        rows = [row("forward", "all_reduce", leaves), row("backward", "all_reduce", enters)]
    if place.last:
        rows.append(Volume("tp", "forward", "all_reduce", 3 * wide // shape.hidden, 3 * m, tp))
    return rows


def _pipeline(
    shape: Model, place: _Place, number: int, degrees: tuple[int, int, int], wide: int, m: int,
    split: bool, itemsize: int,
) -> list[Volume]:  # fmt: skip
    """Every stage but the last sends activations on, every one but the first gradients back."""
    pp, chunks, tp = degrees
    if pp == 1:
        return []
    size = wide // tp if split else wide
    on, back = chunks - place.last, chunks - place.first
    rows = [
        Volume("pp", phase, "send", cuts * size, cuts * m, pp)
        for phase, cuts in (("forward", on), ("backward", back))
    ]
    if shape.tied and (place.first or place.last):
        end = -(-shape.vocab // tp) * shape.hidden * itemsize
        rows.append(Volume("pp", "step", "send", end, 1, pp))
    return rows


def _held(shape: Model, place: _Place, tp: int) -> int:
    """Parameters of one tensor rank; a tied embedding lies at both ends."""
    ends = place.first + place.last - (shape.tied and place.first and place.last)
    vocab = ends * -(-shape.vocab // tp) * shape.hidden
    columns = shape.hidden + 2 * shape.kv_width + shape.ffn if shape.bias else 0
    return vocab + place.blocks * (shape.layer_matrices + columns) // tp + _uncut(shape, place)


def _uncut(shape: Model, place: _Place) -> int:
    """Parameters of a place that tensor parallelism leaves whole."""
    norm = shape.hidden * (2 if shape.bias else 1)
    rows = 2 * shape.hidden if shape.bias else 0
    block = 2 * norm + rows
    return place.blocks * block + place.first * shape.positions * shape.hidden + place.last * norm
