"""NCCL's cost model: its published latencies, choices and settings, and what is refused."""

import statistics
from dataclasses import replace

import pytest

from coursekit import _data
from coursekit.cost import CostError, busbw, nccl

MIB, GIB = 1 << 20, 1 << 30
VERSIONS = [f"2.{minor}" for minor in range(19, 31)]
CHOICES = _data.load("nccl_choices.yaml")
ONLY_RING = ("broadcast", "reduce", "all_gather", "reduce_scatter")


def cells(*args, **kwargs):
    return {(c.algorithm, c.protocol): c for c in nccl.times(*args, **kwargs)}


def pick(*args, **kwargs):
    best = nccl.choose(*args, **kwargs)
    return f"{best.algorithm} {best.protocol}"


# Latencies: ring and tree over nodes, microseconds, network latency 0, host overhead 1.
@pytest.mark.parametrize(
    ("nodes", "ring_ll", "tree_ll", "ring_simple", "tree_simple"),
    [(1, 15.0, 15.2, 56, 64), (2, 40, 25, 132, 92),
     (8, 156, 45, 585, 148), (64, 1243, 75, 4819, 232)],
)  # fmt: skip
def test_latencies_are_the_published_ones(nodes, ring_ll, tree_ll, ring_simple, tree_simple):
    table = cells("all_reduce", 8, "h100-8ndr", nodes=nodes, version="2.30")
    for pair, expected in [
        (("Ring", "LL"), ring_ll),
        (("Tree", "LL"), tree_ll),
        (("Ring", "Simple"), ring_simple),
        (("Tree", "Simple"), tree_simple),
    ]:
        # The plateau of a ring over nodes begins above 8 bytes.
        digits = 1 if isinstance(expected, float) else 0
        assert round(table[pair].latency_us, digits) == expected


def test_latency_and_bandwidth_are_what_nccl_printed():
    (logged,) = CHOICES["tables"]
    table = cells("all_reduce", 1 << 34, logged["machine"], version=logged["version"])
    for algorithm, row in logged["rows"].items():
        for protocol, (latency, bandwidth) in row.items():
            cell = table[algorithm, protocol]
            assert cell.latency_us == pytest.approx(latency, abs=0.051)
            assert cell.bandwidth == pytest.approx(bandwidth, abs=0.051)


def test_at_least_eight_of_ten_published_choices_are_exact():
    listed = [row for row in CHOICES["by_gpus"] if row["source"] == "stas00"]
    same = [
        nccl.choose(
            "all_reduce",
            row["size"],
            row["machine"],
            ranks_per_node=row["ranks"],
            version=row["version"],
        ).algorithm
        == row["algorithm"]
        for row in listed
    ]
    assert len(same) == 10
    assert sum(same) >= 8


@pytest.mark.parametrize("row", CHOICES["by_gpus"] + CHOICES["lines"], ids=str)
def test_each_published_choice(row):
    best = nccl.choose(
        "all_reduce",
        row["size"],
        row["machine"],
        ranks_per_node=row["ranks"],
        version=row["version"],
    )
    assert best.algorithm == row["algorithm"]
    assert best.protocol == row.get("protocol", "Simple")
    assert best.channels == row.get("channels", best.channels)


@pytest.mark.parametrize("row", CHOICES["switches"], ids=str)
def test_hopper_switches_from_ring_ll_to_nvls_between_1_and_2_mib(row):
    for exponent in range(3, 35):
        got = pick("all_reduce", 1 << exponent, row["machine"], version=row["version"])
        if 1 << exponent <= row["ring_ll_up_to"]:
            assert got == "Ring LL"
        if 1 << exponent >= row["nvls_from"]:
            assert got == "NVLS Simple"


def test_every_choice_and_table_has_its_source():
    rows = [row for key in ("by_gpus", "lines", "switches", "tables") for row in CHOICES[key]]
    assert all(row["source"] in CHOICES["sources"] for row in rows)
    tables = _data.load("measured/nccl_bandwidths.yaml")
    assert all(table["source"].startswith("https://") for table in tables.values())


