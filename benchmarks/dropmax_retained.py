"""Which classes DropMax retains: the paper's figure 4 in numbers.

    python -m benchmarks.dropmax_retained [--data ../shared/data]

1,000 images of MNIST as in benchmarks.dropmax, three seeds, by the weight of
the entropy (lambda; the head's own is 1 for "adaptive" and 3 for "posterior").
The weights of "adaptive" are the grid of the paper.
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


def trained(data, method, weight, seed):
    """A job's result, of the cache if it is there."""
    from benchmarks import dropmax_jobs
    from benchmarks import dropmax_train

    path = os.path.join(CACHE, f"{method},{weight},{seed}.json")
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
        "error_% +-": float(np.std(errors, ddof=1)),
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


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="../shared/data")
    args = parser.parse_args()
    read = dropmax.SETS["mnist_1k"].read
    data = {seed: read(args, seed) for seed in SEEDS}
    bases = [trained(data, "base", None, seed) for seed in SEEDS]
    rows = []
    for method, weight in ROWS:
        found = [trained(data, method, weight, seed) for seed in SEEDS]
        about = {"method": method, "lambda": weight or "own"}
        rows.append({**about, **row_of(found, bases)})
        print(rows[-1], flush=True)
    command = "python -m benchmarks.dropmax_retained"
    measure.save("dropmax_retained", rows, command=command)


if __name__ == "__main__":
    main()
