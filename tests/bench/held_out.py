"""How well a fit to one algorithm predicts the others, with and without the serialisation factor.

Measures every all-reduce of the course in one run, fits alpha and beta to one of them, predicts
each other one at every size and prints the median relative error. Prints only.

    python tests/bench/held_out.py [--ranks 4] [--fitted ring] [--least 16K] [--most 16M]
"""

import argparse
import statistics

from coursekit import Ranks
from coursekit.measure import fit, sizes, sweep
from coursekit.measure.cli import parse_size
from coursekit.schedule import algorithms


def error(fitted, done, name):
    """Median over the sizes of |predicted - measured| / measured."""
    return statistics.median(
        abs(fitted.predict(done.collective, name, r.size) / r.time_us - 1) for r in done.of(name)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--fitted", default="ring")
    parser.add_argument("--least", default="16K")
    parser.add_argument("--most", default="16M")
    asked = parser.parse_args()
    names = algorithms("all_reduce")
    wanted = sizes(parse_size(asked.least), parse_size(asked.most), 4)
    with Ranks(asked.ranks, backend="gloo", timeout=600) as ranks:
        done = sweep(ranks, "all_reduce", wanted, names, warmup=3)
    fits = {"Hockney": fit(done, asked.fitted, crowded=False)}
    fits["with factor"] = fit(done, asked.fitted)
    one = fits["with factor"]
    print(f"{asked.ranks} ranks on {done.cores} cores, gloo, {wanted[0]} to {wanted[-1]} bytes")
    print(
        f"fitted to {asked.fitted}: alpha {one.alpha_us:.0f} us, beta {one.beta_ns:.2f} ns a byte"
    )
    print(f"factor of its busiest step {one.factor:g}; own error {one.error:.0%}\n")
    print(f"{'held out':>20}" + "".join(f"{kind:>14}" for kind in fits))
    held = {n: [error(f, done, n) for f in fits.values()] for n in names if n != asked.fitted}
    for name, errors in held.items():
        print(f"{name:>20}" + "".join(f"{e:14.0%}" for e in errors))
    medians = [statistics.median(column) for column in zip(*held.values(), strict=True)]
    print(f"{'median':>20}" + "".join(f"{e:14.0%}" for e in medians))


if __name__ == "__main__":
    main()
