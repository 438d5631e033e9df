"""See the docstring of the package."""

import argparse
import os
import subprocess
import sys

from benchmarks import measure
from benchmarks.hierarchical import data as data_lib
from benchmarks.hierarchical import growth
from benchmarks.hierarchical import jobs
from benchmarks.hierarchical import peer
from benchmarks.hierarchical import tables

SIZES = (10, 100, 1000, 4271)
PARTS = ("eurlex57k", "step_time")
SET = PARTS[0]


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.hierarchical", description=__doc__
    )
    add = parser.add_argument
    add("--data", default="../shared/data", help="folder of the data sets")
    add("--fasttext", help="a Python with fastText; see fasttext_peer.py")
    add("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    add("--sizes", nargs="+", type=int, default=list(SIZES))
    add("--methods", nargs="+", choices=jobs.METHODS, default=jobs.METHODS)
    add("--epochs", type=int, default=10)
    add("--seconds", type=float, help="no epoch of ours begins after these")
    add(
        "--search",
        nargs="+",
        type=int,
        help="sizes to choose rates at; others take those of the next one",
    )
    add("--tables", action="store_true", help="run nothing, only tables")
    add("--figures", action="store_true", help="draw the committed rows")
    add("--smoke", action="store_true", help="tiny, for the tests")
    add("--cache", default=data_lib.CACHE)
    add("--out", default=os.path.join(measure.RESULTS, "hierarchical"))
    add("--size", type=int, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def methods_of(args):
    return [
        method
        for method in args.methods
        if method not in peer.METHODS or args.fasttext
    ]


def folder_of(args, size):
    return os.path.join(args.cache, f"{SET}-{size}-{args.epochs}epochs")


def run_size(args, size):
    """All methods on so many labels, each rate of `--search` sizes first."""
    data = load(args, size)
    group = jobs.Group(
        folder_of(args, size),
        data,
        args.epochs,
        args.fasttext,
        args.seconds,
        num_rates=1 if args.smoke else None,
    )
    rates_path = os.path.join(args.cache, f"rates-{args.epochs}epochs.json")
    searched = args.search is None or size in args.search
    for method in methods_of(args):
        rates = measure.read(rates_path) or {}
        if searched:
            rates[method] = group.best_rate(method)
            measure.write(rates_path, rates)
        if method in rates:
            group.final(method, rates[method])
        else:
            print(f"{method}: no rate has been chosen yet; see --search")


def load(args, size):
    if args.smoke:
        return data_lib.generated(size)
    return data_lib.load(SET, args.data, size)


def run(args, argv):
    if SET in args.parts:
        # Those with rates to choose come first.
        first = args.search or []
        for size in sorted(args.sizes, key=lambda size: size not in first):
            if args.smoke:
                run_size(args, size)
                continue
            # A process each: none inherits the memory of another.
            command = [sys.executable, "-m", "benchmarks.hierarchical", *argv]
            subprocess.run([*command, "--size", str(size)], check=True)
    if "step_time" in args.parts:
        growth.main(args.out, growth.SMOKE if args.smoke else growth.SIZES)


def main(argv=None):
    argv = sys.argv[1:] if argv is None else argv
    args = parse_arguments(argv)
    if args.size:
        run_size(args, args.size)
        return
    if args.figures:
        path = os.path.join(args.out, SET + ".json")
        tables.draw(measure.read(path)["rows"], args.out)
        return
    if not args.tables:
        run(args, argv)
    if SET in args.parts:
        tables.write({n: folder_of(args, n) for n in args.sizes}, args.out)


if __name__ == "__main__":
    main()
