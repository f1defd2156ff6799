"""What each parallel mode sends in one training step, from the model's shape alone.

Sizes are those of nccl-tests: of an all-reduce the buffer, of all-gather and reduce-scatter the
whole, of an all-to-all what one rank has. The group's ranks together then send 2(K-1) sizes for an
all-reduce and K-1 for the others
(https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md). Which collectives a mode
needs: ZeRO, arXiv:1910.02054, section 7; Megatron-LM, arXiv:1909.08053, section 3; sequence
parallelism, arXiv:2205.05198, section 4.2. Modes that move tokens are in `_volume_tokens`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from coursekit.plan._rules import PlanError, divides, positive
from coursekit.plan.memory import _stage
from coursekit.plan.models import Model

# All ranks of a group together send this many sizes less one, times the number before it.
_TIMES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "broadcast": 1, "reduce": 1,
          "all_to_all": 1}  # fmt: skip


@dataclass(frozen=True)
class Volume:
    """Calls of one kind in one phase of a step.

    Parameters
    ----------
    group : str
        The mode: ``dp``, ``tp``, ``pp``, ``ep``, ``cp``.
    phase : {"forward", "backward", "step"}
        When they are made.
    op : str
        The collective, ``send``, or ``all_to_all_v``: an all-to-all of unequal parts.
    bytes : int
        Their sizes together: of each call the whole buffer. For ``send``, what all ranks send; for
        ``all_to_all_v``, what all ranks have in the larger of what they give and what they take.
    calls : int
        Calls a rank; of ``send``, by all ranks together.
    ranks : int
        Ranks of the group.
    """

    group: str
    phase: str
    op: str
    bytes: int
    calls: int
    ranks: int

    @property
    def sent(self) -> int:
        """Bytes that all ranks of one group together send."""
        return sent(self.op, self.bytes, self.ranks)

    @property
    def sent_per_rank(self) -> float:
        """The mean over the group's ranks, in bytes."""
        return self.sent / self.ranks


def sent(op: str, size: int, ranks: int) -> int:
    """Bytes that the ranks of a group together send for calls of `size` bytes together.

    Raises
    ------
    PlanError
        There is no such operation.
    """
    if op == "send":
        return size
    if op in ("recv", "barrier"):
        return 0
    if op == "all_to_all_v":
        # A rank keeps one part of K: so the ledger counts calls, which do not tell their parts.
        return round(Fraction((ranks - 1) * size, ranks))
    if op not in _TIMES:
        told = ", ".join([*_TIMES, "all_to_all_v"])
        raise PlanError(f"op must be one of {told} or send, got {op!r}")
    return _TIMES[op] * (ranks - 1) * size


def dp_volume(
    shape: Model,
    ranks: int,
    *,
    calls: int = 1,
    itemsize: int = 4,
    tp: int = 1,
    phase: str = "backward",
) -> list[Volume]:
    """Data parallelism: one all-reduce of all gradients, in `calls` pieces.

    Parameters
    ----------
    phase : {"backward", "step"}
        ``backward`` where buckets leave early, ``step`` where all is sent after it.
    itemsize : int
        Bytes of a gradient on its way: 2 when compressed to bf16.
    tp : int
        Tensor-parallel ranks that share the model.

    Raises
    ------
    PlanError
        A number is not positive, or `tp` does not divide the heads.
    """
    for name, value in (("ranks", ranks), ("calls", calls), ("itemsize", itemsize)):
        positive(name, value)
    size = local_parameters(shape, tp) * itemsize
    return [Volume("dp", phase, "all_reduce", size, calls, ranks)]


