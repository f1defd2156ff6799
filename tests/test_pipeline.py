"""Pipeline schedules as data: formulas against the simulator, and what cannot run is refused."""

from fractions import Fraction

import pytest

from coursekit import pipeline
from coursekit.pipeline import Action, PipelineError, PipelineSchedule

SIZES = [(p, m) for p in (1, 2, 3, 4, 8) for m in (1, 2, 3, 4, 6, 8, 12, 16, 24)]
TIMES = [(1, 2, 1), (2, 4, 2), (3, 5, 2), (4, 8, 3), (1, 3, 1), (2, 3, 0)]


@pytest.mark.parametrize(("f", "b", "w"), TIMES)
@pytest.mark.parametrize("name", ["naive", "gpipe", "1f1b", "zb-h1"])
def test_the_formula_is_what_the_simulator_finds(name, f, b, w):
    for p, m in SIZES:
        if name == "zb-h1" and m < p:
            continue
        found = pipeline.simulate(pipeline.build(name, p, m), f, b, weight=w).bubble
        assert found == pipeline.bubble(name, p, m, forward=f, backward=b, weight=w), (p, m)


@pytest.mark.parametrize("v", [1, 2, 3, 4])
def test_the_formula_of_interleaving_too(v):
    for p, m in ((p, m) for p, m in SIZES if m % p == 0):
        found = pipeline.simulate(pipeline.build("interleaved", p, m, v), 3, 5).bubble
        assert found == pipeline.bubble("interleaved", p, m, v) == Fraction(p - 1, v * m)


def test_published_bubbles():
    # Narayanan et al. 2021, arXiv:2104.04473, figure 4: 4 devices, 8 micro-batches, backward twice
    # as long as forward; interleaving with two chunks halves what 3/8 of idle time cost.
    assert pipeline.simulate(pipeline.build("1f1b", 4, 8), 1, 2).end == (8 + 3) * 3
    assert pipeline.simulate(pipeline.build("interleaved", 4, 8, 2), 1, 2).end == 2 * (8 + 1.5) * 3
    # Qi et al. 2023, arXiv:2401.10241, table 2, with F = I = W: a third of 1F1B's bubble.
    one, zero = (pipeline.bubble(n, 4, 8, forward=1, backward=2) for n in ("1f1b", "zb-h1"))
    assert zero == one / 3


@pytest.mark.parametrize(("p", "m"), SIZES)
def test_what_is_held_for_backward(p, m):
    assert pipeline.peak(pipeline.build("gpipe", p, m)) == [m] * p
    assert pipeline.peak(pipeline.build("1f1b", p, m)) == [min(m, p - r) for r in range(p)]
    assert max(pipeline.peak(pipeline.build("zb-h1", p, m))) <= p
    assert pipeline.peak(pipeline.build("naive", p, m)) == [1] * p
    if m % p == 0 and m > p:
        # Megatron-LM: 2(p-1-r) + (v-1)p forwards, and one more, before the first backward.
        v = 3
        told = [min(2 * (p - 1 - r) + (v - 1) * p + 1, m * v) for r in range(p)]
        assert pipeline.peak(pipeline.build("interleaved", p, m, v)) == told


def test_messages_and_unequal_stages_cost_what_they_must():
    # One micro-batch through 3 stages and back: nothing overlaps, four messages.
    line = pipeline.simulate(pipeline.build("gpipe", 3, 1), [1, 2, 3], [4, 5, 6], p2p=10)
    assert line.end == 1 + 2 + 3 + 4 + 5 + 6 + 4 * 10
    # With many micro-batches the slowest stage decides.
    m = 100
    slow = pipeline.simulate(pipeline.build("1f1b", 3, m), [1, 5, 1], [2, 10, 2])
    assert slow.end == 15 * m + (1 + 1) + (2 + 2) - (1 + 2) + 0
    assert slow.busy(1) == 15 * m


def orders(name="1f1b", p=3, m=4):
    return [list(order) for order in pipeline.build(name, p, m).orders]


def refused(told, **options):
    with pytest.raises(PipelineError) as caught:
        pipeline.check(PipelineSchedule.of(told, **options))
    return caught.value


