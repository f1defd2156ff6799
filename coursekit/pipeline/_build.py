"""The schedules that the field uses, and how much of the time each of them loses.

naive: one micro-batch after the other. GPipe: Huang et al. 2019, arXiv:1811.06965. 1F1B: Narayanan
et al. 2019 (PipeDream) and 2021, arXiv:2006.09503. Interleaved: Narayanan et al. 2021,
arXiv:2104.04473, section 2.2. ZB-H1: Qi et al. 2023, arXiv:2401.10241, section 2.
"""

from __future__ import annotations

from fractions import Fraction

from ._action import Action
from ._errors import PipelineError
from ._schedule import PipelineSchedule

Order = list[Action]


def names() -> tuple[str, ...]:
    """The schedules that `build` knows."""
    return tuple(_MAKERS)


def build(name: str, ranks: int, micro_batches: int, chunks: int = 1) -> PipelineSchedule:
    """One of the known schedules.

    Args:
        name: ``naive``, ``gpipe``, ``1f1b``, ``interleaved`` or ``zb-h1``.
        ranks: how many ranks share the model.
        micro_batches: into how many a batch is cut.
        chunks: stages on each rank; more than one only for ``interleaved``.

    Raises:
        PipelineError: the name is unknown, a number is below 1, or the numbers do not fit.

    Examples:
        >>> print(build("1f1b", 2, 3))
        rank 0: 0F0 0F1 0B0 0F2 0B1 0B2
        rank 1: 1F0 1B0 1F1 1B1 1F2 1B2
    """
    _fits(name, ranks, micro_batches, chunks)
    p, m, v = ranks, micro_batches, chunks
    orders = tuple(tuple(_MAKERS[name](rank, p, m, v)) for rank in range(p))
    return PipelineSchedule(orders, p * v, m, name)


def bubble(
    name: str,
    ranks: int,
    micro_batches: int,
    chunks: int = 1,
    *,
    forward: int | float = 1,
    backward: int | float = 2,
    weight: int | float | None = None,
) -> Fraction:
    """Idle time over busy time of each rank, when messages cost nothing.

    (p-1)/m for GPipe and 1F1B; (p-1)/(v m) interleaved (arXiv:2104.04473, section 2.2); p-1 for the
    naive one; (p-1)(F + I - W)/(m (F + I + W)) for ZB-H1 (arXiv:2401.10241, table 2), where
    backward = I + W, for at least p micro-batches and W at most F and I.

    Args:
        forward, backward: how long a rank computes on a micro-batch, in any unit.
        weight: the part of `backward` that is W; half of it when None.

    Returns:
        A Fraction b, exact for the numbers given; the share of the whole time that is lost is
        ``b / (1 + b)``.

    Raises:
        PipelineError: as `build`, or ZB-H1's formula does not hold.
    """
    _fits(name, ranks, micro_batches, chunks)
    p, m, v = ranks, micro_batches, chunks
    if name == "naive":
        return Fraction(p - 1)
    if name == "interleaved":
        return Fraction(p - 1, v * m)
    if name != "zb-h1":
        return Fraction(p - 1, m)
    w = Fraction(backward) / 2 if weight is None else Fraction(weight)
    f, i = Fraction(forward), Fraction(backward) - w
    if m < p or w > min(f, i):
        raise PipelineError(
            "ZB-H1's formula holds for at least as many micro-batches as ranks and W at most F and "
            f"I, got {m} on {p} ranks, F {f}, I {i}, W {w}; ask simulate(...).bubble"
        )
    return Fraction(p - 1, m) * (f + i - w) / (f + i + w)


def _naive(rank: int, p: int, m: int, v: int) -> Order:
    return [Action(rank, phase, k) for k in range(m) for phase in "FB"]


def _gpipe(rank: int, p: int, m: int, v: int) -> Order:
    return [Action(rank, phase, k) for phase in "FB" for k in range(m)]


def _one_forward_one_backward(rank: int, p: int, m: int, v: int) -> Order:
    warm = min(p - 1 - rank, m)
    order = [Action(rank, "F", k) for k in range(warm)]
    for k in range(m - warm):
        order += [Action(rank, "F", warm + k), Action(rank, "B", k)]
    return order + [Action(rank, "B", k) for k in range(m - warm, m)]


def _interleaved(rank: int, p: int, m: int, v: int) -> Order:
    """As 1F1B, on turns of p micro-batches through each chunk."""
    turns = [(k // (p * v) * p + k % p, k // p % v) for k in range(m * v)]
    forwards = [Action(rank + chunk * p, "F", k) for k, chunk in turns]
    backwards = [Action(rank + (v - 1 - chunk) * p, "B", k) for k, chunk in turns]
    # One more forward on each rank before, as the first backward comes from the last chunk.
    warm = m * v if m == p else min(2 * (p - 1 - rank) + (v - 1) * p, m * v)
    order = forwards[:warm]
    for pair in zip(forwards[warm:], backwards, strict=False):
        order += pair
    return order + backwards[m * v - warm :]


def _zero_bubble(rank: int, p: int, m: int, v: int) -> Order:
    """1F1B whose W is put off by as many micro-batches as the rank's number."""
    order: Order = []
    waiting = list(range(m))
    for action in _one_forward_one_backward(rank, p, m, 1):
        if action.phase == "F":
            order.append(action)
            continue
        order.append(Action(rank, "I", action.micro_batch))
        if action.micro_batch >= rank:
            order.append(Action(rank, "W", waiting.pop(0)))
    return order + [Action(rank, "W", k) for k in waiting]


_MAKERS = {
    "naive": _naive,
    "gpipe": _gpipe,
    "1f1b": _one_forward_one_backward,
    "interleaved": _interleaved,
    "zb-h1": _zero_bubble,
}


def _fits(name: str, ranks: int, micro_batches: int, chunks: int) -> None:
    if name not in _MAKERS:
        raise PipelineError(f"a schedule is one of {', '.join(names())}, got {name!r}; try '1f1b'")
    for what, value in (("ranks", ranks), ("micro_batches", micro_batches), ("chunks", chunks)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise PipelineError(f"{what} must be a whole number from 1 up, got {value!r}; try 4")
    if chunks > 1 and name != "interleaved":
        raise PipelineError(
            f"only interleaved has several chunks a rank, got {name} with {chunks}; try "
            "build('interleaved', ...)"
        )
    if name == "interleaved" and micro_batches % ranks:
        raise PipelineError(
            f"interleaved goes by turns of {ranks} micro-batches, got {micro_batches}; try "
            f"{-(-micro_batches // ranks) * ranks}"
        )
