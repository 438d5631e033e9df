"""Why a few classes do not equal the full softmax, on every third verse.

    python -m benchmarks.comparison.one_percent

The full softmax against the optimal selection as in the paper, and against
random classes. "batch" has batches of 64 instead of 256, whose sample is shared
by fewer rows, at half the rate: by the root of the ratio. What has a result in
benchmarks/cache/comparison is not run again.
"""

import statistics
import sys

from benchmarks import measure
from benchmarks.comparison import rates
from benchmarks.comparison import sets as sets_lib
from benchmarks.comparison import train
from benchmarks.comparison.methods import METHODS

SET, EPOCHS, BATCH = "verses_third", 4.0, 256
SHARES = {103: 1.0, 341: 3.3, 1036: 10.0}  # percent of the classes
FULL = "full", None
#: `{name: (rows of a step, methods and how many classes they compute)}`.
TRIES = {
    "usual": (
        BATCH,
        [
            *(("top_k_paper", count) for count in (341, 1036)),
            ("random_paper", 341),
            FULL,
        ],
    ),
    "batch": (64, [*(("top_k_paper", count) for count in (341, 103)), FULL]),
}


def jobs_of(batch, methods, seeds):
    return [
        train.Job(
            SET,
            method,
            {"num_sampled": count} if count else {},
            seed,
            EPOCHS,
            sets_lib.SETS[SET].first_rate * (batch / BATCH) ** 0.5,
            batch,
            points=1,
        )
        for method, count in methods
        for seed in seeds
    ]


def rows_of(name, ended):
    """Rows of a try: means, and the distance to the full softmax."""
    ends = {}
    for job, result in ended:
        key = job.method, job.options.get("num_sampled")
        ends.setdefault(key, []).append(result["curve"][-1])
    rows, (full,) = [], measure.means(ends[FULL], "precision@1").values()
    for (method, count), of_seeds in ends.items():
        precisions = [end["precision@1"] for end in of_seeds]
        mean = statistics.fmean(precisions)
        row = {"try": name, "method": METHODS[method].label}
        row |= {"percent of classes": SHARES.get(count, 100.0)}
        row |= {"batch": TRIES[name][0], "epochs": EPOCHS}
        row |= {"seeds": len(of_seeds), "precision@1": mean}
        row["standard error"] = measure.standard_error(precisions)
        row["below full"] = full - mean
        rows.append(row | measure.means(of_seeds, "cpu_seconds"))
    return rows


def main(argv=None):
    measure.run_child(train.child)
    args = measure.arguments(
        __doc__, argv, data="../shared/data", seeds=[0, 1, 2]
    )
    sets_lib.load(SET, args.data)
    rows = []
    for name, (batch, methods) in TRIES.items():
        jobs = jobs_of(batch, methods, args.seeds)
        ended = train.ends_of(jobs, args.data)
        rows += rows_of(name, ended)
        # After each: a run that is stopped leaves a table.
        rates.save("comparison/one_percent", rows, ended[0][1])


if __name__ == "__main__":
    sys.exit(main())
