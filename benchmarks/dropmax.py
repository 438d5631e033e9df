"""DropMax beside other softmaxes: the paper's table, on data that can be had.

    python -m benchmarks.dropmax [--sets ...] [--methods ...] [--seeds ...]

Test error and calibration, the median of the seeds; a convergence plot (the
paper's figure 3) and one of the retain probabilities (figure 4). Weight decay
and the weight of the entropy are chosen on validation rows, for each set and
method (`--default-weights`: each head's own). A job is a model; one that has a
result is not trained again, so the table may be stopped and resumed. CIFAR-100
needs the user's own folder (`--cifar100`). `verses` has 10,000 classes, of
which a step of its methods draws 1,024.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from benchmarks import dropmax_data as data_lib
from benchmarks import measure

CACHE = os.path.join(measure.FOLDER, "cache", "dropmax")
POINTS, BINS = 12, 15
SAMPLES = 100  # masks of equation 17
CURVE_ROWS = 2_000


class SetUp(NamedTuple):
    """A set, and how it is trained.

    Attributes:
        read: function of the arguments and a seed; a `DataSet`.
        steps: int, what two cores do in about half a minute.
        batch: int.
        rate: float, the first learning rate.
    """

    read: Callable
    steps: int
    batch: int = 50
    rate: float = 1e-3


SETS = {
    "mnist_1k": SetUp(lambda a, s: data_lib.mnist(a.data, 1_000, s), 1000),
    "mnist_5k": SetUp(lambda a, s: data_lib.mnist(a.data, 5_000, s), 1200),
    "mnist_55k": SetUp(lambda a, s: data_lib.mnist(a.data, 55_000, s), 2000),
    "omniglot": SetUp(lambda a, s: data_lib.omniglot(a.data, s), 1000),
    "eurlex": SetUp(lambda a, s: data_lib.eurlex(a.data, s), 1500),
    "verses": SetUp(
        lambda a, s: data_lib.verses(a.data, s), 1500, batch=250, rate=3e-3
    ),
    "cifar100": SetUp(lambda a, s: data_lib.cifar100(a.cifar100, s), 9000),
    "generated": SetUp(lambda a, s: data_lib.generated(s), 60),
}
CURVES = ("base", "sparsemax", "attention", "adaptive", "posterior")
USUAL = ["mnist_1k", "mnist_5k", "mnist_55k", "omniglot", "eurlex", "verses"]
MOST_DRAWN = 1_000  # classes for which equation 17 is computed


def parse_arguments(argv=None):
    from benchmarks.dropmax_jobs import L2
    from benchmarks.dropmax_methods import METHODS
    from benchmarks.dropmax_methods import SAMPLED_METHODS

    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.dropmax", description=__doc__
    )
    add = parser.add_argument
    add("--data", default="../shared/data", help="folder of the data sets")
    add("--cifar100", help="folder of its binary version")
    add("--sets", nargs="+", choices=SETS, default=USUAL)
    names = [*METHODS, *SAMPLED_METHODS]
    add("--methods", nargs="+", choices=names, default=names)
    add("--seeds", nargs="+", type=int, default=[0, 1, 2])
    add("--steps", type=int, help="of a job, instead of the set's own")
    add("--l2", nargs="+", type=float, default=L2, help="that are tried")
    add("--default-weights", action="store_true", help="of the entropy")
    add("--figures", action="store_true", help="run nothing, only draw")
    add("--smoke", action="store_true", help="tiny made-up data, for a look")
    add("--jobs", help="folder of their results (benchmarks/cache/dropmax)")
    add("--out", default=measure.RESULTS, help="folder of table and figures")
    args = parser.parse_args(argv)
    if args.smoke:
        args.sets, args.seeds = ["generated"], args.seeds[:1]
        args.l2, args.default_weights = [1e-4], True
    args.jobs = args.jobs or CACHE
    return args


def make_model(method, setting, data, seed, steps, rate=1e-3):
    import keras

    from benchmarks import dropmax_methods
    from tfxclass import optimizers

    keras.utils.set_random_seed(seed)
    network = dropmax_methods.network_of(data.train[0])
    head = dropmax_methods.method(method).make(
        data.num_classes, seed, setting.entropy_weight
    )
    model = keras.Sequential([*network(setting.l2), head])
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay(
        [steps // 3, 2 * steps // 3], [rate, rate / 10, rate / 100]
    )
    # With a sampler, a step moves the rows that it draws.
    is_sampled = getattr(head, "sampler", None) is not None
    kind = optimizers.LazyAdam if is_sampled else keras.optimizers.Adam
    model.compile(kind(schedule), loss=head.loss)
    return model


def features_of(model, x):
    """What the head reads, for all rows."""
    import keras

    encoder = keras.Model(model.inputs, model.layers[-2].output)
    return encoder.predict(x, batch_size=500, verbose=0)


def predict(head, features, predict_samples=None):
    """Probabilities by equation 18, or by 17."""
    import tensorflow as tf

    before = getattr(head, "predict_samples", None)
    head.predict_samples = predict_samples
    answer = tf.function(lambda x: head.activate(head.logits(x)))
    outputs = answer(features).numpy()
    head.predict_samples = before
    return outputs


def scores(probabilities, labels):
    """Error in percent, and expected calibration error."""
    best = probabilities.argmax(axis=1)
    confidence = probabilities.max(axis=1)
    hits = best == labels
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = np.bincount(bins, confidence - hits, BINS)
    return {
        "error": 100 * float(np.mean(~hits)),
        "ece": float(np.abs(gaps).sum() / len(labels)),
    }


def train(method, setting, data, seed, steps, batch=50, rate=1e-3):
    """A job's result: scores of either equation, curve, mean rho."""
    model = make_model(method, setting, data, seed, steps, rate)
    x, y = data.train
    per_epoch = max(1, steps // POINTS)
    random = np.random.default_rng(seed)
    curve, done, clock = [], 0, 0.0
    held_x, held_y = (part[:CURVE_ROWS] for part in data.validation)
    while done < steps:
        order = _order(random, len(y), per_epoch * batch)
        begin = time.perf_counter()
        model.fit(x[order], y[order], batch, shuffle=False, verbose=0)
        clock += time.perf_counter() - begin
        done += per_epoch
        answers = model.predict(held_x, batch_size=500, verbose=0)
        curve.append({"step": done, **scores(answers, held_y)})
    result = {"seconds": clock, "curve": curve}
    result["scores"] = all_scores(model, method, data)
    if method in ("attention", "adaptive", "posterior"):
        result["retain"] = mean_retain(model, data)
    return result


def all_scores(model, method, data):
    """Scores of each part and equation."""
    equations = {"18": None}
    is_drawn = method.split()[0] in ("random", "adaptive", "posterior")
    if is_drawn and data.num_classes <= MOST_DRAWN:
        equations["17"] = SAMPLES
    found = {}
    for part in ("validation", "test"):
        x, y = getattr(data, part)
        features = features_of(model, x)
        for name, samples in equations.items():
            answers = predict(model.layers[-1], features, samples)
            found[f"{part} {name}"] = scores(answers, y)
    return found


def _order(random, count, wanted):
    """`wanted` rows, each as often as any other but by one."""
    passes = [random.permutation(count) for _ in range(-(-wanted // count))]
    return np.concatenate(passes)[:wanted]


def mean_retain(model, data, most=10):
    """Mean rho of the commonest classes, a row for each class of test rows."""
    import tfxclass

    x, y = data.test
    common = np.argsort(-np.bincount(y), kind="stable")[:most]
    common.sort()
    few = np.concatenate([np.flatnonzero(y == c)[:100] for c in common])
    both = tfxclass.retain_probabilities(model)
    _, rho = both.predict(x[few], verbose=0)
    rows = [rho[y[few] == c].mean(axis=0)[common] for c in common]
    return np.array(rows).astype(float).round(4).tolist()


def steps_of(args, name):
    return args.steps or SETS[name].steps


def run(args):
    """Trains what has no result yet, method by method."""
    from benchmarks import dropmax_jobs

    for name in args.sets:
        set_up, steps, data = SETS[name], steps_of(args, name), {}
        for method in methods_of(args, name):
            while job := dropmax_jobs.pending(args, name, steps, method):
                setting, seed, path = job
                if seed not in data:
                    data = {seed: set_up.read(args, seed)}
                result = train(
                    method,
                    setting,
                    data[seed],
                    seed,
                    steps,
                    set_up.batch,
                    set_up.rate,
                )
                measure.write(path + ".part", result)
                os.replace(path + ".part", path)
                print(name, method, setting, seed, result["scores"], flush=True)
            tabulate(args)


def methods_of(args, name):
    """The methods of a set that `args` name."""
    from benchmarks import dropmax_methods

    found = dropmax_methods.METHODS
    if name == "verses":
        found = dropmax_methods.SAMPLED_METHODS
    return [method for method in found if method in args.methods]


def curves_of(name):
    """The methods of a set that figure 3 shows."""
    from benchmarks import dropmax_methods

    return dropmax_methods.SAMPLED_METHODS if name == "verses" else CURVES


def load(args, name, method):
    """`(setting, results)` of a row's seeds, those there are."""
    from benchmarks import dropmax_jobs

    return dropmax_jobs.load(args, name, steps_of(args, name), method)


def shown_sets(args):
    """Those with results of this or of an earlier run."""
    names = args.sets if args.smoke else [n for n in SETS if n != "generated"]
    return [
        name
        for name in names
        if any(load(args, name, m)[1] for m in curves_of(name))
    ]


def rows_of(args):
    """Rows of the table, one for each equation."""
    from benchmarks import dropmax_methods

    rows = []
    for name in shown_sets(args):
        for method in dropmax_methods.names():
            setting, found = load(args, name, method)
            for equation in ("18", "17"):
                key = f"test {equation}"
                if not found or key not in found[0]["scores"]:
                    continue
                row = _row(name, method, equation, found)
                rows.append({**row, **_shown_setting(setting)})
    return rows


def _row(name, method, equation, found):
    def of(part, score):
        each = (r["scores"][f"{part} {equation}"][score] for r in found)
        return [*each]

    errors = of("test", "error")
    drawn = "17" if equation == "17" else "18"
    shown = method if method.split()[0] in _PLAIN else f"{method} ({drawn})"
    return {
        "set": name,
        "method": shown,
        "seeds": len(found),
        "error_%": round(statistics.median(errors), 2),
        "mean_%": round(statistics.mean(errors), 2),
        **_standard_error(errors),
        "least": round(min(errors), 2),
        "most": round(max(errors), 2),
        "ece": round(statistics.median(of("test", "ece")), 4),
        "validation_error_%": round(
            statistics.median(of("validation", "error")), 2
        ),
        "train_s": round(statistics.median(r["seconds"] for r in found), 1),
    }


def _standard_error(values):
    """Of their mean, if there are several; a dict."""
    if len(values) < 2:
        return {}
    error = statistics.stdev(values) / len(values) ** 0.5
    return {"standard_error": round(error, 2)}


def _shown_setting(setting):
    weight = setting.entropy_weight
    return {"l2": setting.l2, "lambda": "own" if weight is None else weight}


_PLAIN = ("base", "sampled", "sparsemax")


def command(args):
    """How the models of the table are trained, a line of a shell."""
    from benchmarks.dropmax_jobs import L2

    words = ["python -m benchmarks.dropmax"]
    if args.default_weights:
        words.append("--default-weights")
    if tuple(args.l2) != L2:
        words += ["--l2", *(f"{x:g}" for x in args.l2)]
    return " ".join(words)


def tabulate(args):
    """Writes dropmax.json and the figures of what there is."""
    from benchmarks import dropmax_figures

    rows = rows_of(args)
    if not rows:
        return
    record = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": measure.machine(),
        "command": command(args),
        "rows": rows,
    }
    measure.write(os.path.join(args.out, "dropmax.json"), record)
    dropmax_figures.draw_curves(args)
    dropmax_figures.draw_retain(args)


def main(argv=None):
    args = parse_arguments(argv)
    os.makedirs(args.out, exist_ok=True)
    if not args.figures:
        run(args)
    tabulate(args)
    print(measure.table(rows_of(args)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
