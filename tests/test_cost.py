"""Closed forms say what counting says, for every size; and what follows from them is right."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coursekit import cost
from coursekit.schedule import Schedule, ScheduleError, build, options
from tests.schedule_help import PAIRS, schedules

ALPHA, BETA, GAMMA = 5e-6, 1e-10, 2e-11
MIB = 1 << 20


@pytest.mark.parametrize(("collective", "algorithm"), PAIRS)
def test_closed_forms_are_what_counting_gives(collective: str, algorithm: str) -> None:
    for size in range(1, 65):
        tried = [{}]
        if "segments" in options(collective, algorithm, size):
            tried = [{"segments": segments} for segments in (1, 2, 3, 8, 21)]
        if "groups" in options(collective, algorithm, size):
            tried = [{"groups": groups} for groups in {1, 2, 3, 5, size // 2, size}]
            tried = [given for given in tried if 1 <= given["groups"] <= size] + [{}]
        for given_ in tried:
            built = build(collective, algorithm, size, **given_)
            nbytes = 0 if collective == "barrier" else built.chunks * 6
            form = cost.closed_form(collective, algorithm, size, nbytes, **given_)
            assert form == cost.price(built, nbytes), (size, given_)
            counts = built.count(nbytes)
            assert form.steps == counts.steps
            assert form.messages == counts.messages_sent.max()
            assert form.messages_total == counts.messages
            assert form.sent == counts.sent.max()
            assert form.received == counts.received.max()
            assert form.sent_total == counts.total


@given(schedules(most=10))
@settings(max_examples=60, deadline=None)
def test_price_is_the_model_written_out(built: Schedule) -> None:
    found = cost.price(built, built.chunks * 3, itemsize=4)
    alphas = betas = gammas = 0
    for step in {row.step for row in built}:
        rows = [row for row in built if row.step == step and row.src != row.dst]
        messages = {(row.src, row.dst, row.op) for row in rows}
        ranks = range(built.size)
        alphas += max(max(sum(m[e] == r for m in messages) for r in ranks) for e in (0, 1))
        out = max(sum(row.src == rank for row in rows) for rank in ranks)
        in_ = max(sum(row.dst == rank for row in rows) for rank in ranks)
        betas += 12 * max(out, in_)
        adds = [row for row in rows if row.op == "reduce"]
        gammas += 12 * max(sum(row.dst == rank for row in adds) for rank in ranks)
    assert (found.alphas, found.betas, found.gammas) == (alphas, betas, gammas)


# T at 8 ranks and N = 8 MiB by the formulas of the sources, written out by hand.
N8 = 8 * MIB
TEXTBOOK = {
    ("all_reduce", "ring"): (14, 2 * 7 / 8, 7 / 8),  # Patarasuk & Yuan
    ("all_reduce", "tree"): (6, 6, 3),  # Thakur: 2 lg p (alpha + N beta) + lg p N gamma
    ("all_reduce", "recursive_doubling"): (3, 3, 3),  # Thakur
    ("all_reduce", "halving_doubling"): (6, 2 * 7 / 8, 7 / 8),  # Rabenseifner
    ("all_gather", "ring"): (7, 7 / 8, 0),
    ("all_gather", "recursive_doubling"): (3, 7 / 8, 0),
    ("all_gather", "bruck"): (3, 7 / 8, 0),
    ("reduce_scatter", "ring"): (7, 7 / 8, 7 / 8),
    ("reduce_scatter", "halving"): (3, 7 / 8, 7 / 8),
    ("broadcast", "binomial"): (3, 3, 0),
    ("broadcast", "scatter_allgather"): (3 + 7, 2 * 7 / 8, 0),  # Thakur, van de Geijn
    ("reduce", "binomial"): (3, 3, 3),
    ("all_to_all", "pairwise"): (7, 7 / 8, 0),
    ("all_to_all", "bruck"): (3, 3 / 2, 0),  # N/2 lg p
    ("scatter", "binomial"): (3, 7 / 8, 0),
    ("gather", "linear"): (7, 7 / 8, 0),
    ("barrier", "dissemination"): (3, 0, 0),
}


@pytest.mark.parametrize("pair", TEXTBOOK)
def test_textbook_times(pair: tuple[str, str]) -> None:
    a, b, c = TEXTBOOK[pair]
    time = cost.closed_form(*pair, 8, N8).time(ALPHA, BETA, GAMMA)
    assert time == pytest.approx(a * ALPHA + b * N8 * BETA + c * N8 * GAMMA, rel=1e-12)


def test_pipelines() -> None:
    chain = cost.closed_form("broadcast", "chain", 8, N8, segments=64)
    assert (chain.alphas, chain.betas) == (64 + 6, (64 + 6) * N8 // 64)
    # Sanders et al.: a broadcast takes about 2 log p + 2 k turns, so up and down twice that.
    for size in (8, 16, 64):
        double = cost.closed_form("all_reduce", "double_tree", size, N8, segments=64)
        depth = math.ceil(math.log2(size))
        assert double.steps == 2 * depth + 63
        assert 4 * 64 <= double.alphas <= 4 * 64 + 4 * depth
        assert double.sent == 2 * N8
    many = cost.closed_form("all_reduce", "double_tree", 64, N8, segments=4096)
    assert many.betas / N8 == pytest.approx(2, rel=0.01)


def test_large_sizes_need_no_schedule() -> None:
    ring = cost.closed_form("all_reduce", "ring", 16384, 1 << 30)
    assert (ring.steps, ring.betas) == (2 * 16383, 2 * 16383 * 65536)
    tree = cost.closed_form("all_reduce", "double_tree", 16384, 1 << 30, segments=512)
    assert tree.steps == 28 + 511
    assert tree.time(ALPHA, BETA) < ring.time(ALPHA, BETA)


@pytest.mark.parametrize(("collective", "algorithm"), PAIRS)
def test_every_formula_has_its_source(collective: str, algorithm: str) -> None:
    text = cost.formula(collective, algorithm)
    sources = ("2009", "2005", "2004", "2007", "2003", "2019", "1997", "1994", "1988")
    assert any(year in text for year in sources) or "backwards" in text
    assert "T " in text


def test_bytes_are_whole_and_rounded_up() -> None:
    ring = cost.closed_form("all_reduce", "ring", 4, 10)
    assert (ring.sent, ring.sent_total) == (15, 60)
    assert cost.closed_form("all_reduce", "ring", 4, 9).sent == math.ceil(9 * 6 / 4)
    assert cost.closed_form("all_reduce", "ring", 4, 0).sent == 0
    assert all(isinstance(number, int) for number in (ring.sent, ring.betas, ring.gammas))
    assert cost.closed_form("barrier", "dissemination", 4, 100).betas == 0
    assert str(ring).startswith("all_reduce by ring, 4 ranks, 10 B: T = 6 alpha + 15 B beta")


def test_price_of_uneven_chunks_is_exact() -> None:
    ring = build("all_reduce", "ring", 4)
    assert cost.price(ring, 10).sent == ring.count(10).sent.max()
    assert cost.price(ring, [10, 0, 0, 0]).nbytes == 10
    assert cost.price(ring, 2, itemsize=8).nbytes == 16
    assert cost.price(build("all_reduce", "ring", 1), 5).time(ALPHA, BETA, GAMMA) == 0


def test_half_of_the_bandwidth() -> None:
    assert cost.n_half(1e-5, 1e-10) == pytest.approx(100_000)
    for pair in (("all_reduce", "ring"), ("all_gather", "bruck")):
        half = cost.n_half(ALPHA, BETA, *pair, size=8)
        large = cost.closed_form(*pair, 8, 1 << 60).time(ALPHA, BETA) / (1 << 60)
        there = cost.closed_form(*pair, 8, round(half)).time(ALPHA, BETA) / half
        assert there == pytest.approx(2 * large, rel=1e-3)


@pytest.mark.parametrize("size", [3, 8, 17])
@pytest.mark.parametrize("pair", [("recursive_doubling", "ring"), ("tree", "halving_doubling")])
def test_where_two_algorithms_meet(pair: tuple[str, str], size: int) -> None:
    meet = cost.crossover(*pair, size, ALPHA, BETA, GAMMA)
    if meet is None:
        times = [
            [cost.closed_form("all_reduce", a, size, n).time(ALPHA, BETA, GAMMA) for a in pair]
            for n in (1, 1 << 40)
        ]
        assert (times[0][0] <= times[0][1]) == (times[1][0] <= times[1][1])
        return
    assert meet == cost.crossover(*reversed(pair), size, ALPHA, BETA, GAMMA)
    for factor, first_wins in ((0.5, True), (2, False)):
        first, second = (
            cost.closed_form("all_reduce", name, size, round(meet * factor)).time(
                ALPHA, BETA, GAMMA
            )
            for name in pair
        )
        assert (first < second) == first_wins


def test_crossover_by_hand() -> None:
    # 3 alpha + 3 N beta = 14 alpha + 7/4 N beta
    meet = cost.crossover("recursive_doubling", "ring", 8, ALPHA, BETA)
    assert meet == pytest.approx(11 / 1.25 * ALPHA / BETA)
    assert cost.crossover("halving_doubling", "ring", 8, ALPHA, BETA) is None
    assert cost.crossover("bruck", "pairwise", 8, ALPHA, BETA, collective="all_to_all") > 0
    assert cost.crossover("double_tree", "ring", 64, ALPHA, BETA, segments=8) > 0
    with pytest.raises(cost.CostError, match="must belong to tree or ring, got 'segments'"):
        cost.crossover("tree", "ring", 8, ALPHA, BETA, segments=4)


@given(st.integers(3, 40), st.integers(1, 26))
@settings(max_examples=30, deadline=None)
def test_best_segments(size: int, power: int) -> None:
    nbytes = 1 << power
    best = cost.best_segments("broadcast", "chain", size, nbytes, ALPHA, BETA)
    ideal = math.sqrt((size - 2) * nbytes * BETA / ALPHA)

    def exact(segments: float) -> float:
        return (segments + size - 2) * (ALPHA + nbytes / segments * BETA)

    assert exact(best) <= 1.01 * exact(min(max(1, ideal), nbytes))
    with pytest.raises(ScheduleError, match="got 'segments'"):
        cost.best_segments("all_reduce", "ring", size, nbytes, ALPHA, BETA)


def test_bandwidths_as_nccl_tests_has_them() -> None:
    assert cost.busbw_factor("all_reduce", 8) == 2 * 7 / 8
    for collective in ("all_gather", "reduce_scatter", "alltoall", "gather", "scatter"):
        assert cost.busbw_factor(collective, 8) == 7 / 8
    assert cost.busbw_factor("broadcast", 8) == cost.busbw_factor("reduce", 8) == 1
    assert cost.algbw(10**9, 0.5) == 2
    # Its own table: 134217728 B in 1211.2 us is 110.81 GB/s.
    assert cost.algbw(134217728, 1211.2e-6) == pytest.approx(110.81, abs=0.01)
    assert cost.busbw("all_reduce", 4, 10**9, 1) == 1.5
    # A ring that only pays for bytes has a busbw of 1 / beta, however many ranks it has.
    for size in (2, 5, 64):
        time = cost.closed_form("all_reduce", "ring", size, size * MIB).time(0, BETA)
        assert cost.busbw("all_reduce", size, size * MIB, time) == pytest.approx(1 / BETA / 1e9)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: cost.closed_form("all_reduce", "ring", 4, 1.5), "nbytes must be a whole number"),
        (lambda: cost.closed_form("all_reduce", "ring", 4, -1), "from 0 up, got -1"),
        (lambda: cost.closed_form("all_reduce", "ring", 4, True), "got True"),
        (lambda: cost.closed_form("all_reduce", "ring", 4, 8).time(-1, 0), "alpha must be seconds"),
        (lambda: cost.closed_form("all_reduce", "ring", 4, 8).time(0, math.nan), "beta must be"),
        (lambda: cost.n_half(1e-6, 0), "beta must be above 0"),
        (lambda: cost.n_half(1e-6, 1e-9, "barrier", "dissemination", 4), "must move bytes"),
        (lambda: cost.busbw_factor("barrier", 4), "a collective that moves bytes, got barrier"),
        (lambda: cost.busbw_factor("all_reduce", 0), "size must be a whole number from 1 up"),
        (lambda: cost.algbw(8, 0), "a time above 0, got 8 B in 0 s"),
    ],
)
def test_numbers_that_cannot_be(call, told: str) -> None:
    with pytest.raises(cost.CostError, match=told):
        call()


def test_names_that_are_unknown() -> None:
    with pytest.raises(ScheduleError, match="did you mean ring"):
        cost.closed_form("all_reduce", "rings", 4, 8)
    with pytest.raises(ScheduleError, match="size must be a whole number from 1 up, got 0"):
        cost.closed_form("all_reduce", "ring", 0, 8)


def test_links_differ_though_bytes_are_alike() -> None:
    ring = build("all_reduce", "ring", 4).matrix(400)
    tree = build("all_reduce", "tree", 4).matrix(400)
    assert ring.sum() == tree.sum() == 2 * 3 * 400
    assert not np.array_equal(ring, tree)