def test_an_illegal_schedule_names_what_breaks_first():
    told = orders()
    i, j = told[1].index(Action(1, "B", 1)), told[1].index(Action(1, "F", 1))
    told[1][i], told[1][j] = told[1][j], told[1][i]
    error = refused(told)
    assert error.broken == (Action(1, "B", 1), Action(1, "F", 1))
    assert "1B1 needs 1F1 before it, got 1F1 later in the order of rank 1; move 1F1 up" in str(
        error
    )

    # Backward first on rank 0 waits for rank 1, whose forward waits for rank 0.
    circle = refused([["0F0", "0B0", "0F1", "0B1"], ["1F0", "1F1", "1B0", "1B1"]])
    assert circle.cycle == (0, 1)
    assert circle.broken == (Action(0, "B", 0), Action(1, "B", 0))
    assert "0 -> 1 -> 0" in str(circle)
    assert "rank 1 stands at 1F1, which needs 0F1 of rank 0" in str(circle)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda o: o[2].pop(), "got no 2B3 on rank 2; add it"),
        (lambda o: o[0].append(Action(0, "F", 2)), "got 0F2 2 times on rank 0"),
        (lambda o: o[0].append(o[1].pop(0)), "stage 1 lies on rank 1 (stage % ranks), got 1F0"),
        (lambda o: o[0].append(Action(7, "F", 0)), "stages go from 0 to 2, got 7F0 on rank 0"),
        (lambda o: o[1].append(Action(1, "W", 0)), "got no 1I0 on rank 1"),
        (
            lambda o: o[1].extend([Action(1, "I", 0), Action(1, "W", 0)]),
            "either whole (B) or in halves",
        ),
    ],
)
def test_what_is_missing_or_misplaced_is_named(change, told):
    wrong = orders()
    change(wrong)
    assert told in str(refused(wrong))


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: pipeline.build("2f2b", 4, 8), "one of naive, gpipe, 1f1b, interleaved, zb-h1"),
        (lambda: pipeline.build("1f1b", 4, 0), "micro_batches must be a whole number from 1"),
        (lambda: pipeline.build("1f1b", 4, 8, 2), "only interleaved has several chunks"),
        (lambda: pipeline.build("interleaved", 4, 6, 2), "turns of 4 micro-batches, got 6; try 8"),
        (lambda: pipeline.bubble("zb-h1", 4, 2), "got 2 on 4 ranks"),
        (lambda: PipelineSchedule.of([["0F0", "F1"]]), "such as 2F5; got 'F1'"),
        (lambda: PipelineSchedule.of([[(0, "F", -1)]]), "such as (2, 'F', 5)"),
        (lambda: PipelineSchedule.of([["0F0"], ["1F0"]], stages=3), "must divide the stages"),
        (lambda: PipelineSchedule.of([]), "must divide the stages"),
        (
            lambda: pipeline.simulate(pipeline.build("1f1b", 2, 2), [1, 2, 3]),
            "forward is one time or one a stage, got 3 for 2 stages",
        ),
        (
            lambda: pipeline.simulate(pipeline.build("1f1b", 2, 2), 1, 2, p2p=-1),
            "times must be 0 or more",
        ),
    ],
)
def test_bad_input_is_one_clear_error(call, told):
    with pytest.raises(PipelineError) as caught:
        call()
    assert told in str(caught.value)


@pytest.mark.parametrize("name", pipeline.names())
def test_both_ends_of_a_pair_begin_its_messages_in_one_order(name):
    """NCCL does the messages of a pair one after the other: with one order nobody gets stuck."""
    chunks = 2 if name == "interleaved" else 1
    schedule = pipeline.build(name, 4, 8, chunks)
    planned = pipeline.steps(schedule)
    begun = {}
    for rank, own in enumerate(planned):
        assert [step.action for step in own] == list(schedule.orders[rank])
        for step in own:
            for post in (*step.before, *step.after):
                begun.setdefault((rank, post.peer), []).append((post.kind, post.source))
    for (rank, peer), told in begun.items():
        other = {"send": "recv", "recv": "send"}
        assert begun[peer, rank] == [(other[kind], source) for kind, source in told]
    sent = sum(kind == "send" for told in begun.values() for kind, _ in told)
    assert sent == 2 * 8 * (4 * chunks - 1)


def test_a_schedule_is_written_and_read():
    schedule = pipeline.build("interleaved", 2, 2, 2)
    lines = [line.partition(": ")[2].split() for line in str(schedule).splitlines()]
    again = PipelineSchedule.of(lines, stages=4, name="interleaved")
    assert again == schedule
    assert repr(again) == "PipelineSchedule(interleaved: 2 ranks, 4 stages, 2 micro-batches)"
