"""Which classes DropMax retains: the paper's figure 4.

    python -m benchmarks.dropmax_retained [--data ../shared/data]

1,000 images of MNIST as in benchmarks.dropmax, three seeds, by the weight of
the entropy (lambda; the head's own is 1 for "adaptive" and 3 for "posterior").
The weights of "adaptive" are the paper's grid. `least` to `most` are of the
pairs of a true class and another one. Hard rows are those that the plain
softmax of the same seed gets wrong; its answer is their confused class.
"""

import numpy as np
from scipy import stats

import tfxclass
from benchmarks import dropmax
from benchmarks import dropmax_methods
from benchmarks import figure_style
from benchmarks import measure

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
    """A job's result, of the cache if it is there.

    With "answers", of all test rows: the probabilities of "base", and the
    retain probabilities of other methods.
    """

    def train(*_):
        set_up = dropmax.SETS["mnist_1k"]
        setting = dropmax.USUAL._replace(entropy_weight=weight)
        result, model = dropmax_methods.train(
            method, setting, data[seed], seed, set_up.steps
        )
        if method != "base":
            model = tfxclass.retain_probabilities(model)
        answers = model.predict(data[seed].test[0], batch_size=500, verbose=0)
        if method != "base":
            answers = answers[1]
        return {**result, "answers": answers.astype(float).round(4).tolist()}

    job = method, weight, seed
    return measure.once("dropmax_retained", *job, run=train)


def class_means(answers, labels):
    """Means over 100 test rows of a class, `[classes, classes]`."""
    few = [np.flatnonzero(labels == c)[:100] for c in range(answers.shape[1])]
    return np.stack([answers[rows].mean(axis=0) for rows in few])


def others(matrix):
    """Values of the pairs of two classes, float `[pairs]`."""
    return matrix[~np.eye(len(matrix), dtype=bool)]


def hard_rows(retained, guesses, labels):
    """Retain probabilities of rows that the plain softmax gets wrong; a dict.

    `retained` are float `[rows, classes]`, `guesses` the plain softmax's.
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


def patterns_of(retained, base, labels):
    """What hard rows of a class have in common; a dict.

    The 4 and other classes on rows of the 9, and the mean correlation of two
    rows' patterns: what they retain, less the mean of all rows.
    """
    hard = np.argmax(base, axis=1) != labels
    retained, own = retained[hard], labels[hard]
    nines = np.delete(retained[own == 9].mean(axis=0), 9)
    alike = np.corrcoef(retained - retained.mean(axis=0))
    same = own[:, None] == own
    pairs = same & ~np.eye(len(own), dtype=bool)
    return {
        "nines retain 4": nines[4],
        "nines retain others": np.delete(nines, 4).mean(),
        "alike in a class": alike[pairs].mean(),
        "alike in two": alike[~same].mean(),
    }


def numbers_of(retained, base, labels):
    means = class_means(retained, labels)
    confused = others(class_means(base, labels))
    return {
        "least": others(means).min(),
        "most": others(means).max(),
        "of the label": np.diag(means).mean(),
        "correlation": stats.spearmanr(others(means), confused).statistic,
        **hard_rows(retained, base.argmax(axis=1), labels),
    }


def row_of(results, bases, labels, *functions):
    """A row of the table: means over the seeds of what the functions give."""
    seeds = [
        {
            key: value
            for function in functions
            for key, value in function(
                np.array(result["answers"]), np.array(base["answers"]), labels
            ).items()
        }
        for result, base in zip(results, bases, strict=True)
    ]
    errors, validation = (
        [result["scores"][f"{part} 18"]["error"] for result in results]
        for part in ("test", "validation")
    )
    return {
        "seeds": len(results),
        "error_%": float(np.mean(errors)),
        "error_% +-": float(np.std(errors, ddof=1)) if errors[1:] else "",
        "validation_error_%": float(np.mean(validation)),
        **measure.means(seeds, *seeds[0]),
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


def draw_retained(shown, row, path):
    """The paper's figure 4, (a) to (d), of `figure_of` and the table's row."""
    figure, axes = figure_style.new_figure(rows=4, height=3.4)
    random = np.random.default_rng(0)
    hard = np.array(shown["hard"]["retained"])
    masks = random.uniform(size=hard.shape) < hard
    for axis, name, values, title in (
        (axes[0], "easy", shown["easy"]["retained"], "(a) easy rows"),
        (axes[1], "hard", hard, "(b) hard rows; x: answer of the softmax"),
        (axes[2], "hard", masks, "(c) masks drawn for (b)"),
    ):
        image = axis.imshow(values, vmin=0, vmax=1, cmap="Blues", aspect="auto")
        figure.colorbar(image, ax=axis)
        labels = shown[name]["labels"]
        axis.set_yticks(range(len(labels)), labels)
        axis.set(title=title, ylabel="class of the row")
        axis.grid(False)
        if name == "hard":
            guesses = shown[name]["guesses"]
            axis.plot(guesses, range(len(guesses)), "x", color="tab:red")
    axes[3].bar(range(10), shown["mean of hard"])
    axes[3].set(title="(d) mean of hard rows", ylabel="retain probability")
    for axis in axes:
        axis.set(xlabel="class", xticks=range(10))
    title = (
        "Of rows that the softmax gets wrong, DropMax retains its answer with "
        f"{row['hard confused']:.2f}, and the eight others with "
        f"{row['hard rest']:.2f}"
    )
    figure_style.save(figure, path, title)


def main():
    args = measure.arguments(__doc__, data="../shared/data")
    read = dropmax.SETS["mnist_1k"].read
    data = {seed: read(args.data, seed) for seed in SEEDS}
    labels = data[SEEDS[0]].test[1]
    bases = [trained(data, "base", None, seed) for seed in SEEDS]
    rows = []
    for method, weight in ROWS:
        results = [trained(data, method, weight, seed) for seed in SEEDS]
        given = results, bases, labels
        about = {"method": method, "lambda": weight or "own"}
        rows.append({**about, **row_of(*given, numbers_of, patterns_of)})
        if (method, weight) == ROWS[0]:
            path = measure.result_path("dropmax_retained.png")
            draw_retained(figure_of(*given), rows[-1], path)
    measure.save("dropmax_retained", rows, ("method", "lambda"))


if __name__ == "__main__":
    main()