@pytest.mark.parametrize(
    ("name", "machine", "nodes", "version", "most"),
    [
        ("h100-8", "h100", 1, "2.27", 0.10),
        ("h100-8", "h100", 1, "2.30", 0.10),
        ("a100-8", "a100", 1, "2.27", 0.10),
        ("a100-8", "a100", 1, "2.20", 0.10),
        ("h200-8", "h200", 1, "2.27.7", 0.10),
        ("h200-128", "h200-8ndr", 16, "2.27", 0.10),
        ("h200-128", "h200-8ndr", 16, "2.30", 0.10),
    ],
)
def test_busbw_from_1_gib_on_is_within_ten_percent_of_measured(name, machine, nodes, version, most):
    both = _data.load("measured/nccl_tests.yaml") | _data.load("measured/nccl_bandwidths.yaml")
    table = both[name]
    errors = []
    for size, time_us in table["rows"]:
        if size >= GIB:
            best = nccl.choose("all_reduce", size, machine, nodes, 8, version)
            measured = busbw("all_reduce", table["ranks"], size, time_us / 1e6)
            errors.append(abs(best.busbw / measured - 1))
    assert errors
    assert statistics.median(errors) <= most


# What differs from version to version.
def test_the_version_decides_for_b200_at_6_and_7_gpus():
    for ranks in (6, 7):
        assert pick("all_reduce", GIB, "b200", 1, ranks, "2.27") == "NVLS Simple"
        assert pick("all_reduce", GIB, "b200", 1, ranks, "2.28") == "Ring Simple"
        assert pick("all_reduce", GIB, "b200", 1, ranks, "2.30.7") == "Ring Simple"
    assert pick("all_reduce", GIB, "b200", 1, 8, "2.30") == "NVLS Simple"


def test_constants_follow_the_version():
    def cell(version, algorithm, protocol, machine="h100", nodes=1):
        return cells("all_reduce", GIB, machine, nodes, version=version)[algorithm, protocol]

    # Tree's base for Simple came, and its hops shrank, with 2.23.
    assert cell("2.22", "Tree", "Simple").latency_us == 2 * 7 * 28
    assert cell("2.23", "Tree", "Simple").latency_us == pytest.approx(8.4 + 2 * 7 * 4)
    # Hopper's LL: 360/4 capped at 87.7 up to 2.20, 360/2 capped at 141 from 2.21.
    assert cell("2.20.5", "Ring", "LL").bandwidth == pytest.approx(87.7 * 8 / 14)
    assert cell("2.21.5", "Ring", "LL").bandwidth == pytest.approx(141 * 8 / 14)
    # NVLS: 5/6 of 8 x 40 up to 2.27, then what the switch reaches, 2 x 0.85 x 7/8.
    assert cell("2.20", "NVLS", "Simple").latency_us == 23
    assert cell("2.27", "NVLS", "Simple").bandwidth == pytest.approx(320 * 5 / 6)
    assert cell("2.28", "NVLS", "Simple").bandwidth == pytest.approx(476 * 8 / 14)
    # A ring over two nodes: 4 hops between them up to 2.22, then 2; the rest waits 1 us each.
    small = {
        v: cells("all_reduce", 8, "h100-8ndr", 2, version=v)["Ring", "LL"] for v in ("2.22", "2.23")
    }
    assert small["2.22"].latency_us == pytest.approx(6.6 + 26 * 1 + 4 * 2.7)
    assert small["2.23"].latency_us == pytest.approx(6.6 + 28 * 1 + 2 * 2.7)
    # NVLSTree's hop over the network: 14 up to 2.28.3, then 20.9.
    for version, hop in (("2.27", 14), ("2.28.3", 14), ("2.28.9", 20.9), ("2.30", 20.9)):
        assert cell(version, "NVLSTree", "Simple", "h100-8ndr", 2).latency_us == 25 + 2 * hop


