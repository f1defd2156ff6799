"""How far NCCL's cost model is from measured nccl-tests tables: every table of the course's data.

Prints for each table the median and the worst of measured time through predicted time, by bands of
size, and marks with ! what is beyond tolerance: a factor of 2 below 16 MiB, 25 % below 1 GiB, 10 %
from there on. Where no result of NCCL's search is known for a machine, it says so. Prints only.

    python tests/bench/nccl_model.py [--rows]
"""

import argparse
import statistics

from coursekit import _data
from coursekit.cost import nccl

MIB, GIB = 1 << 20, 1 << 30
BANDS = [("to 1 MiB", 0, MIB, 2.0), ("to 16 MiB", MIB, 16 * MIB, 2.0)]
BANDS += [("to 1 GiB", 16 * MIB, GIB, 1.25), ("from 1 GiB", GIB, 1 << 62, 1.1)]

# Machine, nodes, versions and what to know of each table; a machine of None has no model. Where the
# table does not state the version there are two.
TABLES = {
    "h100-8": ("h100", 1, ("2.27", "2.30"), "version not stated"),
    "a100-8": ("a100", 1, ("2.20", "2.27"), "version not stated; one process serves 8 GPUs"),
    "h100-16": ("h100-8ndr", 2, ("2.27", "2.30"), "EFA, not 8 NDR cards; perhaps its own tuner"),
    "gb200-128": (None, 2, (), "no search result of GB200 is published"),
    "h200-8": ("h200", 1, ("2.27.7",), "timed from torch"),
    "b200-8": ("b200", 1, ("2.27.7",), "timed from torch"),
    "b200-32": (None, 4, (), "no search result of B200 with a network is published"),
    "h200-128": ("h200-8ndr", 16, ("2.27", "2.30"), "EFA, not 8 NDR cards; perhaps its own tuner"),
}


def tables():
    """All tables of the course's data, by name."""
    return _data.load("measured/nccl_tests.yaml") | _data.load("measured/nccl_bandwidths.yaml")


def ratios(table, machine, nodes, version):
    """Size, choice, and measured through predicted time, row by row."""
    ranks = table["ranks"] // nodes
    for size, time_us in table["rows"]:
        best = nccl.choose(table["collective"], size, machine, nodes, ranks, version)
        yield size, best, time_us / best.time_us


def beyond(ratio, tolerance):
    return not 1 / tolerance <= ratio <= tolerance


def report(name, table, rows):
    machine, nodes, versions, note = TABLES.get(name, (None, 1, (), "not in this bench's list"))
    print(f"\n{name}: {table['machine']}")
    if machine is None:
        print(f"  no model: {note}")
    for version in versions:
        print(f"  as {machine}, {nodes} nodes, NCCL {version}; {note}")
        bands(list(ratios(table, machine, nodes, version)), rows)


def bands(done, rows):
    for band, least, most, tolerance in BANDS:
        inside = [row for row in done if least <= row[0] < most]
        if inside:
            band_line(band, inside, tolerance)
        for size, best, ratio in inside if rows else []:
            mark = "!" if beyond(ratio, tolerance) else " "
            print(f"    {size:>12} {best.algorithm:>8} {best.protocol:<6} {ratio:6.2f} {mark}")


def band_line(band, inside, tolerance):
    found = [ratio for _, _, ratio in inside]
    worst = max(found, key=lambda r: max(r, 1 / r))
    out = [size for size, _, ratio in inside if beyond(ratio, tolerance)]
    mark = f"! {len(out)} of {len(found)}: {', '.join(map(str, out))}" if out else ""
    print(f"  {band:>10}: median {statistics.median(found):.2f}, worst {worst:.2f} {mark}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", action="store_true", help="every row, with NCCL's choice")
    asked = parser.parse_args()
    for name, table in tables().items():
        report(name, table, asked.rows)


if __name__ == "__main__":
    main()
