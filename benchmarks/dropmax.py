"""DropMax beside other softmaxes: the paper's table, on data that can be had.

    python -m benchmarks.dropmax [--sets ...] [--methods ...] [--seeds ...]

Test error and calibration, the mean of the seeds; the paper's figures 2 and 3.
The usual setting is trained with all seeds. Then others are, with the first
seed: the weights of the entropy, and the decays of the network's weights
besides the best of them. The setting with the least error on validation rows is
trained with the other seeds, too (`--usual`: nothing is chosen). What has a
result in benchmarks/cache/dropmax is not trained again, so the table may be
stopped and resumed. Rows of an earlier table stay. `--steps` is of a job, in
place of the set's own.
"""

import os
import statistics
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from benchmarks import dropmax_data as data_lib
from benchmarks import dropmax_train
from benchmarks import figure_style
from benchmarks import measure
from benchmarks.dropmax_data import Recipe
from benchmarks.dropmax_methods import METHODS

EPSILON = 1e-20  # of the paper's masks


class SetUp(NamedTuple):
    """A set, and how it is trained.

    Attributes:
        read: function of the data folder and a seed; a `DataSet`.
        steps: int. A job ends with the point of its curve that reaches them.
        l2: tuple, weight decays to try besides the usual one.
    """

    read: Callable
    steps: int
    recipe: Recipe = Recipe()
    l2: tuple = (0.0, 1e-5, 1e-3)


#: What the paper says of MNIST; the rate of dropout is ours.
PAPER = Recipe(rate=1e-4, rate_falls=False, dropout=0.5)


def _mnist(num_train):
    return lambda folder, seed: data_lib.mnist(folder, num_train, seed)


SETS = {
    "mnist_1k": SetUp(_mnist(1_000), 1000),
    "mnist_5k": SetUp(_mnist(5_000), 1200),
    "mnist_55k": SetUp(_mnist(55_000), 2000),
    # 5.5 epochs instead of 1.8.
    "mnist_55k_long": SetUp(_mnist(55_000), 6000),
    # As many steps as in the paper, 18 epochs.
    "mnist_55k_20k": SetUp(_mnist(55_000), 20_000),
    # The paper's settings, with fewer than its 20,000 steps.
    "mnist_1k_paper": SetUp(_mnist(1_000), 2000, PAPER, (0.0, 1e-3, 1e-2)),
    "omniglot": SetUp(data_lib.omniglot, 3000),
    # From 1e-3, or after half as many, methods are not done.
    "eurlex": SetUp(data_lib.eurlex, 3000, Recipe(rate=1e-2)),
    "generated": SetUp(data_lib.generated, 60),
}
CURVES = "mnist_1k_paper"
USUAL_SETS = ["mnist_1k", "mnist_5k", "mnist_55k", "omniglot", "eurlex"]


class Setting(NamedTuple):
    """What is chosen on validation rows.

    Attributes:
        l2: float, of the network's weights.
        entropy_weight: float, the paper's lambda; None is the head's own.
    """

    l2: float
    entropy_weight: float | None = None

    def __str__(self):
        weight = self.entropy_weight
        shown = "own" if weight is None else f"{weight:g}"
        return f"l2={self.l2:g},lambda={shown}"


#: What nothing chose.
USUAL = Setting(1e-4)


def results_of(args, name, method, train=None):
    """`(setting, tried, results)` of the usual setting and of a better one.

    Those there are, each with the results of its seeds, and of how many
    settings it is the best. `train` is a function of a setting and a seed, for
    jobs that have no result; None trains nothing.
    """
    folder = f"dropmax/{name}/{args.steps or SETS[name].steps}steps"

    def result(setting, seed):
        job = method.replace(" ", "_"), setting, f"seed={seed}"
        run = train and (lambda *_: train(setting, seed))
        return measure.once(folder, *job, run=run)

    def of_seeds(setting):
        found = [result(setting, seed) for seed in args.seeds]
        return [one for one in found if one is not None]

    usual, errors = of_seeds(USUAL), {}

    def errors_of(settings):
        """On validation rows, with the first seed; no test set chooses."""
        for setting in settings:
            if (found := result(setting, args.seeds[0])) is not None:
                errors[setting] = found["scores"]["validation 18"]["error"]
        return min(errors, key=errors.get, default=USUAL)

    weights = METHODS[method].entropy_weights
    best = errors_of([USUAL])
    if not args.usual:
        best = errors_of([USUAL._replace(entropy_weight=w) for w in weights])
        if len(errors) == len(weights):
            l2 = SETS[name].l2
            best = errors_of([best._replace(l2=value) for value in l2])
    found = [(USUAL, len(errors) if best == USUAL else 1, usual)]
    if best != USUAL:
        found.append((best, len(errors), of_seeds(best)))
    return [one for one in found if one[-1]]