def test_a_ring_over_nodes_has_a_plateau_and_an_amd_cpu_posts_slower():
    simple = ("Ring", "Simple")
    below, above = 64 * 16 * 16 - 1, 64 * 16 * 16  # 64 B for each of 16 channels and 16 ranks
    small = cells("all_reduce", below, "h100-8ndr", 2)[simple].latency_us
    large = cells("all_reduce", above, "h100-8ndr", 2)[simple].latency_us
    assert large == pytest.approx(1.4 * small)
    amd = replace(nccl.machine("h100-8ndr"), cpu="amd")
    assert cells("all_reduce", 8, amd, 2)[simple].latency_us == pytest.approx(8.4 + 28 * 6 + 2 * 14)
    assert cells("all_reduce", MIB, amd, 2)["Ring", "LL"].bandwidth == pytest.approx(22.5 * 16 / 30)


def test_a_network_that_tells_its_latency_counts_twice_for_simple():
    slow = replace(nccl.machine("h100-8ndr"), net_latency=10.0)
    table, plain = cells("all_reduce", 8, slow, 2), cells("all_reduce", 8, "h100-8ndr", 2)
    for pair, more in ((("Tree", "LL"), 2 * 10), (("Tree", "Simple"), 2 * 20)):
        assert table[pair].latency_us - plain[pair].latency_us == pytest.approx(more)


def test_trees_are_corrected_at_medium_sizes_only():
    wide = [
        cells("all_reduce", size, "h100")["Tree", "LL"].bandwidth
        for size in (32, 64, 64 << 12, GIB)
    ]
    assert wide[0] == wide[1] == wide[3]
    assert wide[2] == pytest.approx(0.4 * wide[3])


def test_tree_loses_in_a_node_and_wins_over_64_for_small_messages():
    assert pick("all_reduce", 8, "h100-8ndr") == "Ring LL"
    assert pick("all_reduce", 8, "h100-8ndr", nodes=64) == "Tree LL"


def test_a_pcie_box_has_the_pcie_latencies_and_no_ll128():
    table = cells("all_reduce", 8, "rtx4090")
    assert table["Ring", "LL"].latency_us == pytest.approx(6.6 + 14 * 1.0)
    assert table["Tree", "Simple"].latency_us == pytest.approx(8.4 + 14 * 4.0)
    assert "LL128 is not safe" in table["Ring", "LL128"].off
    assert "Hopper or newer" in table["NVLS", "Simple"].off


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("machine", nccl.machines())
def test_every_machine_and_version_gives_the_least_of_its_table(machine, version):
    found = nccl.machine(machine)
    assert found.source
    for nodes in (1, 2, 4) if found.network else (1,):
        for collective in nccl.served:
            for size in (1, 4096, MIB, GIB):
                args = (collective, size, machine, nodes, 8, version)
                on = [c for c in nccl.times(*args) if not c.off]
                best = nccl.choose(*args)
                assert best.time_us == min(c.time_us for c in on)
                for cell in on:
                    assert cell.algorithm in nccl.served[collective]
                    assert cell.bandwidth > 0
                    assert cell.channels >= 1
                    expected = cell.latency_us + size / (1000 * cell.bandwidth)
                    assert cell.time_us == pytest.approx(expected)
                assert best.algbw == pytest.approx(size / best.time_us / 1000)


def test_roots_and_shards():
    # A broadcast's chunks follow each other: one hop of latency, and n/n of the bandwidth.
    table = cells("broadcast", GIB, "h100")
    assert table["Ring", "Simple"].latency_us == pytest.approx(8.4 + 3.4)
    assert table["Ring", "Simple"].bandwidth == pytest.approx(360)
    rough = replace(nccl.machine("h100"), same_channels=False)
    assert cells("reduce", 8, rough)["Ring", "Simple"].latency_us == pytest.approx(8.4 + 8 * 4.0)
    # Shards: half an all-reduce's steps; by NVLS (ppn-1)/ppn of the links from 2.27 on.
    gathered = cells("all_gather", GIB, "h100", version="2.27")
    assert gathered["Ring", "Simple"].bandwidth == pytest.approx(360 * 8 / 7)
    assert gathered["NVLS", "Simple"].bandwidth == pytest.approx(320 * 7 / 8)
    assert cells("all_gather", GIB, "h100", version="2.26")["NVLS", "Simple"].bandwidth == 320


