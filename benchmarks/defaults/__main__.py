"""Which optimizer of class vectors, at which rate, on many tasks.

    python -m benchmarks.defaults DATA [--cells 0 1 ...] [--parts rules ...]

trains each cell of `cells.py` with `HeadAdam` at its default rate, and with
seven other rules for class vectors, each at five rates and with the better of
two rates for the encoder's Adam. Rates are chosen on validation rows. The best
choice of a cell is repeated with two other seeds. A run with a result is not
repeated. `--report` writes the tables and the figure from the results alone.
"""

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys

from benchmarks import measure
from benchmarks.defaults import report
from benchmarks.defaults.cells import CELLS

PARTS = ("rules", "default", "samplers")
FOLDER = os.path.join(measure.CACHE, "defaults", "runs")


def path_of(number):
    return os.path.join(FOLDER, f"{number}.jsonl")


def finished(number):
    """Results of a cell so far, list of dicts; the committed ones first."""
    rows = [
        row for row in report.finished() if row["cell"] == CELLS[number].name
    ]
    if os.path.exists(path_of(number)):
        with open(path_of(number)) as f:
            rows += [json.loads(line) for line in f if line.endswith("}\n")]
    # A run that is committed may be in the cache as well.
    return list({json.dumps(row, sort_keys=True): row for row in rows}.values())


def run(number, folder, part):
    """Runs a cell in a process of its own."""
    os.makedirs(FOLDER, exist_ok=True)
    with open(path_of(number), "a") as out:
        found = subprocess.run(
            [sys.executable, "-m", "benchmarks.defaults.run", str(number)]
            + [folder, part],
            input=json.dumps(finished(number)),
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
        )
    state = "done" if found.returncode == 0 else found.stderr[-500:]
    print(f"{part}, {number}: {CELLS[number].name}: {state}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("data", nargs="?", help="folder of the shared data")
    parser.add_argument("--cells", type=int, nargs="*")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--report", action="store_true")
    args = parser.parse_args()
    numbers = range(len(CELLS)) if args.cells is None else args.cells
    if not args.report:
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            for part in args.parts:
                list(pool.map(lambda i: run(i, args.data, part), numbers))
    rows = [row for i in range(len(CELLS)) for row in finished(i)]
    report.write(rows)


if __name__ == "__main__":
    main()