def parse_arguments(argv=None):
    return measure.arguments(
        __doc__,
        argv,
        choices={"sets": SETS, "methods": METHODS},
        data="../shared/data",
        sets=USUAL_SETS,
        methods=list(METHODS),
        seeds=[0, 1, 2],
        steps=0,
        usual=False,
    )


def main(argv=None):
    """Trains what has no result yet, method by method."""
    args = parse_arguments(argv)
    for name in args.sets:
        set_up, data = SETS[name], {}
        for method in args.methods:

            def train(setting, seed, method=method):
                if seed not in data:
                    data[seed] = set_up.read(args.data, seed)
                steps = args.steps or set_up.steps
                return dropmax_train.train(
                    method, setting, data[seed], seed, steps, set_up.recipe
                )[0]

            results_of(args, name, method, train)
            tabulate(args)


def rows_of(args):
    """Rows of the table, one for each equation."""
    return [
        _row(name, method, equation, *found)
        for name in SETS
        for method in METHODS
        for found in results_of(args, name, method)
        for equation in ("18", "17")
        if f"test {equation}" in found[-1][0]["scores"]
    ]


def curves_of(args):
    """Points of the paper's figure 3 by method, means of the seeds, or None."""
    curves = {}
    for method in ("base", "adaptive"):
        found = results_of(args, CURVES, method)
        if not found:
            return None
        points = zip(*(result["curve"] for result in found[0][-1]))
        curves[method] = [
            {
                key: round(statistics.mean(p[key] for p in same), 4)
                for key in same[0]
            }
            for same in points
        ]
    return curves


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


def tabulate(args):
    """Writes dropmax.json and the figures of what there is."""
    if rows := rows_of(args):
        measure.save("dropmax", rows, ("set", "method", "setting"))
        draw_contours(os.path.join(measure.RESULTS, "dropmax_contours.png"))
        if curves := curves_of(args):
            path = os.path.join(measure.RESULTS, "dropmax_convergence.png")
            draw_curves(curves, path)


def draw_contours(path):
    """The paper's figure 2: softmax and DropMax of three classes in a plane.

    Masks are drawn for each point (equation 3).
    """
    random = np.random.default_rng(0)
    side = np.linspace(-3, 3, 80)
    points = np.stack(np.meshgrid(side, side), axis=-1)
    angles = np.pi / 2 + np.arange(3) * 2 * np.pi / 3
    exponentials = np.exp(points @ np.stack([np.cos(angles), np.sin(angles)]))
    figure, axes = figure_style.new_figure(rows=3, height=3.4)
    for axis, retain in zip(axes, ((1, 1, 1), (1, 0.6, 0.6), (0.6, 0.6, 0.6))):
        masks = random.uniform(size=exponentials.shape) < retain
        masked = masks * exponentials + EPSILON
        p = masked[..., 0] / masked.sum(axis=-1)
        shown = axis.contourf(side, side, p, np.linspace(0, 1, 11))
        figure.colorbar(shown, ax=axis, label="p of the upper class")
        axis.set_title(f"retained with {retain}")
    title = "Dropped classes blur the border between two classes"
    figure_style.save(figure, path, title)


def draw_curves(curves, path):
    """The paper's figure 3: cross-entropy of training and of test rows."""
    figure, (axis,) = figure_style.new_figure()
    names = {"base": "softmax", "adaptive": "adaptive DropMax"}
    for method, color in (("base", "black"), ("adaptive", "tab:blue")):
        points = curves[method]
        steps = [point["step"] for point in points]
        for part, style in (("train", "--"), ("test", "-")):
            losses = [point[part] for point in points]
            label = f"{names[method]}, {part}"
            axis.plot(steps, losses, style, color=color, label=label)
    axis.set(xlabel="training step", ylabel="cross-entropy", yscale="log")
    axis.legend()
    ends = [curves[method][-1]["test"] for method in names]
    title = (
        f"1,000 images: cross-entropy of test rows ends at {ends[0]:.2f} with "
        f"the softmax, at {ends[1]:.2f} with adaptive DropMax"
    )
    figure_style.save(figure, path, title)


if __name__ == "__main__":
    main()
