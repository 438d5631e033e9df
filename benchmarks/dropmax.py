"""DropMax beside other softmaxes: the paper's table, on data that can be had.

    python -m benchmarks.dropmax [--sets ...] [--methods ...] [--seeds ...]

Test error and calibration, the mean of the seeds; the paper's figure 3.
The usual setting is trained with all seeds. Then others are, with the first
seed: the weights of the entropy, and the decays of the network's weights
besides the best of them. The setting with the least error on validation rows is
trained with the other seeds, too (`--usual`: nothing is chosen). What has a
result in benchmarks/cache/dropmax is not trained again, so the table may be
stopped and resumed. Rows of data that is not asked for stay in it.
"""

import statistics
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from benchmarks import dropmax_methods
from benchmarks import figure_style
from benchmarks import files
from benchmarks import measure
from benchmarks.dropmax_methods import METHODS
from benchmarks.dropmax_methods import DataSet
from benchmarks.dropmax_methods import Recipe


class SetUp(NamedTuple):
    """A set, and how it is trained."""

    read: Callable  # of the data folder and a seed; a `DataSet`
    steps: int  # a job ends with the point of its curve that reaches them
    recipe: Recipe = Recipe()
    l2: tuple = (0.0, 1e-5, 1e-3)  # to try besides the usual one


#: What the paper says of MNIST; the rate of dropout is ours.
PAPER = Recipe(rate=1e-4, rate_falls=False, dropout=0.5)
VALIDATION = 5_000  # of MNIST's 60,000


