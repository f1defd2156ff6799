"""The simulator is the closed form on equal links, and what is known by hand on others."""

from __future__ import annotations

import numpy as np
import pytest

from coursekit import cost, topology
from coursekit.cost import CostError
from coursekit.cost._fair import fair_rates, fair_seconds
from coursekit.schedule import Schedule, build, options
from coursekit.topology import Topology
from coursekit.topology.machine import graph_of
from tests.schedule_help import PAIRS

# Powers of two, so that floats are exact.
ALPHA, BETA, GAMMA = 2.0**-18, 2.0**-30, 2.0**-33


@pytest.mark.parametrize(("collective", "algorithm"), PAIRS)
def test_on_equal_links_it_is_the_closed_form_exactly(collective: str, algorithm: str) -> None:
    for size in range(2, 65):
        tried: list[dict[str, int]] = [{}]
        if "segments" in options(collective, algorithm, size):
            tried = [{"segments": s} for s in (1, 8)]
        for given in tried:
            made = build(collective, algorithm, size, **given)
            nbytes = 0 if collective == "barrier" else made.chunks * 64
            form = cost.closed_form(collective, algorithm, size, nbytes, **given)
            found = cost.simulate(
                made, topology.star(size, 1 / BETA), nbytes, alpha=ALPHA, gamma=GAMMA
            )
            assert found.seconds == form.time(ALPHA, BETA, GAMMA), (size, given)
            assert sum(found.load.values()) == 2 * form.sent_total


@pytest.mark.parametrize("sharing", ["bottleneck", "fair"])
@pytest.mark.parametrize("algorithm", ["ring", "recursive_doubling", "halving_doubling"])
def test_fair_shares_change_nothing_where_nobody_shares(sharing: str, algorithm: str) -> None:
    made = build("all_reduce", algorithm, 8)
    found = cost.simulate(made, topology.star(8, 2.0**30), 1 << 20, alpha=ALPHA, sharing=sharing)
    assert found.seconds == cost.closed_form("all_reduce", algorithm, 8, 1 << 20).time(ALPHA, BETA)


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter"])
@pytest.mark.parametrize("size", [2, 7, 64])
def test_rounds_of_a_ring_need_no_schedule(collective: str, size: int) -> None:
    from coursekit.cost._rounds import _ring

    short = list(_ring(collective, size, size * 32))
    long = list(cost.rounds_of(build(collective, "ring", size), size * 32))
    assert sum(r.times for r in short) == sum(r.times for r in long)
    for a, b in ((short, long),):
        for name in ("nbytes", "adds"):
            assert sum(getattr(r, name).sum() * r.times for r in a) == sum(
                getattr(r, name).sum() * r.times for r in b
            )
    star = topology.star(size, 2.0**30)
    times = [cost.simulate(r, star, alpha=ALPHA, gamma=GAMMA).seconds for r in (short, long)]
    assert times[0] == times[1]


def test_sixteen_thousand_ranks_are_one_round() -> None:
    (first, second) = cost.rounds("all_reduce", "ring", 16_384, 1 << 30)
    assert first.times == second.times == 16_383
    assert first.adds.sum() == first.nbytes.sum()
    assert not second.adds.any()


def two_hosts(between: float) -> Topology:
    """Four GPUs, two on each of two switches, which one link joins."""
    ranks = tuple(f"GPU{k}" for k in range(4))
    nodes = [("s0", "leaf", ""), ("s1", "leaf", ""), *((g, "gpu", "") for g in ranks)]
    edges = [(g, f"s{k // 2}", "network", 1, 8.0) for k, g in enumerate(ranks)]
    return Topology("two", graph_of(nodes, [*edges, ("s0", "s1", "network", 1, between)]), ranks)


def test_messages_that_meet_on_a_link_share_it() -> None:
    """Both ranks of one switch send to the other: each gets half of the link between."""
    both = Schedule("custom", "pair", 4, 1, [(0, 0, 2, 0), (0, 1, 3, 0)])
    one = Schedule("custom", "one", 4, 1, [(0, 0, 2, 0)])
    net = two_hosts(4.0)
    assert cost.simulate(one, net, 16).seconds == 16 / 4
    for sharing in ("bottleneck", "fair"):
        found = cost.simulate(both, net, 16, sharing=sharing)
        assert found.seconds == 2 * 16 / 4
        assert found.busiest == ("s0", "s1")
        assert found.load["s0", "s1"] == 32
        assert ("s1", "s0") not in found.load
    # The other way at the same time costs nothing: links carry both ways.
    cross = Schedule("custom", "cross", 4, 1, [(0, 0, 2, 0), (0, 3, 1, 0)])
    assert cost.simulate(cross, net, 16).seconds == 16 / 4


def test_what_is_free_again_goes_to_the_others() -> None:
    """Two flows share a link of 4: the short one ends at 4, then the long one has all of it."""
    flow, link = np.array([0, 1]), np.array([0, 0])
    ends = fair_seconds(flow, link, np.array([4.0]), np.array([8.0, 24.0]))
    assert ends.tolist() == [4.0, 8.0]


