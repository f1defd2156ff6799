"""Pictures of machines show their links, loads, rings and NCCL's choices as they were computed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

import coursekit
from coursekit import cost, schedule, show, topology
from coursekit.cost import nccl

MIB = 1 << 20


@pytest.fixture(autouse=True)
def english() -> Iterator[None]:
    yield
    coursekit.language("en")


def lines(figure: Any) -> dict[str, Any]:
    return {t.name: t for t in figure.data if t.mode == "lines"}


def pieces(trace: Any) -> int:
    """How many lines a trace has: gaps end them."""
    return sum(x is None for x in trace.x)


def test_every_link_is_drawn_once_and_thicker_where_it_is_faster() -> None:
    for name in topology.names():
        machine = topology.machine(name)
        drawn = lines(show.topology(machine))
        assert sum(map(pieces, drawn.values())) == machine.graph.number_of_edges(), name
    drawn = lines(show.topology("dgx1v"))
    double, single = drawn["2 × NVLink, 40 GB/s"], drawn["NVLink, 20 GB/s"]
    assert (pieces(double), pieces(single)) == (8, 8)
    assert double.line.width > single.line.width > drawn["between processors, 9 GB/s"].line.width


def test_switches_are_bars_and_cards_can_be_left_out() -> None:
    figure = show.topology("hgx-h100")
    assert [note.text for note in figure.layout.annotations] == ["NVSwitch"]
    bare = show.topology("gb200", cards=False)
    assert sum(map(pieces, lines(bare).values())) == 4 + 4 + 1
    names = {t for trace in figure.data if trace.hovertext is not None for t in trace.hovertext}
    assert {"GPU5: GPU", "NIC7: network card", "pix0: PCIe switch", "cpu1: processor"} <= names


def test_a_load_is_seconds_of_every_direction() -> None:
    cube = topology.machine("dgx1v")
    found = cost.simulate(schedule.build("all_reduce", "ring", 8), cube, 1 << 30)
    figure = show.topology(cube, load=found.load)
    busy = {name: t for name, t in lines(figure).items() if t.showlegend is not False}
    assert sum(map(pieces, busy.values())) == len(found.load)
    most = found.load["cpu0", "cpu1"] / 9e9 * 1e3
    assert f"busy {most:.3g} ms" in busy
    told = [word for t in figure.data if t.text is not None for word in t.text]
    assert any("cpu0 → cpu1: 1.75 GiB, 208.8 ms<br>cpu1 → cpu0: 1.75 GiB" in w for w in told)
    assert show.topology(cube, load={}).data


def test_a_ring_goes_along_its_links_and_its_slowest_are_red() -> None:
    cube = topology.machine("dgx1v")
    figure = show.topology(cube, order=range(8))
    assert figure.layout.title.text == ("Ring 0-1-2-3-4-5-6-7-0: slowest pairs 3-4, 7-0, 9 GB/s")
    slow = lines(figure)["way of the slowest pairs"]
    routes = [cube.route("GPU3", "GPU4"), cube.route("GPU7", "GPU0")]
    assert pieces(slow) == len({hop for route in routes for hop in route})
    best = show.topology(cube, order=topology.best_ring(cube))
    assert best.layout.title.text == "Ring 0-3-2-1-5-6-7-4-0: every pair 40 GB/s"
    assert "way of the slowest pairs" not in lines(best)
    chain = show.topology(cube, order=topology.best_chain(cube))
    assert chain.layout.title.text.startswith("Chain 0-")


def test_a_cluster_is_its_network() -> None:
    made = topology.cluster("hgx-h100", 4, "fat-tree", leaf=2)
    figure = show.topology(made)
    assert sum(map(pieces, lines(figure).values())) == 4 * 8 + 4
    assert [n.text for n in figure.layout.annotations] == [f"node n{k}" for k in range(4)]
    assert figure.layout.title.text.startswith("4 x HGX H100, 8 x H100 on NVSwitch, fat-tree")
    with pytest.raises(ValueError, match="at most 32 GPUs, got 72"):
        show.topology("nvl72")


def test_the_search_begins_with_the_numbers_and_ends_with_the_best() -> None:
    figure = show.ring_search("dgx1v")
    titles = [frame.layout.title.text for frame in figure.frames]
    assert figure.layout.title.text == titles[0]
    assert titles[0].startswith("In the order of the numbers: 0-1-2-3-4-5-6-7-0")
    assert titles[-1].startswith("The best ring: 0-3-2-1-5-6-7-4-0")
    speeds = [float(re.findall(r"bottleneck ([\d.]+)", t)[0]) for t in titles]
    assert speeds[1:] == sorted(speeds[1:])
    assert (speeds[0], speeds[-1]) == (9, 40)
    assert len(titles) == len(figure.layout.sliders[0].steps) >= 5
    cube = topology.machine("dgx1v")
    for title, frame in zip(titles, figure.frames, strict=True):
        ranks = [int(r) for r in re.findall(r": ([\d-]+)<br>", title)[0].split("-")][:-1]
        one = topology.order(cube, ranks)
        fast, slow = frame.data
        red = 0 if len(one.slowest) == 8 else len(one.slowest)
        assert (pieces(fast), pieces(slow)) == (8 - red, red or 1)
    with pytest.raises(ValueError, match="3 to 16 GPUs, got 72"):
        show.ring_search("nvl72")


def test_cells_are_what_nccl_chooses() -> None:
    sizes, nodes = [4096, MIB, 1 << 30], [1, 2, 64]
    figure = show.winners("h100-8ndr", sizes=sizes, nodes=nodes)
    names = [t.name for t in figure.data[1:]]
    for row, n in enumerate(nodes):
        for column, size in enumerate(sizes):
            best = nccl.choose("all_reduce", size, "h100-8ndr", n, 8, "2.30")
            cell = figure.data[0].z[row][column]
            assert names[int(cell)] == f"{best.algorithm} {best.protocol}"
            told = figure.data[0].text[row][column]
            assert f"bus bandwidth {best.busbw:.3g} GB/s" in told
            assert "next: " in told
    assert list(show.winners("rtx4090", sizes=sizes).layout.yaxis.ticktext) == ["1"]
    with pytest.raises(nccl.NcclError, match="must name something"):
        show.winners("h100", sizes=[])


def test_a_table_has_every_class_where_it_was_read() -> None:
    table = topology.table("dgx1v")
    figure = show.matrix_table(table)
    words = {(x, y): w for t in figure.data[1:] for x, y, w in zip(t.x, t.y, t.text, strict=True)}
    columns = [*table.gpus, *table.nics]
    for y, a in enumerate(table.gpus):
        for x, b in enumerate(columns):
            assert words[x, y] == ("X" if a == b else table.link(a, b))
    cut = topology.parse("GPU0 GPU1 GPU2\nGPU0 X NV4 SYS")
    assert "?" in {w for t in show.matrix_table(cut).data[1:] for w in t.text}
    assert "XGMI" in show.matrix_table(topology.table("mi300x")).data[1].text + (
        show.matrix_table(topology.table("mi300x")).data[2].text
    )


def test_figures_speak_the_learners_language_and_stay_small() -> None:
    coursekit.language("zh")
    cube = topology.machine("dgx1v")
    figures = [show.topology(cube), show.topology(cube, order=range(8)), show.ring_search(cube),
               show.winners("h100-8ndr"), show.matrix_table(topology.table("dgx1v"))]  # fmt: skip
    for figure, most in zip(figures, (13_000, 13_000, 60_000, 50_000, 9_000), strict=True):
        text = figure.to_json()
        assert not re.search(r"bandwidth each|slowest|bottleneck|message size|Class of|card", text)
        assert len(text) < most
        assert "bdata" not in text