def zero_volume(
    shape: Model, ranks: int, stage: int, *, micro_batches: int = 1, itemsize: int = 4
) -> list[Volume]:
    """ZeRO: reduce-scatter and all-gather; in stage 3 the weights twice, for forward and backward.

    Units are the blocks and the rest, each padded to a multiple of `ranks`. Stages 2 and 3 send
    gradients after every micro-batch, stage 1 once.

    Raises
    ------
    PlanError
        A number is not positive, or the stage is not 1, 2 or 3.
    """
    if _stage(stage) == 0:
        raise PlanError("stage must be 1, 2 or 3, got 0; that is dp_volume")
    positive("ranks", ranks)
    positive("micro_batches", micro_batches)
    units, each = _units(shape), micro_batches
    size = sum(-(-unit // ranks) * ranks for unit in units) * itemsize

    def row(phase: str, op: str, times: int) -> Volume:
        return Volume("dp", phase, op, size * times, len(units) * times, ranks)

    if stage == 1:
        return [row("step", "reduce_scatter", 1), row("step", "all_gather", 1)]
    reduced = row("backward", "reduce_scatter", each)
    if stage == 2:
        return [reduced, row("step", "all_gather", 1)]
    return [row("forward", "all_gather", each), row("backward", "all_gather", each), reduced]


def tp_volume(
    shape: Model,
    ranks: int,
    batch: int,
    sequence: int,
    *,
    sequence_parallel: bool = False,
    itemsize: int = 4,
) -> list[Volume]:
    """Tensor parallelism: 2 + 2 all-reduces a block of batch x sequence x hidden, and the ends'.

    The ends are the embedding (forward), the scores (backward), and the cross-entropy's three
    numbers a token. With `sequence_parallel` each all-reduce is an all-gather and a reduce-scatter,
    and the gradients of what only saw a part of the sequence are summed once a step.

    Raises
    ------
    PlanError
        A number is not positive, `ranks` does not divide the heads, or, with
        `sequence_parallel`, the sequence.
    """
    for name, value in (("ranks", ranks), ("batch", batch), ("sequence", sequence)):
        positive(name, value)
    divides("tp", ranks, "heads", shape.heads)
    tokens = batch * sequence
    pairs = 2 * shape.layers + 1
    size = pairs * tokens * shape.hidden * itemsize
    small = Volume("tp", "forward", "all_reduce", 3 * tokens * itemsize, 3, ranks)
    if not sequence_parallel:
        ways = [Volume("tp", p, "all_reduce", size, pairs, ranks) for p in ("forward", "backward")]
        return [ways[0], small, ways[1]]
    divides("tp", ranks, "sequence", sequence)
    halves = [
        Volume("tp", phase, op, size, pairs, ranks)
        for phase in ("forward", "backward")
        for op in ("all_gather", "reduce_scatter")
    ]
    uncut = _uncut(shape) * itemsize
    return [*halves, small, Volume("tp", "step", "all_reduce", uncut, 1, ranks)]


def layerwise_volume(
    shape: Model, ranks: int, batch: int, sequence: int, *, micro_batches: int = 1,
    itemsize: int = 4,
) -> list[Volume]:  # fmt: skip
    """Layer-wise: activations over each of ``ranks - 1`` cuts, and as many gradients back.

    A tied embedding sends its gradient both ways between the ends, once a step.

    Raises
    ------
    PlanError
        A number is not positive.
    """
    return pipeline_volume(
        shape, ranks, batch, sequence, micro_batches=micro_batches, itemsize=itemsize
    )


def pipeline_volume(
    shape: Model, ranks: int, batch: int, sequence: int, *, chunks: int = 1,
    micro_batches: int = 1, itemsize: int = 4,
) -> list[Volume]:  # fmt: skip
    """Pipeline: as layer-wise, over the ``ranks * chunks - 1`` cuts between stages.

    The schedule changes when a message leaves, not how many there are: with several chunks a rank
    the pipeline has more cuts, and every one still lies between two ranks.

    Raises
    ------
    PlanError
        A number is not positive.
    """
    sizes = {"ranks": ranks, "batch": batch, "sequence": sequence, "chunks": chunks,
             "micro_batches": micro_batches}  # fmt: skip
    for name, value in sizes.items():
        positive(name, value)
    cuts = ranks * chunks - 1 if ranks > 1 else 0
    size = cuts * batch * sequence * shape.hidden * itemsize
    calls = cuts * micro_batches
    rows = [Volume("pp", p, "send", size, calls, ranks) for p in ("forward", "backward")]
    if shape.tied and cuts:
        ends = 2 * shape.vocab * shape.hidden * itemsize
        rows.append(Volume("pp", "step", "send", ends, 2, ranks))
    return rows


def local_parameters(shape: Model, tp: int = 1) -> int:
    """Parameters that a rank holds when `tp` ranks share every matrix.

    Norms, positions and the biases of rows are everywhere; the vocabulary is filled up to a
    multiple of `tp`.

    Raises
    ------
    PlanError
        `tp` does not divide the heads.
    """
    positive("tp", tp)
    divides("tp", tp, "heads", shape.heads)
    vocab = (1 if shape.tied else 2) * -(-shape.vocab // tp) * shape.hidden
    matrices = shape.layers * shape.dense.layer_matrices // tp
    columns = shape.hidden + 2 * shape.kv_width + shape.ffn if shape.bias else 0
    return vocab + matrices + shape.layers * columns // tp + _uncut(shape)


def _uncut(shape: Model) -> int:
    """Parameters that tensor parallelism leaves whole: norms, positions, biases of rows."""
    norms = (2 * shape.layers + 1) * shape.hidden * (2 if shape.bias else 1)
    rows = 2 * shape.layers * shape.hidden if shape.bias else 0
    return norms + rows + shape.positions * shape.hidden


def _units(shape: Model) -> list[int]:
    """Parameters of the rest, then of each block."""
    biases = 3 * shape.hidden + 2 * shape.kv_width + shape.ffn if shape.bias else 0
    norms = 2 * shape.hidden * (2 if shape.bias else 1)
    block = shape.dense.layer_matrices + norms + biases
    return [shape.parameters - shape.layers * block, *[block] * shape.layers]
