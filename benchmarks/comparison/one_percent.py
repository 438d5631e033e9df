"""Why a few classes do not equal the full softmax, on every third verse.

    python -m benchmarks.comparison.one_percent

Every third verse, 10,359 classes, three seeds. The full softmax against the
optimal selection as in the paper, and against random classes:

    usual   batches of 256, four epochs, cosine logits, 3.3 and 10 % of classes
    batch   batches of 64: a sample is shared by fewer rows; the rate is half
            that of 256 rows, by the root of the ratio

What has a result, under benchmarks/cache/one_percent, is not run again. Into
benchmarks/results/comparison/one_percent.json.
"""

import argparse
import os
import statistics
import sys
import tempfile
from typing import NamedTuple

from benchmarks import measure
from benchmarks.comparison import jobs as jobs_lib
from benchmarks.comparison import rates
from benchmarks.comparison import sets as sets_lib
from benchmarks.comparison import train
from benchmarks.comparison.methods import METHODS

CACHE = os.path.join(measure.CACHE, "one_percent")
SET = "verses_third"
EPOCHS = 4.0
BATCH, RATE = 256, sets_lib.SETS[SET].first_rate
SHARES = {103: 1.0, 341: 3.3, 1036: 10.0}  # percent of the classes
FULL = "full", None
OPTIMAL = {count: ("top_k_paper", count) for count in SHARES}
RANDOM = {count: ("random_paper", count) for count in SHARES}


class Try(NamedTuple):
    """A way to train, and the methods that are trained so.

    Attributes:
        name: str, in the table.
        methods: tuple of `(method, num_sampled)`.
        batch: int, rows of a step.
    """

    name: str
    methods: tuple
    batch: int = BATCH

    @property
    def set_up(self):
        if self.batch == BATCH:
            return ""
        rate = RATE * (self.batch / BATCH) ** 0.5
        return f"batch_size={self.batch};first_rate={rate:g}"


TRIES = (
    Try("usual", (OPTIMAL[341], OPTIMAL[1036], RANDOM[341], FULL)),
    Try("batch", (OPTIMAL[341], OPTIMAL[103], FULL), batch=64),
)


def jobs_of(one, seeds):
    """`{(method, num_sampled): jobs}` of a `Try`."""
    return {
        (method, count): [
            jobs_lib.Job(
                SET,
                method,
                {"num_sampled": count} if count else {},
                seed,
                epochs=EPOCHS,
                set_up=one.set_up,
                points=1,
            )
            for seed in seeds
        ]
        for method, count in one.methods
    }


def rows_of(one, jobs, ends):
    """Rows of a `Try`: means, and the distance to the full softmax.

    Args:
        one: `Try`.
        jobs: what `jobs_of` gives.
        ends: dict of a job's name and budget to its last point.
    """
    points = {
        key: [ends[job.name, job.budget] for job in of_seeds]
        for key, of_seeds in jobs.items()
    }
    full = statistics.fmean(end["precision@1"] for end in points[FULL])
    rows = []
    for (method, count), of_seeds in points.items():
        values = [end["precision@1"] for end in of_seeds]
        mean = statistics.fmean(values)
        error = statistics.stdev(values) / len(values) ** 0.5
        rows.append(
            {
                "try": one.name,
                "method": METHODS[method].label,
                "percent of classes": SHARES[count] if count else 100.0,
                "batch": one.batch,
                "epochs": EPOCHS,
                "seeds": len(values),
                "precision@1": mean,
                "standard error": error,
                "below full": full - mean,
                "cpu_seconds": statistics.fmean(
                    end["cpu_seconds"] for end in of_seeds
                ),
            }
        )
    return rows


def main(argv=None):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.comparison.one_percent",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", default="../shared/data")
    names = [one.name for one in TRIES]
    parser.add_argument("--tries", nargs="+", choices=names, default=names)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    args = parser.parse_args(argv)
    train.use_one_thread()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "set.npz")
        sets_lib.prepare(SET, args.data, path)
        for one in TRIES:
            jobs = jobs_of(one, args.seeds)
            wanted = [job for of_seeds in jobs.values() for job in of_seeds]
            paths = {SET: path} if one.name in args.tries else {}
            found = jobs_lib.ends_of(wanted, CACHE, paths)
            if len(found) < len(wanted):
                continue
            ends = {
                (job.name, job.budget): result["curve"][-1]
                for job, result in found
            }
            rows += rows_of(one, jobs, ends)
            # After each: a run that is stopped leaves a table.
            rates.write("one_percent", rows, found[0][1], argv)


if __name__ == "__main__":
    sys.exit(main())
