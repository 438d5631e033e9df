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

from benchmarks import measure
from benchmarks.comparison import jobs as jobs_lib
from benchmarks.comparison import rates
from benchmarks.comparison import sets as sets_lib
from benchmarks.comparison.methods import METHODS

CACHE = os.path.join(measure.CACHE, "one_percent")
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
    rate = sets_lib.SETS[SET].first_rate * (batch / BATCH) ** 0.5
    set_up = f"batch_size={batch};first_rate={rate:g}" * (batch != BATCH)
    return [
        jobs_lib.Job(
            SET,
            method,
            {"num_sampled": count} if count else {},
            seed,
            epochs=EPOCHS,
            set_up=set_up,
            points=1,
        )
        for method, count in methods
        for seed in seeds
    ]


def rows_of(name, ended):
    """Rows of a try: means, and the distance to the full softmax.

    Args:
        name: str, in `TRIES`.
        ended: list of `(job, result)`.
    """
    ends = {}
    for job, result in ended:
        key = job.method, job.options.get("num_sampled")
        ends.setdefault(key, []).append(result["curve"][-1])
    means = {
        key: statistics.fmean(end["precision@1"] for end in of_seeds)
        for key, of_seeds in ends.items()
    }
    return [
        {
            "try": name,
            "method": METHODS[method].label,
            "percent of classes": SHARES.get(count, 100.0),
            "batch": TRIES[name][0],
            "epochs": EPOCHS,
            "seeds": len(of_seeds),
            "precision@1": means[method, count],
            "standard error": rates.error_of(
                [end["precision@1"] for end in of_seeds]
            ),
            "below full": means[FULL] - means[method, count],
            "cpu_seconds": statistics.fmean(
                end["cpu_seconds"] for end in of_seeds
            ),
        }
        for (method, count), of_seeds in ends.items()
    ]


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    args = parser.parse_args(argv)
    measure.use_one_thread()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "set.npz")
        sets_lib.prepare(SET, args.data, path)
        for name, (batch, methods) in TRIES.items():
            jobs = jobs_of(batch, methods, args.seeds)
            ended = jobs_lib.ends_of(
                jobs, CACHE, lambda job: jobs_lib.in_this_process(job, path)
            )
            rows += rows_of(name, ended)
            # After each: a run that is stopped leaves a table.
            rates.save("one_percent", rows, ended[0][1])


if __name__ == "__main__":
    sys.exit(main())