def test_pat_is_for_one_rank_a_node_and_has_trees_network_latency():
    one = replace(nccl.machine("h100-8ndr"), network_ranks=(1,))
    table = cells("all_gather", 4096, one, nodes=16, ranks_per_node=1)
    assert table["PAT", "Simple"].latency_us == pytest.approx(8 + 4 * 14 / 3.5 + 16 * 2.8)
    assert table["Ring", "LL"].latency_us == pytest.approx(6.6 + 15 * 5.0)
    assert "2.23" in cells("all_gather", 8, one, 16, 1, "2.22")["PAT", "Simple"].off
    assert "one rank a node" in cells("all_gather", 8, "h100")["PAT", "Simple"].off


def test_served_says_which_algorithm_has_a_kernel():
    assert nccl.served["broadcast"] == nccl.served["reduce"] == ("Ring",)
    assert nccl.served["all_gather"] == ("Ring", "CollNetDirect", "NVLS", "PAT")
    assert nccl.served["all_gather"] == nccl.served["reduce_scatter"]
    assert nccl.served["all_reduce"] == (
        "Tree",
        "Ring",
        "CollNetDirect",
        "CollNetChain",
        "NVLS",
        "NVLSTree",
    )


@pytest.mark.parametrize(
    ("nodes", "pair", "why"),
    [
        (1, ("NVLSTree", "Simple"), "for several nodes"),
        (2, ("NVLS", "Simple"), "needs CollNet"),
        (1, ("NVLS", "LL"), "has Simple only"),
        (1, ("CollNetChain", "Simple"), "CollNet is off unless"),
        (1, ("PAT", "Simple"), "PAT has no kernel for AllReduce"),
    ],
)
def test_what_is_off_says_why(nodes, pair, why):
    cell = cells("all_reduce", MIB, "h100-8ndr", nodes)[pair]
    assert why in cell.off
    assert cell.time_us == 0


def test_ll128_needs_a_gpu_that_the_version_knows():
    old = cells("all_reduce", MIB, "b200", version="2.24")["Ring", "LL128"].off
    assert "LL128 is not safe" in old
    assert not cells("all_reduce", MIB, "b200", version="2.26")["Ring", "LL128"].off