def mnist(num_train, folder, seed):
    """`num_train` images, equally many a class if there are enough."""
    parts = []
    for part in ("train", "t10k"):
        x, y = files.mnist(folder, part)
        parts.append(((x[..., None] / 255).astype(np.float32), y))
    (x, y), test = parts
    held, rest = slice(len(y) - VALIDATION, None), len(y) - VALIDATION
    order = np.random.default_rng(seed).permutation(rest)
    if num_train < rest:
        order = np.concatenate(
            [order[y[order] == c][: num_train // 10] for c in range(10)]
        )
    return DataSet((x[order], y[order]), (x[held], y[held]), test, 10)


SETS = {
    "mnist_1k": SetUp(partial(mnist, 1_000), 1000),
    "mnist_5k": SetUp(partial(mnist, 5_000), 1200),
    "mnist_55k": SetUp(partial(mnist, 55_000), 2000),
    # 5.5 epochs instead of 1.8.
    "mnist_55k_long": SetUp(partial(mnist, 55_000), 6000),
    # As many steps as in the paper, 18 epochs.
    "mnist_55k_20k": SetUp(partial(mnist, 55_000), 20_000),
    # The paper's settings, with fewer than its 20,000 steps.
    "mnist_1k_paper": SetUp(
        partial(mnist, 1_000), 2000, PAPER, (0.0, 1e-3, 1e-2)
    ),
}
#: The set and the methods of the curves.
CURVES = "mnist_1k_paper"
SHOWN = {"base": "softmax", "adaptive": "adaptive DropMax"}
USUAL_SETS = ["mnist_1k", "mnist_5k", "mnist_55k"]


class Setting(NamedTuple):
    """What is chosen on validation rows."""

    l2: float  # of the network's weights
    entropy_weight: float | None = None  # lambda; None is the head's own

    def __str__(self):
        weight = self.entropy_weight
        shown = "own" if weight is None else f"{weight:g}"
        return f"l2={self.l2:g},lambda={shown}"


#: What nothing chose.
USUAL = Setting(1e-4)


def results_of(args, name, method, train):
    """`(setting, tried, results)` of the usual setting and of a better one.

    Each has the results of its seeds, and of how many settings it is the best.
    `train` is a function of a setting and a seed, for jobs without a result.
    """
    folder = f"dropmax/{name}/{SETS[name].steps}steps"

    def result(setting, seed):
        job = method.replace(" ", "_"), setting, f"seed={seed}"
        return measure.once(folder, *job, run=lambda *_: train(setting, seed))

    def of_seeds(setting):
        return [result(setting, seed) for seed in args.seeds]

    usual, errors = of_seeds(USUAL), {}

    def best_of(settings):
        """On validation rows, with the first seed; no test set chooses."""
        for setting in settings:
            scores = result(setting, args.seeds[0])["scores"]
            errors[setting] = scores["validation 18"]["error"]
        return min(errors, key=errors.get)

    best = best_of([USUAL])
    if not args.usual:
        weights = METHODS[method].entropy_weights
        best = best_of([USUAL._replace(entropy_weight=w) for w in weights])
        best = best_of([best._replace(l2=l2) for l2 in SETS[name].l2])
    if best == USUAL:
        return [(USUAL, len(errors), usual)]
    return [(USUAL, 1, usual), (best, len(errors), of_seeds(best))]


def main(argv=None):
    """Trains what has no result yet, and saves the table after each method."""
    args = measure.arguments(
        __doc__,
        argv,
        choices={"sets": SETS, "methods": METHODS},
        data="../shared/data",
        sets=USUAL_SETS,
        methods=list(METHODS),
        seeds=[0, 1, 2],
        usual=False,
    )
    rows, curves = [], {}
    for name in args.sets:
        set_up = SETS[name]
        steps = set_up.steps
        data = {seed: set_up.read(args.data, seed) for seed in args.seeds}
        for method in args.methods:

            def train(setting, seed, method=method):
                return dropmax_methods.train(
                    method, setting, data[seed], seed, steps, set_up.recipe
                )[0]

            found = results_of(args, name, method, train)
            rows += [
                _row(name, method, equation, *one)
                for one in found
                for equation in ("18", "17")
                if f"test {equation}" in one[-1][0]["scores"]
            ]
            measure.save("dropmax", rows, ("set", "method", "setting"))
            if name == CURVES:
                each = [result["curve"] for result in found[0][-1]]
                columns = ("step", "train", "test")
                curves[method] = measure.mean_curve(each, *columns)
    if {*SHOWN} <= {*curves}:
        path = measure.result_path("dropmax_convergence.png")
        draw_curves(curves, path)


def _row(name, method, equation, setting, tried, found):
    def of(part, score):
        return [r["scores"][f"{part} {equation}"][score] for r in found]

    errors, eces = of("test", "error"), of("test", "ece")
    is_plain = method.split()[0] in _PLAIN
    weight, error = setting.entropy_weight, measure.standard_error(errors)
    return {
        "set": name,
        "method": method if is_plain else f"{method} ({equation})",
        "setting": "chosen" if setting != USUAL else "usual",
        "l2": setting.l2,
        "lambda": "own" if weight is None else weight,
        "best of": tried,
        "seeds": len(found),
        "error_%": round(statistics.mean(errors), 2),
        "median_%": round(statistics.median(errors), 2),
        "standard_error": error if error == "" else round(error, 2),
        "test_loss": round(statistics.mean(of("test", "loss")), 4),
        "least": round(min(errors), 2),
        "most": round(max(errors), 2),
        "ece": round(statistics.mean(eces), 4),
        "train_cpu_s": round(statistics.mean(r["cpu_s"] for r in found), 1),
        "validation_error_%": round(
            statistics.mean(of("validation", "error")), 2
        ),
    }


_PLAIN = ("base", "sampled", "sparsemax")


def draw_curves(curves, path):
    """The paper's figure 3: cross-entropy of training and of test rows."""
    figure, (axis,) = figure_style.new_figure()
    for (method, name), color in zip(SHOWN.items(), ("black", "tab:blue")):
        points = curves[method]
        steps = [point["step"] for point in points]
        for part, style in (("train", "--"), ("test", "-")):
            losses = [point[part] for point in points]
            label = f"{name}, {part}"
            axis.plot(steps, losses, style, color=color, label=label)
    axis.set(xlabel="training step", ylabel="cross-entropy", yscale="log")
    axis.legend()
    ends = [curves[method][-1]["test"] for method in SHOWN]
    title = (
        f"1,000 images: cross-entropy of test rows ends at {ends[0]:.2f} with "
        f"the softmax, at {ends[1]:.2f} with adaptive DropMax"
    )
    figure_style.save(figure, path, title)


if __name__ == "__main__":
    main()
