"""Topology tables as people paste them, the graphs they describe, rings, and the command."""

from __future__ import annotations

import itertools
import json
import random
import re
import time

import pytest

import coursekit
from coursekit import topology
from coursekit.__main__ import main
from coursekit.topology import Speeds, TopologyError, parse
from coursekit.topology.machine import graph_of
from coursekit.topology.table import PATHS

NAMES = topology.names()
TEXT = {name: topology.card(name)["table"] for name in NAMES}

SMALL = """\
        GPU0    GPU1    GPU2    GPU3    NIC0    NIC1    CPU Affinity    NUMA Affinity   GPU NUMA ID
GPU0     X      NV2     NV1     SYS     PIX     SYS     0-15            0               N/A
GPU1    NV2      X      SYS     NV1     PHB     SYS     0-15            0               N/A
GPU2    NV1     SYS      X      NV2     SYS     NODE    16-31           1               N/A
GPU3    SYS     NV1     NV2      X      SYS     PXB     16-31           1               N/A
NIC0    PIX     PHB     SYS     SYS      X      SYS
NIC1    SYS     SYS     NODE    PXB     SYS      X

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_3
"""
LINKS = {
    ("GPU0", "GPU1"): "NV2", ("GPU0", "GPU2"): "NV1", ("GPU0", "GPU3"): "SYS",
    ("GPU1", "GPU2"): "SYS", ("GPU1", "GPU3"): "NV1", ("GPU2", "GPU3"): "NV2",
}  # fmt: skip


def test_everything_in_a_table_is_read() -> None:
    told = parse(SMALL)
    assert told.pairs == LINKS
    assert told.nics == ("NIC0", "NIC1")
    assert told.names == {"NIC0": "mlx5_0", "NIC1": "mlx5_3"}
    assert [told.nearest_nics(g) for g in told.gpus] == [
        ("PIX", ["NIC0"]), ("PHB", ["NIC0"]), ("NODE", ["NIC1"]), ("PXB", ["NIC1"]),
    ]  # fmt: skip
    assert told.numa == dict(zip(told.gpus, "0011", strict=True))
    assert told.cpus["GPU2"] == "16-31"
    assert not told.gpu_numa
    assert not told.notes
    assert [told.nvlinks(g) for g in told.gpus] == [3, 3, 3, 3]
    assert told.without_nvlink == [("GPU0", "GPU3"), ("GPU1", "GPU2")]


def squeeze(text: str) -> str:
    """Tabs that became single spaces on the way through a chat."""
    return re.sub(r"[ \t]+", " ", text)


def tabs(text: str) -> str:
    return re.sub(r" {2,}", "\t", text)


def glue(text: str) -> str:
    """Cells that a narrow terminal set side by side."""
    return re.sub(r"(SYS|NODE|PHB) +(SYS|NODE|PHB|PXB)", r"\1\2", text)


