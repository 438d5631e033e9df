"""Which classes DropMax retains: the paper's figure 4 in numbers.

    python -m benchmarks.dropmax_retained [--data ../shared/data] [--cached]

1,000 images of MNIST as in benchmarks.dropmax, three seeds, by the weight of
the entropy (lambda; the head's own is 1 for "adaptive" and 3 for "posterior").
The weights of "adaptive" are the grid of the paper. "--cached" trains nothing:
the table has the seeds that are done, and earlier rows where none is.
`least` to `most`: mean retain probabilities of the pairs of a true class and
another one. `correlation`: Spearman's, over these 90 pairs, between the retain
probability and the probability that the plain softmax gives the other class.
It is 1 where the classes that a row is confused with are retained the most.
"""

import argparse
import os

import numpy as np

from benchmarks import dropmax
from benchmarks import measure

CACHE = os.path.join(measure.CACHE, "dropmax_retained")
SEEDS = (0, 1, 2)
ROWS = (
    ("adaptive", None),
    ("adaptive", 0.1),
    ("adaptive", 0.01),
    ("adaptive", 0.001),
    ("adaptive", 0.0001),
    ("posterior", None),
)


def path_of(method, weight, seed):
    return os.path.join(CACHE, f"{method},{weight},{seed}.json")


def trained(data, method, weight, seed):
    """A job's result, of the cache if it is there."""
    from benchmarks import dropmax_jobs
    from benchmarks import dropmax_train

    path = path_of(method, weight, seed)
    if not os.path.exists(path):
        set_up = dropmax.SETS["mnist_1k"]
        setting = dropmax_jobs.usual(method)._replace(entropy_weight=weight)
        result = dropmax_train.train(
            method, setting, data[seed], seed, set_up.steps
        )
        measure.write(path, result)
    return dropmax_jobs.read(path)


def others(matrix):
    """Values of the pairs of two classes, float `[pairs]`."""
    matrix = np.array(matrix)
    return matrix[~np.eye(len(matrix), dtype=bool)]


def row_of(results, bases):
    """A row of the table: means over the seeds."""
    from scipy import stats

    retained = [others(result["retain"]) for result in results]
    confused = [others(base["probabilities"]) for base in bases]
    pairs = zip(retained, confused, strict=True)
    errors, validation = (
        [result["scores"][f"{part} 18"]["error"] for result in results]
        for part in ("test", "validation")
    )
    return {
        "seeds": len(results),
        "error_%": float(np.mean(errors)),
        **({"error_% +-": float(np.std(errors, ddof=1))} if errors[1:] else {}),
        "validation_error_%": float(np.mean(validation)),
        "least": float(np.mean([r.min() for r in retained])),
        "most": float(np.mean([r.max() for r in retained])),
        "of the label": float(
            np.mean([np.diag(r["retain"]).mean() for r in results])
        ),
        "correlation": float(
            np.mean([stats.spearmanr(*pair).statistic for pair in pairs])
        ),
    }


def earlier(about):
    """Rows of the table that is there, which say how they were measured."""
    from benchmarks import dropmax_jobs

    path = os.path.join(measure.RESULTS, "dropmax_retained.json")
    record = dropmax_jobs.read(path) or {"rows": ()}
    told = {key: record.get(key) for key in ("date", "machine", "command")}
    return [
        {"measured": told, **row}
        for row in record["rows"]
        if about.items() <= row.items()
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--cached", action="store_true")
    parser.add_argument("--figures", action="store_true", help="only draw")
    args = parser.parse_args()
    if args.figures:
        draw()
        return
    read = dropmax.SETS["mnist_1k"].read
    data = {seed: read(args, seed) for seed in SEEDS}
    bases = [trained(data, "base", None, seed) for seed in SEEDS]
    rows = []
    for method, weight in ROWS:
        about = {"method": method, "lambda": weight or "own"}
        seeds = [
            seed
            for seed in SEEDS
            if not args.cached or os.path.exists(path_of(method, weight, seed))
        ]
        if not seeds:
            rows += earlier(about)
            continue
        found = [trained(data, method, weight, seed) for seed in seeds]
        rows.append({**about, **row_of(found, [bases[i] for i in seeds])})
        print(rows[-1], flush=True)
    command = "python -m benchmarks.dropmax_retained"
    measure.save("dropmax_retained", rows, command=command)
    draw()


def draw():
    """The figure of the committed rows."""
    from benchmarks import dropmax_figures
    from benchmarks import dropmax_jobs

    path = os.path.join(measure.RESULTS, "dropmax_retained")
    rows = dropmax_jobs.read(path + ".json")["rows"]
    dropmax_figures.draw_retained(rows, path + ".png")


if __name__ == "__main__":
    main()