# NCCL_ALGO and NCCL_PROTO.
@pytest.mark.parametrize("version", ["2.19", "2.22.3", "2.23"])
@pytest.mark.parametrize(
    ("text", "allowed", "ignored"),
    [
        ("Ring", ("Ring",), ()),
        ("tree,RING", ("Tree", "Ring"), ()),
        ("^NVLS,Tree", ("Ring", "CollNetDirect", "CollNetChain", "NVLSTree"), ()),
        ("Tree,Rnig", ("Tree",), ("Rnig",)),
        ("allreduce:tree;broadcast:ring", (), ("allreduce:tree;broadcast:ring",)),
        ("", (), ()),
        ("^", ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree"), ()),
    ],
)
def test_one_list_up_to_2_23(version, text, allowed, ignored):
    setting = nccl.parse_algo(text, version)
    pat = ("PAT",) if version == "2.23" and text.startswith("^") else ()
    assert setting["broadcast"] == setting["AllReduce"] == allowed + pat
    assert setting.ignored == ignored
    assert nccl.left_without(text, None, version) == ()


@pytest.mark.parametrize("version", ["2.24", "2.27.5", "2.30.7", "2.31", "2.32.3"])
@pytest.mark.parametrize(
    ("text", "all_reduce", "broadcast"),
    [
        ("ring", ("Ring",), ("Ring",)),
        ("Tree", ("Tree",), ("Tree",)),
        ("ring,tree;allreduce:tree", ("Tree",), ("Tree", "Ring")),
        (
            "ring,collnetdirect;allreduce:tree,collnetdirect;broadcast:ring",
            ("Tree", "CollNetDirect"),
            ("Ring",),
        ),
        ("ALLREDUCE:NVLS;Broadcast:Ring;", ("NVLS",), ("Ring",)),
        ("allreduce:tree;allreduce:ring", ("Ring",), None),
        (
            "allreduce:^tree",
            ("Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT"),
            None,
        ),
        ("^nvls,nvlstree;allreduce:nvls", ("NVLS",), None),
        ("", None, None),
        (";", None, None),
    ],
)
def test_lists_by_collective_from_2_24(version, text, all_reduce, broadcast):
    setting = nccl.parse_algo(text, version)
    everything = nccl.parse_algo("", version)["all_reduce"]
    assert len(everything) == 7
    assert setting["all_reduce"] == (everything if all_reduce is None else all_reduce)
    if broadcast is not None:
        assert setting["broadcast"] == broadcast
    elif not text.startswith("^"):
        assert setting["broadcast"] == everything
        assert "broadcast" not in setting.touched


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Rnig", r"an algorithm must be one of Tree, Ring, .* got 'Rnig'; try 'Ring'"),
        ("ring, tree", r"got ' tree'; try 'Tree'"),
        ("ring;tree", r"after the first, every list must have a collective .* 'allreduce:tree'"),
        (";ring", r"after the first, every list must have a collective"),
        ("allreduc:ring", r"a collective's name must be one of Broadcast, .* try 'AllReduce'"),
        ("all_reduce:ring", r"got 'all_reduce'; try 'AllReduce'"),
        ("alltoall:ring", r"a collective's name must be one of"),
        ("allreduce:", r"an algorithm must be one of .* got 'allreduce'"),
        ("LL", r"in NCCL_ALGO='LL' an algorithm must be one of"),
    ],
)
def test_from_2_24_on_a_wrong_text_is_an_error(text, message):
    for version in ("2.24", "2.30", "2.31"):
        with pytest.raises(nccl.NcclError, match=message):
            nccl.parse_algo(text, version)
    nccl.parse_algo(text, "2.23")  # passed over without a word


def test_protocols_are_read_alike():
    assert nccl.parse_proto("LL,Simple;allreduce:^LL", "2.27")["broadcast"] == ("LL", "Simple")
    assert nccl.parse_proto("LL,Simple;allreduce:^LL", "2.27")["all_reduce"] == ("LL128", "Simple")
    assert nccl.parse_proto("^ll128", "2.20")["reduce"] == ("LL", "Simple")
    with pytest.raises(nccl.NcclError, match="a protocol must be one of LL, LL128, Simple, got"):
        nccl.parse_proto("Ring", "2.27")


