"""Which classes DropMax retains: the paper's figure 4.

    python -m benchmarks.dropmax_retained [--data ../shared/data] [--cached]

1,000 images of MNIST as in benchmarks.dropmax, three seeds, by the weight of
the entropy (lambda; the head's own is 1 for "adaptive" and 3 for "posterior").
The weights of "adaptive" are the grid of the paper. "--cached" trains nothing:
the table has the seeds that are done, and earlier rows where none is.
`least` to `most`: mean retain probabilities of the pairs of a true class and
another one. `correlation`: Spearman's, over these 90 pairs, between the retain
probability and the probability that the plain softmax gives the other class.
It is 1 where the classes that a row is confused with are retained the most.

Hard rows are those that the plain softmax of the same seed gets wrong. Its
answer is their confused class.
"""

import argparse
import os

import numpy as np
from scipy import stats

import tfxclass
from benchmarks import dropmax
from benchmarks import dropmax_figures
from benchmarks import dropmax_train
from benchmarks import measure

CACHE = os.path.join(measure.CACHE, "dropmax_retained")
SEEDS = (0, 1, 2)
ROWS = (
    ("adaptive", None),
    ("adaptive", 0.1),
    ("adaptive", 0.01),
    ("adaptive", 0.001),
    ("adaptive", 0.0001),
    ("random 0.5 with target term", None),
    ("posterior", None),
)


def path_of(method, weight, seed):
    return os.path.join(CACHE, f"{method},{weight},{seed}.json")


def trained(data, method, weight, seed):
    """A job's result, of the cache if it is there.

    With "answers", of all test rows: the probabilities of "base", and the
    retain probabilities of other methods.
    """

    def run():
        set_up = dropmax.SETS["mnist_1k"]
        setting = dropmax.USUAL._replace(entropy_weight=weight)
        result, model = dropmax_train.train(
            method, setting, data[seed], seed, set_up.steps
        )
        if method != "base":
            model = tfxclass.retain_probabilities(model)
        answers = model.predict(data[seed].test[0], batch_size=500, verbose=0)
        if method != "base":
            answers = answers[1]
        return {**result, "answers": answers.astype(float).round(4).tolist()}

    return measure.kept(path_of(method, weight, seed), run)


def class_means(answers, labels):
    """Means over 100 test rows of a class, `[classes, classes]`."""
    few = [np.flatnonzero(labels == c)[:100] for c in range(answers.shape[1])]
    return np.stack([answers[rows].mean(axis=0) for rows in few])


def others(matrix):
    """Values of the pairs of two classes, float `[pairs]`."""
    return matrix[~np.eye(len(matrix), dtype=bool)]


def hard_rows(retained, guesses, labels):
    """Retain probabilities of rows that the plain softmax gets wrong; a dict.

    Args:
        retained: float `[rows, classes]`.
        guesses: int `[rows]`, answers of the plain softmax.
        labels: int `[rows]`.
    """
    classes = np.arange(retained.shape[1])
    is_label = classes == labels[:, None]
    is_guess = classes == guesses[:, None]
    hard = guesses != labels
    rivals = np.where(is_label, -1.0, retained)[hard]
    of_classes = retained[hard].mean(axis=0)
    is_rest = ~(is_label | is_guess)
    return {
        "hard rows": int(hard.sum()),
        "hard label": float(retained[hard][is_label[hard]].mean()),
        "hard confused": float(retained[hard][is_guess[hard]].mean()),
        "hard rest": float(retained[hard][is_rest[hard]].mean()),
        "confused is greatest_%": 100
        * float(np.mean(rivals.argmax(axis=1) == guesses[hard])),
        "hard least class": float(of_classes.min()),
        "hard greatest class": float(of_classes.max()),
        "easy label": float(retained[~hard][is_label[~hard]].mean()),
        "easy others": float(retained[~hard][~is_label[~hard]].mean()),
    }


def patterns_of(results, bases, labels):
    """What hard rows of a class have in common; a dict of means over seeds.

    The 4 and other classes on rows of the 9, and the mean correlation of two
    rows' patterns: what they retain, less the mean of all rows.
    """
    found = []
    for result, base in zip(results, bases):
        hard = np.argmax(base["answers"], axis=1) != labels
        retained, own = np.array(result["answers"])[hard], labels[hard]
        nines = np.delete(retained[own == 9].mean(axis=0), 9)
        alike = np.corrcoef(retained - retained.mean(axis=0))
        same = own[:, None] == own
        others = same & ~np.eye(len(own), dtype=bool)
        found.append(
            {
                "nines retain 4": nines[4],
                "nines retain others": np.delete(nines, 4).mean(),
                "alike in a class": alike[others].mean(),
                "alike in two": alike[~same].mean(),
            }
        )
    return {key: float(np.mean([f[key] for f in found])) for key in found[0]}


def row_of(results, bases, labels):
    """A row of the table: means over the seeds."""
    answers = [np.array(result["answers"]) for result in results]
    plain = [np.array(base["answers"]) for base in bases]
    means = [class_means(matrix, labels) for matrix in answers]
    retained = [others(matrix) for matrix in means]
    confused = [others(class_means(matrix, labels)) for matrix in plain]
    pairs = zip(retained, confused, strict=True)
    hard = [
        hard_rows(matrix, base.argmax(axis=1), labels)
        for matrix, base in zip(answers, plain, strict=True)
    ]
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
        "of the label": float(np.mean([np.diag(m).mean() for m in means])),
        "correlation": float(
            np.mean([stats.spearmanr(*pair).statistic for pair in pairs])
        ),
        **{key: float(np.mean([h[key] for h in hard])) for key in hard[0]},
    }


def figure_of(results, bases, labels):
    """What figure 4 shows: the first seed's rows, the mean of all seeds' (d).

    Of each class it is the first row that the plain softmax gets right, and the
    first that it gets wrong.
    """
    answers = [np.array(result["answers"]) for result in results]
    guesses = [np.array(base["answers"]).argmax(axis=1) for base in bases]
    is_hard = guesses[0] != labels
    found = {}
    for name, part in (("easy", ~is_hard), ("hard", is_hard)):
        rows = [np.flatnonzero(part & (labels == c))[:1] for c in range(10)]
        rows = np.concatenate(rows)
        found[name] = {
            "labels": labels[rows].tolist(),
            "guesses": guesses[0][rows].tolist(),
            "retained": answers[0][rows].round(3).tolist(),
        }
    means = [
        matrix[guess != labels].mean(axis=0)
        for matrix, guess in zip(answers, guesses)
    ]
    found["mean of hard"] = np.mean(means, axis=0).round(3).tolist()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--cached", action="store_true")
    args = parser.parse_args()
    read = dropmax.SETS["mnist_1k"].read
    data = {seed: read(args, seed) for seed in SEEDS}
    labels = data[SEEDS[0]].test[1]
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
            continue
        found = [trained(data, method, weight, seed) for seed in seeds]
        of_seeds = [bases[i] for i in seeds]
        given = found, of_seeds, labels
        rows.append({**about, **row_of(*given), **patterns_of(*given)})
        print(rows[-1], flush=True)
        if (method, weight) == ROWS[0]:
            dropmax_figures.draw_retained(
                figure_of(found, of_seeds, labels),
                rows[-1],
                os.path.join(measure.RESULTS, "dropmax_retained.png"),
            )
    rows = measure.with_earlier("dropmax_retained", rows, ("method", "lambda"))
    command = "python -m benchmarks.dropmax_retained"
    measure.save("dropmax_retained", rows, command=command)


if __name__ == "__main__":
    main()