def test_max_min_rates_of_a_textbook() -> None:
    """Three links of 1, 2 and 1: flow 0 crosses all, flows 1 to 3 one each."""
    flow = np.array([0, 0, 0, 1, 2, 3])
    link = np.array([0, 1, 2, 0, 1, 2])
    rates = fair_rates(flow, link, np.array([1.0, 2.0, 1.0]), 4)
    assert rates.tolist() == [0.5, 0.5, 1.5, 0.5]


@pytest.mark.parametrize("seed", range(20))
def test_max_min_rates_fill_and_cannot_be_raised(seed: int) -> None:
    rng = np.random.default_rng(seed)
    flows, links = 12, 7
    flow = np.repeat(np.arange(flows), 3)
    link = np.concatenate([rng.choice(links, 3, replace=False) for _ in range(flows)])
    capacity = rng.integers(1, 9, links).astype(float)
    rates = fair_rates(flow, link, capacity, flows)
    used = np.bincount(link, weights=rates[flow], minlength=links)
    assert (used <= capacity * (1 + 1e-9)).all()
    for k in range(flows):
        mine = link[flow == k]
        # On some full link nobody has more: raising this flow would take from an equal or a lesser.
        assert any(
            used[x] >= capacity[x] * (1 - 1e-9) and rates[k] >= rates[flow[link == x]].max() - 1e-9
            for x in mine
        )


def test_storing_a_message_on_its_way_adds_up_the_links() -> None:
    one = Schedule("custom", "one", 4, 1, [(0, 0, 2, 0)])
    net = two_hosts(4.0)
    assert cost.simulate(one, net, 16, forwarding="store").seconds == 16 / 8 + 16 / 4 + 16 / 8
    assert cost.simulate(one, net, 16, forwarding="cut").seconds == 16 / 4


def test_a_slow_link_slows_every_step_of_a_ring_and_no_step_of_one_round_it() -> None:
    box = topology.star(8, 1e9)
    made = build("all_reduce", "ring", 8)
    plain = cost.simulate(made, box, 8 << 20)
    slow = cost.simulate(made, box.slowed("GPU7", "switch", 10), 8 << 20)
    assert slow.seconds == pytest.approx(10 * plain.seconds)
    cube = topology.machine("dgx1v")
    best = topology.best_ring(cube)
    natural = cost.simulate(made, cube, 8 << 20)
    better = cost.simulate(made.relabel(best.ranks), cube, 8 << 20)
    assert better.seconds < natural.seconds / 4
    assert better.seconds == pytest.approx(14 * (1 << 20) / best.bottleneck)


def test_a_late_rank_delays_all_by_as_much_and_no_more() -> None:
    made = build("all_reduce", "ring", 8)
    star = topology.star(8, 1e9)
    plain = cost.simulate(made, star, 8 << 20, late={})
    late = cost.simulate(made, star, 8 << 20, late={3: 0.5})
    assert plain.seconds == pytest.approx(cost.simulate(made, star, 8 << 20).seconds)
    assert late.seconds == pytest.approx(plain.seconds + 0.5)
    assert min(late.ends) > 0.5


def test_own_clocks_never_wait_longer_than_steps_do() -> None:
    for algorithm in ("tree", "double_tree", "chain", "halving_doubling"):
        made = build("all_reduce", algorithm, 13)
        star = topology.star(13, 1e9)
        together = cost.simulate(made, star, made.chunks << 12, alpha=1e-6)
        alone = cost.simulate(made, star, made.chunks << 12, alpha=1e-6, late={})
        assert alone.seconds <= together.seconds * (1 + 1e-12)


def test_rails_keep_equal_places_off_the_spines() -> None:
    size = 32
    made = topology.cluster("hgx-h100", 4)
    # Pairs in the same place of two nodes: one leaf.
    swap = [(0, g, 8 + g, 0) for g in range(8)]
    rails = cost.simulate(Schedule("custom", "rails", size, 1, swap), made, 1 << 20)
    assert not any("spine" in hop for hop in rails.load)
    assert rails.seconds == pytest.approx((1 << 20) / 48e9)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"sharing": "none"}, "sharing must be bottleneck or fair, got 'none'"),
        ({"forwarding": "x"}, "forwarding must be cut or store, got 'x'"),
        ({"sharing": "fair", "forwarding": "store"}, "use forwarding='cut'"),
        ({"alpha": -1.0}, "alpha must be seconds"),
        ({"late": {9: 1.0}}, "a late rank must be from 0 to 7, got 9"),
    ],
)
def test_a_wrong_choice_is_one_clear_error(change: dict[str, object], told: str) -> None:
    with pytest.raises(CostError, match=told):
        cost.simulate(build("all_reduce", "ring", 8), topology.star(8), 8, **change)


def test_sizes_must_agree() -> None:
    with pytest.raises(CostError, match="as many GPUs as the schedule has ranks, got 4 for 8"):
        cost.simulate(build("all_reduce", "ring", 8), topology.star(4), 8)
    with pytest.raises(CostError, match="below the topology's 4 GPUs, got 7"):
        cost.simulate(cost.rounds("all_reduce", "ring", 8, 64), topology.star(4))
    with pytest.raises(CostError, match="nbytes must be a whole number"):
        next(iter(cost.rounds("all_reduce", "ring", 8, -1)))