@pytest.mark.parametrize(
    ("algo", "proto", "version", "nodes", "left"),
    [
        ("Tree", None, "2.23", 1, ()),
        ("Tree", None, "2.24", 1, ONLY_RING),
        ("Tree", None, "2.30.7", 8, ONLY_RING),
        ("Tree", None, "2.31", 1, ONLY_RING),
        ("Ring", None, "2.27", 1, ()),
        ("ring,tree;allreduce:tree", None, "2.27", 1, ()),
        ("ring,tree;allreduce:tree", None, "2.31", 1, ()),
        ("allreduce:tree", None, "2.27", 1, ()),
        ("allreduce:tree", None, "2.31", 1, ()),
        ("allreduce:tree", "Simple", "2.30", 1, ()),
        ("allreduce:tree", "Simple", "2.31", 1, ONLY_RING),
        ("allreduce:tree", "allreduce:Simple", "2.31", 1, ()),
        ("allreduce:tree", "broadcast:LL", "2.31", 1, ("broadcast",)),
        ("ring,tree;allreduce:tree", "Simple", "2.31", 1, ()),
        ("^ring", None, "2.27", 1, ("broadcast", "reduce")),
        ("^ring", None, "2.23", 1, ()),
        ("NVLS", None, "2.27", 1, ("broadcast", "reduce")),
        ("NVLS", None, "2.27", 2, (*ONLY_RING, "all_reduce")),
        ("NVLS", None, "2.22", 2, ()),
        ("NVLSTree", None, "2.27", 1, (*ONLY_RING, "all_reduce")),
        ("NVLSTree", None, "2.27", 2, ONLY_RING),
        ("NVLS", "LL", "2.27", 1, (*ONLY_RING, "all_reduce")),
        ("CollNetDirect", None, "2.27", 4, (*ONLY_RING, "all_reduce")),
        ("CollNetDirect", None, "2.21", 4, ()),
        ("PAT", None, "2.27", 4, (*ONLY_RING, "all_reduce")),
        (None, "LL128", "2.27", 1, ()),
        (None, None, "2.27", 4, ()),
        ("", "", "2.27", 4, ()),
        ("Tree", "nonsense", "2.22", 1, ("broadcast", "reduce", "all_gather", "reduce_scatter",
                                         "all_reduce")),
        ("Tree", "nonsense", "2.21", 1, ()),
    ],
)  # fmt: skip
def test_left_without(algo, proto, version, nodes, left):
    assert sorted(nccl.left_without(algo, proto, version, nodes)) == sorted(left)


def test_left_without_by_hardware():
    assert nccl.left_without("NVLS,Tree", version="2.27", nvls=False) == ONLY_RING
    assert "all_reduce" in nccl.left_without("NVLS", version="2.27", nvls=False)
    one = nccl.left_without("PAT", version="2.27", nodes=4, ranks_per_node=1)
    assert one == ("broadcast", "reduce", "all_reduce")
    # From 2.31 on PAT goes between nodes, and NVLS inside.
    assert nccl.left_without("PAT", version="2.31", nodes=4) == one


def test_settings_change_the_choice():
    assert pick("all_reduce", GIB, "h100", algo="^NVLS") == "Ring Simple"
    assert pick("all_reduce", GIB, "h100", algo="ring", proto="LL") == "Ring LL"
    assert pick("all_reduce", GIB, "h100", algo="allreduce:tree;allgather:ring") == "Tree Simple"
    assert pick("broadcast", GIB, "h100", version="2.22", algo="Tree") == "Ring Simple"
    table = cells("all_reduce", GIB, "h100", algo="ring")
    assert table["Tree", "LL"].off == "NCCL_ALGO=ring leaves it out"
    # Excluding LL switches LL128 on, also where NCCL would not use it.
    assert not cells("all_reduce", MIB, "rtx4090", proto="^LL")["Ring", "LL128"].off
    with pytest.raises(nccl.NcclError, match=r"left for Broadcast, got none with NCCL_ALGO=Tree"):
        nccl.choose("broadcast", 1024, "h100", version="2.24", algo="Tree")


# Refusals, and versions.
@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("2.31", r"known from 2.19 to 2.30, got '2.31': there the model moved to src/tuning/"),
        ("2.32.3", r"moved to src/tuning/ .* try version='2.30'"),
        ("2.18.1", r"older ones were not read; try version='2.19'"),
        ("3.0", r"known from 2.19 to 2.30"),
        ("1.3", r"older ones were not read"),
        ("newest", r"an NCCL version looks like '2.27' or '2.27.5', got 'newest'"),
    ],
)
def test_unknown_versions_are_refused(version, message):
    with pytest.raises(nccl.NcclError, match=message):
        nccl.choose("all_reduce", 1024, "h100", version=version)
    with pytest.raises(nccl.NcclError, match=message):
        nccl.source(version)


