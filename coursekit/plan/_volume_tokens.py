"""What the modes send that move tokens, not weights: experts, and long sequences.

Sizes are as in `volume`. Which calls are made: GShard, arXiv:2006.16668, section 3 (two all-to-alls
a layer of experts and direction); ring attention, arXiv:2310.01889, algorithm 1; Ulysses,
arXiv:2309.14509, section 3.
"""

from __future__ import annotations

from collections.abc import Sequence

from coursekit.plan._rules import PlanError, divides, positive
from coursekit.plan.models import Model
from coursekit.plan.volume import Volume

_COUNT = 8  # Bytes of an int64.
Counts = Sequence[Sequence[Sequence[int]]]


def expert_volume(
    shape: Model, ranks: int, batch: int, sequence: int, *, counts: Counts | None = None,
    itemsize: int = 4,
) -> list[Volume]:  # fmt: skip
    """Expert parallelism: in each layer of experts two all-to-alls forward and two backward, of
    batch x sequence x top_k x hidden over all ranks; then one all-reduce of the other gradients.

    Beside them go numbers: how many tokens each expert has, to its rank and for the balance. Where
    parts are unequal, a call's size is the larger of what a rank gives and takes, as the ledger has
    it, and 1/K of that stays; the wire carries `counts` without what a rank sends to itself.

    Parameters
    ----------
    batch, sequence : int
        Rows of all ranks together, and the tokens of each.
    counts : sequence, optional
        Of each layer of experts, tokens that rank i sends to rank j, by i, then j: shape
        (layers, ranks, ranks). Without it, the router sends as many to every rank.

    Raises
    ------
    PlanError
        A number is not positive, the shape has no experts, `ranks` does not divide them, or, for
        an even router, the tokens that are sent; or `counts` has another shape.
    """
    _positive(ranks=ranks, batch=batch, sequence=sequence, itemsize=itemsize)
    layers = shape.moe_layers
    if not layers:
        raise PlanError(
            f"expert_volume needs a shape with experts, got {shape.title}; give it experts=8 and "
            "top_k=2"
        )
    divides("ranks", ranks, "experts", shape.experts)
    wide = shape.hidden * itemsize
    held = _even(shape, ranks, batch * sequence) if counts is None else _held(counts, layers, ranks)
    told = layers * shape.experts * _COUNT
    dense = (shape.parameters - shape.expert_parameters) * itemsize
    tokens = [
        _all_to_all("ep", phase, [2 * wide * rows for rows in held], 2 * layers)
        for phase in ("forward", "backward")
    ]
    return [
        Volume("ep", "forward", "all_reduce", told, layers, ranks),
        Volume("ep", "forward", "all_to_all", told, layers, ranks),
        *tokens,
        Volume("ep", "step", "all_reduce", dense, 1, ranks),
    ]


def context_volume(
    shape: Model, ranks: int, batch: int, sequence: int, *, kind: str = "ring", itemsize: int = 4
) -> list[Volume]:
    """Context parallelism: what attention sends in each block, and one all-reduce of the gradients.

    A ring sends keys and values ``ranks - 1`` times forward and as often backward, and their
    gradients ``ranks`` times, home; zigzag or not. Ulysses has four all-to-alls of batch x sequence
    x hidden over all ranks in each direction.

    Parameters
    ----------
    kind : {"ring", "ulysses"}
        How attention reaches across the ranks.

    Raises
    ------
    PlanError
        A number is not positive, a rank would be without a token, the shape has another attention
        than the usual one, or, for Ulysses, `ranks` does not divide the heads or there are fewer
        keys than queries.
    """
    _positive(ranks=ranks, batch=batch, sequence=sequence, itemsize=itemsize)
    if kind not in ("ring", "ulysses"):
        raise PlanError(f"kind must be 'ring' or 'ulysses', got {kind!r}; try 'ring'")
    if sequence < ranks:
        raise PlanError(
            f"every rank needs a token, got a sequence of {sequence} for {ranks} ranks; try "
            f"sequence={ranks}"
        )
    if shape.attention or shape.heads_width:
        raise PlanError(
            f"this is counted for the usual attention, got {shape.title}; take another card"
        )
    rows = _ring if kind == "ring" else _ulysses
    rest = [Volume("cp", "step", "all_reduce", shape.parameters * itemsize, 1, ranks)]
    if shape.moe_layers:
        told = shape.moe_layers * shape.experts * _COUNT
        rest.append(Volume("cp", "forward", "all_reduce", told, shape.moe_layers, ranks))
    return [*rows(shape, ranks, batch, sequence, itemsize), *rest]


def _ring(shape: Model, ranks: int, batch: int, sequence: int, itemsize: int) -> list[Volume]:
    """Hops: of all ranks together each moves the whole keys and values, or their gradients."""
    hop = 2 * batch * sequence * shape.kv_width * itemsize
    hops = {"forward": ranks - 1, "backward": 2 * ranks - 1 if ranks > 1 else 0}
    return [
        Volume("cp", phase, "send", shape.layers * n * hop, shape.layers * n * ranks, ranks)
        for phase, n in hops.items()
    ]


def _ulysses(shape: Model, ranks: int, batch: int, sequence: int, itemsize: int) -> list[Volume]:
    divides("ranks", ranks, "heads", shape.heads)
    if shape.kv_heads != shape.heads:
        raise PlanError(
            "Ulysses is counted for as many keys as queries, got "
            f"{shape.kv_heads} kv_heads for {shape.heads} heads; take kind='ring'"
        )
    wide = batch * shape.hidden * itemsize
    least, more = divmod(sequence, ranks)
    # All heads of a rank's positions, and all positions of its heads.
    held = [max(wide * (least + (rank < more)), wide // ranks * sequence) for rank in range(ranks)]
    calls = 4 * shape.layers
    return [
        _all_to_all("cp", phase, [calls * size for size in held], calls)
        for phase in ("forward", "backward")
    ]


def _all_to_all(group: str, phase: str, sizes: list[int], calls: int) -> Volume:
    """Calls in which rank r has `sizes[r]` bytes, taken together."""
    if len(set(sizes)) == 1:
        return Volume(group, phase, "all_to_all", sizes[0], calls, len(sizes))
    return Volume(group, phase, "all_to_all_v", sum(sizes), calls, len(sizes))


def _even(shape: Model, ranks: int, tokens: int) -> list[int]:
    """Rows that a rank gives and takes in one all-to-all of each layer, all layers together."""
    rows = tokens * shape.top_k
    if rows % ranks**2:
        raise PlanError(
            f"an even router sends as many tokens to each of {ranks} ranks, got {rows} choices for "
            f"{ranks} x {ranks} ways; try a batch that {ranks**2} divides, or give counts"
        )
    return [shape.moe_layers * rows // ranks] * ranks


def _held(counts: Counts, layers: int, ranks: int) -> list[int]:
    """The larger of what a rank gives and what it takes, all layers together."""
    square = all(len(layer) == ranks == len(row) for layer in counts for row in layer)
    if len(counts) != layers or not square:
        raise PlanError(
            f"counts must be tokens by layer, sender, receiver: {layers} x {ranks} x {ranks}, got "
            f"{len(counts)} layers of another shape; take them from ExpertParallel.received"
        )
    return [
        sum(max(sum(layer[r]), sum(row[r] for row in layer)) for layer in counts)
        for r in range(ranks)
    ]


def _positive(**sizes: int) -> None:
    for name, value in sizes.items():
        positive(name, value)