FORMS = {
    "spaces": squeeze,
    "tabs": tabs,
    "colours": lambda t: t.replace("        GPU0", "\x1b[4m        GPU0", 1).replace(
        "ID\n", "ID\x1b[0m\n", 1
    ),
    "glued cells": glue,
    "glued columns": lambda t: t.replace("NIC0    NIC1    CPU", "NIC0NIC1CPU"),
    "old drivers": lambda t: t.replace("SYS", "SOC"),
    "old cards": lambda t: t.replace("NIC0", "mlx5_0").replace("NIC1", "mlx5_3"),
    "quoted": lambda t: "> some words\n" + t + "and more words\n",
    "windows": lambda t: t.replace("\n", "\r\n"),
    "no affinity": lambda t: re.sub(r" +CPU Affinity.*| +(0-15|16-31) .*", "", t),
    "a prompt": lambda t: "$ nvidia-smi topo -m\n" + t,
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_pairs(form: str) -> None:
    told = parse(FORMS[form](SMALL))
    links = {p: k.replace("SOC", "SYS") for p, k in told.pairs.items()}
    assert links == LINKS
    assert len(told.nics) == 2
    assert told.nearest_nics("GPU3") == ("PXB", [told.nics[1]])
    kinds = {note.kind for note in told.notes}
    wanted = {"colours": {"ansi"}, "glued cells": {"glued"}, "glued columns": {"glued"}}
    assert kinds == wanted.get(form, set())


def test_a_blank_affinity_column_does_not_shift_the_next() -> None:
    told = parse(re.sub(r"0-15 |16-31", "     ", SMALL))
    assert not told.cpus
    assert told.numa["GPU2"] == "1"
    assert "topo.container_no_affinity" in [f.id for f in topology.findings(told)]


def test_lists_of_numa_nodes_stay_whole() -> None:
    told = topology.table("gb200")
    assert told.numa["GPU3"] == "1,18-33"
    assert told.gpu_numa == dict(zip(told.gpus, ("2", "10", "18", "26"), strict=True))


def test_a_cut_row_gives_what_it_has_and_says_so() -> None:
    lines = SMALL.splitlines()
    lines[4] = "GPU3    SYS     NV1 "
    told = parse("\n".join(lines[:5]))
    assert told.pairs == LINKS
    assert told.link("GPU3", "NIC1") == ""
    assert any(n.kind == "cut" and "GPU3 has 2 of 6" in n.text for n in told.notes)
    assert "topo.truncated" in [f.id for f in topology.findings(told)]
    # Where the text ends behind NV1, it may have been NV12.
    assert any("GPU3 has 1 of 6" in n.text for n in parse("\n".join(lines[:5]).rstrip()).notes)


def test_missing_rows_are_put_in_by_pattern_only_where_all_others_are_alike() -> None:
    rows = TEXT["hgx-h100"].splitlines()
    told = parse("\n".join(rows[:4]))
    assert len(told.pairs) == 28
    read = [p for p in told.pairs if p in told.links]
    assert len(read) == 3 * 7 - 3
    assert set(told.assumed.values()) == {"NV18"}
    assert any(n.kind == "assumed" and "10 pairs" in n.text for n in told.notes)
    mixed = parse("\n".join(TEXT["dgx1v"].splitlines()[:4]))
    assert not mixed.assumed
    assert len(mixed.unknown) == 28 - (3 * 7 - 3)


def test_rows_that_contradict_each_other_are_left_out() -> None:
    told = parse(SMALL.replace("GPU1    NV2 ", "GPU1    SYS "))
    assert ("GPU0", "GPU1") not in told.pairs
    assert told.unknown == [("GPU0", "GPU1")]
    assert [n.kind for n in told.notes] == ["contradiction"]


def test_a_shifted_row_is_left_out() -> None:
    told = parse(SMALL.replace("GPU2    NV1     SYS ", "GPU2    NV1 "))
    assert any(n.kind == "row" and "GPU2" in n.text for n in told.notes)
    # What the other rows say of GPU2 stays.
    assert told.pairs == LINKS


def test_rows_without_a_header_say_their_own_columns() -> None:
    rows = "\n".join(line[:40] for line in SMALL.splitlines()[1:5])
    told = parse(rows)
    assert told.pairs == LINKS
    assert any(n.kind == "header" for n in told.notes)


def test_p2p_states_stand_beside_the_links() -> None:
    state = " \tGPU0\tGPU1\n GPU0\tX\tNS\n GPU1\tNS\tX\n"
    told = parse("\tGPU0\tGPU1\nGPU0\t X \tPHB\nGPU1\tPHB\t X \n$ nvidia-smi topo -p2p r\n" + state)
    assert told.pairs == {("GPU0", "GPU1"): "PHB"}
    assert told.p2p == {("GPU0", "GPU1"): "NS", ("GPU1", "GPU0"): "NS"}
    assert topology.findings(told)[0].id == "p2p.not_supported"
    alone = parse(state)
    assert not alone.pairs
    assert alone.p2p[("GPU0", "GPU1")] == "NS"


def test_amd_weights_tell_what_hops_do_not() -> None:
    text = TEXT["mi300x"]
    assert parse(text).classes == {"XGMI/w15": 28}
    far = text.replace("GPU0   0           15          15", "GPU0   0           15          30", 1)
    far = far.replace("GPU2   15          15          0", "GPU2   30          15          0", 1)
    told = parse(far)
    assert told.indirect == [("GPU0", "GPU2")]
    assert told.hops[("GPU0", "GPU2")] == 1
    assert topology.findings(told)[0].id == "topo.xgmi_multihop"
    one_way = parse(text.replace("GPU0   0           15", "GPU0   0           30", 1))
    assert ("GPU0", "GPU1") not in one_way.pairs


@pytest.mark.parametrize(
    "text", ["", "GPU", "hello\nworld", "\tGPU0\tGPU1\n", "GPU0 GPU1 GPU0\nGPU0 X"]
)
def test_no_table_is_one_clear_error(text: str) -> None:
    with pytest.raises(TopologyError, match="must have rows such as"):
        parse(text)


def test_a_flood_is_refused() -> None:
    with pytest.raises(TopologyError, match="at most 1000000 characters, got 1000001"):
        parse("x" * 1_000_001)


FOUND = {
    "dgx1v": ["topo.partial_nvlink", "topo.nic_shared_pairs"],
    "dgx-a100": ["topo.full_nvlink", "topo.nic_shared_pairs", "topo.numa_not_monotonic"],
    "hgx-h100": ["topo.full_nvlink"],
    "hgx-h200": ["topo.full_nvlink"],
    "hgx-b200": ["topo.full_nvlink"],
    "gb200": ["topo.full_nvlink", "topo.mnnvl_node", "topo.grace_numa"],
    "a100-pcie": ["topo.nvlink_islands", "topo.nic_missing_local", "topo.nic_shared_pairs"],
    "rtx4090": ["topo.pcie_only", "topo.nic_missing_local", "topo.nic_shared_pairs"],
    "l40s": ["topo.pcie_only", "topo.nic_missing_local"],
    "mi300x": ["topo.xgmi_full"],
}


@pytest.mark.parametrize("name", NAMES)
def test_known_machines_show_what_they_are(name: str) -> None:
    told = topology.table(name)
    assert not told.notes
    assert [f.id for f in topology.findings(told)] == FOUND[name]
    assert any(w in topology.card(name)["source"] for w in ("http", "NVIDIA", "AMD"))


def edited(name: str, *changes: tuple[str, str]) -> topology.Table:
    text = TEXT[name]
    for pattern, by in changes:
        text, count = re.subn(pattern, by, text)
        assert count, pattern
    return parse(text)


def test_a_gpu_off_the_fabric_is_named() -> None:
    table = topology.table("hgx-h100")
    lines = TEXT["hgx-h100"].splitlines()
    cells = [line.split() for line in lines[1:9]]
    for row in range(8):
        for column in range(8):
            if row != column and 2 in (row, column):
                cells[row][1 + column] = "SYS" if abs(row - column) > 3 else "NODE"
    told = parse("\n".join([lines[0], *("\t".join(c) for c in cells)]))
    assert topology.findings(told)[0] == topology.Finding("topo.gpu_off_fabric", ("GPU2",))
    assert len(table.gpus) == len(told.gpus)


def test_cards_in_another_order_are_named() -> None:
    head, *rows = TEXT["hgx-h100"].splitlines()
    swap = {f"NIC{k}": f"NIC{7 - k}" for k in range(8)}
    turned = re.sub(r"NIC\d", lambda m: swap[m[0]], head)
    found = [f.id for f in topology.findings(parse("\n".join([turned, *rows])))]
    assert "topo.nic_order_reversed" not in found
    mirrored = [line.split() for line in rows[:8]]
    for row in mirrored:
        row[9:17] = reversed(row[9:17])
    back = parse("\n".join([head, *("\t".join(r) for r in mirrored)]))
    assert "topo.nic_order_reversed" in [f.id for f in topology.findings(back)]
    for row in mirrored:
        row[9:17] = [row[9 + k] for k in (1, 0, 3, 2, 5, 4, 7, 6)]
    mixed = parse("\n".join([head, *("\t".join(r) for r in mirrored)]))
    assert "topo.nic_order_interleaved" in [f.id for f in topology.findings(mixed)]


def test_a_view_that_hides_nvlink_is_told_from_the_name_of_the_gpu() -> None:
    hidden = edited("hgx-h100", (r"NV18", "SYS "))
    assert topology.findings(hidden)[0].id == "topo.pcie_only"
    assert topology.findings(hidden, "NVIDIA H20")[0].id == "topo.mp_view_hides_nvlink"


def test_an_odd_gpu_and_uneven_processors_are_named() -> None:
    told = parse(
        "\tGPU0\tGPU1\tGPU2\tCPU Affinity\tNUMA Affinity\n"
        "GPU0\t X \tSYS\tSYS\t0-7\t1\nGPU1\tSYS\t X \tPHB\t8-15\t0\nGPU2\tSYS\tPHB\t X \t8-15\t0\n"
    )
    found = {f.id: f for f in topology.findings(told)}
    assert found["topo.odd_gpu_out"].devices == ("GPU0",)
    assert found["topo.numa_uneven"].devices == ("NUMA 1: 1", "NUMA 0: 2")


def test_every_finding_has_words_in_both_languages() -> None:
    seen = {f for name in NAMES for f in topology.findings(topology.table(name))}
    for lang in ("en", "zh"):
        coursekit.language(lang)
        try:
            assert all("{" not in str(f) and len(str(f)) > 8 for f in seen)
        finally:
            coursekit.language("en")


# Mutations: cut, glued, shuffled, garbage. Whatever is read must stand in the text.
ROW = re.compile(r"(?m)^\s*(GPU\d+)\s*(.*)$")


CONFTEST = __file__.replace("test_topology", "conftest")


def mutate(rng: random.Random, text: str) -> str:
    for _ in range(rng.randint(1, 4)):
        lines = text.splitlines() or [""]
        kind = rng.randrange(9)
        k = rng.randrange(len(lines))
        if kind == 0:
            text = text[: rng.randrange(len(text) + 1)]
        elif kind == 1:
            lines[k] = lines[k][: rng.randrange(len(lines[k]) + 1)]
        elif kind == 2:
            del lines[k]
        elif kind == 3:
            rng.shuffle(lines)
        elif kind == 4:
            words = lines[k].split()
            if words:
                del words[rng.randrange(len(words))]
            lines[k] = "\t".join(words)
        elif kind == 5:
            words = lines[k].split()
            rng.shuffle(words)
            lines[k] = " ".join(words)
        elif kind == 6:
            at = rng.randrange(len(lines[k]) + 1)
            lines[k] = lines[k][:at] + rng.choice("XNGPSYS019 \t\x1b\0|#") + lines[k][at:]
        elif kind == 7:
            lines[k] = re.sub(r"\s+", "", lines[k], count=rng.randint(1, 3))
        else:
            lines.insert(k, lines[rng.randrange(len(lines))])
        if kind:
            text = "\n".join(lines)
    return text


def said(text: str) -> dict[tuple[str, str], set[str]]:
    """An own, generous reading: all words of a GPU's rows that name a class, by that GPU."""
    words: dict[str, set[str]] = {}
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    for label, rest in ROW.findall(plain):
        found = re.findall(r"NV\d+|PIX|PXB|PHB|NODE|SYS|SOC|XGMI|PCIE", rest)
        # Glued digits may belong to what stands behind: NV180-15 is NV18 and 0-15.
        parts = {m[:n] for m in found if m.startswith("NV") for n in range(3, len(m) + 1)}
        words.setdefault(label, set()).update(found, parts)
    return {(a, b): words.get(a, set()) | words.get(b, set()) for a in words for b in words}


def test_ten_thousand_mutated_tables_never_contradict_their_text() -> None:
    rng = random.Random(20)
    sources = [*TEXT.values(), SMALL]
    read = 0
    longest = 0.0
    for _ in range(10_000):
        text = mutate(rng, rng.choice(sources))
        begin = time.perf_counter()
        try:
            told = parse(text)
        except TopologyError:
            continue
        finally:
            longest = max(longest, time.perf_counter() - begin)
        topology.findings(told)
        allowed = said(text)
        for (a, b), kind in told.links.items():
            if a.startswith("GPU") and b.startswith("GPU"):
                name = kind.partition("/")[0]
                assert name in allowed.get(
                    (a, b), allowed.get((a, a), set()) | allowed.get((b, b), set())
                ), (a, b, kind, text)
                assert told.links[b, a] == kind
                read += 1
        assert all(
            kind in PATHS or kind.startswith(("NV", "XGMI", "PCIE")) for kind in told.links.values()
        )
    assert read > 100_000
    # A hang, not a slow machine.
    assert longest < 20


def test_an_unchanged_row_of_a_mutated_table_keeps_its_cells() -> None:
    """Cutting rows or columns from the end never moves what is left."""
    full = topology.table("dgx1v").links
    lines = TEXT["dgx1v"].splitlines()
    for keep, columns in itertools.product(range(2, 9), range(20, 140, 7)):
        text = "\n".join(line[:columns] for line in lines[: keep + 1])
        try:
            told = parse(text)
        except TopologyError:
            continue
        # A class cut in its middle (NV of NV2, NOD of NODE) is no cell.
        assert told.links.items() <= full.items()


def test_switches_and_direct_links_are_told_apart() -> None:
    a100 = topology.machine("dgx-a100")
    assert [a100.kind(u) for u, _ in a100.route("GPU0", "GPU7")] == ["gpu", "nvswitch"]
    assert a100.bandwidth("GPU0", "GPU7") == 12 * 20e9
    volta = topology.machine("dgx1v")
    assert volta.route("GPU0", "GPU3") == (("GPU0", "GPU3"),)
    assert volta.bandwidth("GPU0", "GPU3") == 2 * 20e9
    # Not joined by NVLink: no GPU passes it on, so it goes over PCIe and both processors.
    kinds = [volta.kind(v) for _, v in volta.route("GPU0", "GPU7")]
    assert set(kinds[:-1]) == {"pcie", "cpu"}
    assert volta.bandwidth("GPU0", "GPU7") == 9e9


def test_a_pcie_tree_is_rebuilt_from_the_classes() -> None:
    box = topology.machine("rtx4090")
    assert len(box.route("GPU0", "GPU3")) == 2
    assert box.bandwidth("GPU0", "GPU3") == 24e9
    assert [box.kind(v) for _, v in box.route("GPU0", "GPU4")] == [
        "pcie",
        "cpu",
        "cpu",
        "pcie",
        "gpu",
    ]
    assert box.bandwidth("GPU0", "GPU4") == 20e9


def test_a_slow_link_and_a_missing_one_change_the_way() -> None:
    box = topology.machine("dgx1v")
    slow = box.slowed("GPU0", "GPU3", 10)
    assert slow.bandwidth("GPU0", "GPU3") == 12e9
    assert box.bandwidth("GPU0", "GPU3") == 40e9
    gone = box.without(("GPU0", "GPU3"))
    assert gone.bandwidth("GPU0", "GPU3") == 12e9
    with pytest.raises(TopologyError, match="no link to take away"):
        box.without(("GPU0", "GPU7"))
    with pytest.raises(TopologyError, match="times must be 1 or more"):
        box.slowed("GPU0", "GPU3", 0)


def test_rings_through_the_cube_mesh() -> None:
    """30 rings of 2,520 use NVLink only; 1,800 avoid one pair."""
    table = topology.table("dgx1v")
    joined = lambda a, b: table.link(f"GPU{a}", f"GPU{b}").startswith("NV")  # noqa: E731
    assert topology.count_rings(8, joined) == 30
    assert topology.count_rings(8, lambda a, b: True) == 2520
    assert topology.count_rings(8, lambda a, b: {a, b} != {0, 7}) == 1800
    best = topology.best_ring(topology.machine("dgx1v"))
    assert all(joined(a, b) for a, b in best.pairs)
    natural = topology.order(topology.machine("dgx1v"), range(8))
    assert natural.bottleneck < best.bottleneck
    assert natural.slowest == ((3, 4), (7, 0))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("closed", [True, False])
def test_the_best_order_is_that_of_trying_all(seed: int, closed: bool) -> None:
    rng = random.Random(seed)
    n = 6
    names = [f"GPU{k}" for k in range(n)]
    edges = [
        (a, b, "NVLink", 1, rng.choice([1e9, 2e9, 5e9, 9e9]))
        for a, b in itertools.combinations(names, 2)
        if rng.random() < 0.85
    ]
    made = topology.Topology(
        "random", graph_of([(g, "gpu", "") for g in names], edges), tuple(names)
    )
    best = 0.0
    for ranks in itertools.permutations(range(n)):
        if closed and ranks[0]:
            break
        try:
            best = max(best, topology.order(made, ranks, closed=closed).bottleneck)
        except TopologyError:
            continue
    if not best:
        pytest.skip("nothing joins them")
    try:
        found = topology.best_ring(made) if closed else topology.best_chain(made)
    except TopologyError:
        # A pair that nothing joins: GPUs do not pass on.
        assert any(not made.graph.has_edge(a, b) for a, b in itertools.combinations(names, 2))
        return
    assert found.bottleneck == best


def test_rings_are_counted_as_by_trying_all() -> None:
    rng = random.Random(3)
    for _ in range(20):
        allowed = {p for p in itertools.combinations(range(6), 2) if rng.random() < 0.7}
        joined = lambda a, b, allowed=allowed: (min(a, b), max(a, b)) in allowed  # noqa: E731
        want = sum(
            all(joined(a, b) for a, b in zip((0, *rest), (*rest, 0), strict=True))
            for rest in itertools.permutations(range(1, 6))
        )
        assert topology.count_rings(6, joined) == want // 2


def test_a_spanning_tree_takes_the_fastest_pairs() -> None:
    tree = topology.spanning_tree(topology.machine("a100-pcie"), root=5)
    assert len(tree) == 7
    assert tree[0] == (5, 4)
    fast = [p for p in tree if topology.machine("a100-pcie").between(*p) > 200e9]
    assert len(fast) == 4
    with pytest.raises(TopologyError, match="root must be a rank from 0 to 7, got 8"):
        topology.spanning_tree(topology.machine("a100-pcie"), root=8)


@pytest.mark.parametrize("fabric", ["rail", "fat-tree"])
@pytest.mark.parametrize("nodes", [1, 2, 64])
def test_clusters_of_any_size(fabric: str, nodes: int) -> None:
    made = topology.cluster("hgx-h100", nodes, fabric)
    assert made.size == 8 * nodes
    assert len(made.hosts) == nodes
    assert made.between(0, 1) == pytest.approx(18 * 20.6e9)
    if nodes > 1:
        way = made.route(made.ranks[0], made.ranks[8])
        leaves = [v for _, v in way if made.kind(v) == "leaf"]
        assert leaves == ["leaf0.0"] if fabric == "rail" else len(leaves) == 1
        assert made.between(0, 8) == 48e9


def test_a_thin_fabric_is_slow_between_leaves_only() -> None:
    thin = topology.cluster("hgx-h100", 8, "fat-tree", oversubscription=64, leaf=32)
    assert thin.between(0, 8) == 48e9
    assert thin.between(0, 8 * 7) == pytest.approx(32 * 48e9 / 64)
    for wrong in (
        {"nodes": 0},
        {"nodes": 2, "oversubscription": 0},
        {"nodes": 2, "fabric": "ring"},
    ):
        with pytest.raises(TopologyError):
            topology.cluster("hgx-h100", **wrong)
    with pytest.raises(TopologyError, match="has no network card"):
        topology.cluster("mi300x", 2)


def test_a_rack_is_one_domain() -> None:
    rack = topology.machine("nvl72")
    assert rack.size == 72
    assert rack.between(0, 71) == rack.between(0, 1) == pytest.approx(18 * 40.1e9)


def test_speeds_are_arguments() -> None:
    made = topology.build(parse(SMALL), Speeds(nvlink=5e9, smp=2e9, pcie=3e9, host=4e9))
    assert made.bandwidth("GPU0", "GPU1") == 10e9
    assert made.bandwidth("GPU0", "GPU3") == 2e9
    with pytest.raises(TopologyError, match="a GPU must be one of GPU0"):
        made.route("GPU0", "GPU9")


def coursekit_text(key: str, lang: str) -> str:
    coursekit.language(lang)
    try:
        return coursekit.i18n.text(key)
    finally:
        coursekit.language("en")


@pytest.fixture(autouse=True)
def english():
    yield
    coursekit.language("en")


def test_the_command_tells_findings_and_the_best_ring(tmp_path, capsys) -> None:
    file = tmp_path / "topo.txt"
    file.write_text(TEXT["a100-pcie"])
    assert main(["topo", str(file)]) == 1
    out = capsys.readouterr().out
    assert "NVLink joins only parts: GPU0+GPU1, GPU2+GPU3" in out
    assert "best ring: GPU0 GPU1 GPU2 GPU3" in out
    file.write_text(TEXT["hgx-h100"])
    assert main(["topo", str(file), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["pairs"]["GPU0-GPU7"] == "NV18"
    assert main(["topo", str(file), "--lang", "zh"]) == 0
    assert coursekit_text("topology.full_nvlink", "zh") in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["/nowhere"], "a table must be a file that can be read, got /nowhere"),
        ([CONFTEST], "must have rows such as"),
        ([CONFTEST, "--lang", "fr"], "lang must be one of en, zh"),
    ],
)
def test_a_mistake_at_the_command_is_one_line(arguments, told, capsys) -> None:
    assert main(["topo", *arguments]) == 2
    err = capsys.readouterr().err
    assert told in err
    assert len(err.splitlines()) == 1


def test_without_tools_the_command_says_what_to_give(monkeypatch, capsys) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert main(["topo"]) == 2
    assert "neither nvidia-smi nor rocm-smi" in capsys.readouterr().err


def test_cards_that_nothing_places_make_no_processor_up() -> None:
    tray = topology.machine("gb200")
    assert sum(tray.kind(name) == "cpu" for name in tray.graph) == 2
    assert any("NIC0" in note for note in tray.notes)
    # Without any column each part is on its own.
    bare = topology.build(parse("\tGPU0\tGPU1\nGPU0\t X \tSYS\nGPU1\tSYS\t X \n"))
    assert sum(bare.kind(name) == "cpu" for name in bare.graph) == 2