def test_source_tells_what_was_read_and_what_was_only_taken():
    for version in VERSIONS:
        assert nccl.source(version).startswith("https://github.com/")
    assert "not read" in nccl.source("2.19")
    assert "not read" in nccl.source("2.29")
    assert nccl.source("v2.30.7-1").endswith("v2.30.7-1/src/graph/tuning.cc")
    assert "2.28.3" in nccl.source("2.28.3+cuda13.0")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("all_to_all", 8, "h100"), r"prices broadcast, .* got 'all_to_all': NCCL makes that one"),
        (("all_reduce", 0, "h100"), r"size_bytes must be a whole number from 1 up, got 0"),
        (("all_reduce", 8, "gb200"), r"machine must be one of a100, .* got 'gb200'"),
        (("all_reduce", 8, "h100", 2), r"got 2 nodes of 'h100'; try 'h100-8ndr'"),
        (("all_reduce", 8, "b200", 4), r"on several nodes NCCL's search must be known"),
        (("all_reduce", 8, "a100", 1, 4), r"ranks_per_node of 'a100' must be 8, .* got 4"),
        (("all_reduce", 8, "h100-8ndr", 2, 4), r"must be 8, .* try ranks_per_node=8"),
        (("all_reduce", 8, "h100", 0), r"nodes must be a whole number from 1 up, got 0"),
    ],
)
def test_what_the_model_does_not_know_is_refused(args, message):
    with pytest.raises(nccl.NcclError, match=message):
        nccl.choose(*args)
    assert issubclass(nccl.NcclError, CostError)


@pytest.mark.parametrize(
    ("line", "graph"),
    [
        (
            "node:1:2 [0] NCCL INFO Pattern 5, crossNic 0, nChannels 8, bw 40.000000/60.000000, "
            "type NVL/PIX, sameChannels 0",
            nccl.Graph(8, 40.0, 60.0),
        ),
        (
            "Pattern 4, crossNic 0, nChannels 4, speed 1.200000/1.200000, type SYS/SYS",
            nccl.Graph(4, 1.2, 1.2),
        ),
    ],
)
def test_a_graph_is_read_from_the_log(line, graph):
    assert nccl.Graph.read(line) == graph


def test_a_line_without_a_graph_is_refused():
    with pytest.raises(nccl.NcclError, match=r"holds 'nChannels 8, bw 40.0/60.0', got 'Channel 00"):
        nccl.Graph.read("Channel 00/24 : 0 1 2 3")


def test_a_machine_of_ones_own():
    graph = nccl.Graph(channels=2, intra=10.0, inter=10.0)
    mine = nccl.Machine(
        "mine", "two cards", 86, "pcie", nccl.Paths(graph, graph, {}, 4), ranks=(2,)
    )
    best = nccl.choose("all_reduce", GIB, mine, ranks_per_node=2)
    assert (best.algorithm, best.protocol, best.busbw) == (
        "Ring",
        "Simple",
        pytest.approx(20, 0.01),
    )
    alone = replace(mine, ranks=(1,))
    with pytest.raises(nccl.NcclError, match="2 ranks or more, got 1"):
        nccl.choose("all_reduce", 8, alone, ranks_per_node=1)


@pytest.mark.parametrize(
    ("torch", "version"),
    [("2.0", "2.14.3"), ("2.4.1", "2.20.5"), ("2.8.0+cu129", "2.27.3"), ("2.10", "2.27.5"),
     ("2.11", "2.28.9"), ("2.13", "2.29.7"), ("2.14", "2.30.7")],
)  # fmt: skip
def test_of_torch(torch, version):
    assert nccl.of_torch(torch) == version


def test_of_torch_refuses_what_is_not_in_the_table():
    with pytest.raises(nccl.NcclError, match=r"must be one of 2.0, .* got '2.15'; ask"):
        nccl.of_torch("2.15")


def test_a_choice_prints_as_nccl_logs_it():
    best = nccl.choose("all_reduce", 2 * MIB, "h100", version="2.30.7")
    assert str(best) == (
        "AllReduce: 2097152 Bytes on 8 ranks, NCCL 2.30.7 -> NVLS Simple, 16 channels, "
        "32.7 us, busbw 112.2 GB/s"
    )
