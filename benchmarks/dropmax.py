"""DropMax beside other softmaxes: the paper's table, on data that can be had.

    python -m benchmarks.dropmax [--sets ...] [--methods ...] [--seeds ...]

Test error and calibration, the median of the seeds; a convergence plot (the
paper's figure 3) and one of the retain probabilities (figure 4). Weight decay
and the weight of the entropy are chosen on validation rows, for each set and
method (`--default-weights`: each head's own). A job is a model; one that has a
result is not trained again, so the table may be stopped and resumed. CIFAR-100
needs the user's own folder (`--cifar100`).
"""

import argparse
import os
import statistics
import sys
import time

import numpy as np

from benchmarks import dropmax_data as data_lib
from benchmarks import measure

CACHE = os.path.join(measure.FOLDER, "cache", "dropmax")
BATCH, RATE, POINTS, BINS = 50, 1e-3, 12, 15
SAMPLES = 100  # masks of equation 17
CURVE_ROWS = 2_000
# Steps of a job: what two cores do in about half a minute.
SETS = {
    "mnist_1k": (lambda a, s: data_lib.mnist(a.data, 1_000, s), 1000),
    "mnist_5k": (lambda a, s: data_lib.mnist(a.data, 5_000, s), 1200),
    "mnist_55k": (lambda a, s: data_lib.mnist(a.data, 55_000, s), 2000),
    "omniglot": (lambda a, s: data_lib.omniglot(a.data, s), 1000),
    "eurlex": (lambda a, s: data_lib.eurlex(a.data, s), 1500),
    "cifar100": (lambda a, s: data_lib.cifar100(a.cifar100, s), 9000),
    "generated": (lambda a, s: data_lib.generated(s), 60),
}
CURVES = ("base", "sparsemax", "attention", "adaptive", "posterior")
USUAL = ["mnist_1k", "mnist_5k", "mnist_55k", "omniglot", "eurlex"]


def parse_arguments(argv=None):
    from benchmarks.dropmax_jobs import L2
    from benchmarks.dropmax_methods import METHODS

    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.dropmax", description=__doc__
    )
    add = parser.add_argument
    add("--data", default="../shared/data", help="folder of the data sets")
    add("--cifar100", help="folder of its binary version")
    add("--sets", nargs="+", choices=SETS, default=USUAL)
    add("--methods", nargs="+", choices=METHODS, default=list(METHODS))
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


def make_model(method, setting, data, seed, steps):
    import keras

    from benchmarks import dropmax_methods

    keras.utils.set_random_seed(seed)
    shape = data.train[0].shape[1:]
    network = dropmax_methods.lenet if len(shape) > 1 else dropmax_methods.words
    head = dropmax_methods.METHODS[method].make(
        data.num_classes, seed, setting.entropy_weight
    )
    model = keras.Sequential([*network(shape, setting.l2), head])
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay(
        [steps // 3, 2 * steps // 3], [RATE, RATE / 10, RATE / 100]
    )
    model.compile(keras.optimizers.Adam(schedule), loss=head.loss)
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


def train(method, setting, data, seed, steps):
    """A job's result: scores of either equation, curve, mean rho."""
    model = make_model(method, setting, data, seed, steps)
    x, y = data.train
    per_epoch = max(1, steps // POINTS)
    random = np.random.default_rng(seed)
    curve, done, clock = [], 0, 0.0
    held_x, held_y = (part[:CURVE_ROWS] for part in data.validation)
    while done < steps:
        order = _order(random, len(y), per_epoch * BATCH)
        begin = time.perf_counter()
        model.fit(x[order], y[order], BATCH, shuffle=False, verbose=0)
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
    if method.split()[0] in ("random", "adaptive", "posterior"):
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
    return args.steps or SETS[name][1]


def run(args):
    """Trains what has no result yet, method by method."""
    from benchmarks import dropmax_jobs

    for name in args.sets:
        steps, data = steps_of(args, name), {}
        for method in args.methods:
            while job := dropmax_jobs.pending(args, name, steps, method):
                setting, seed, path = job
                if seed not in data:
                    data = {seed: SETS[name][0](args, seed)}
                result = train(method, setting, data[seed], seed, steps)
                measure.write(path + ".part", result)
                os.replace(path + ".part", path)
                print(name, method, setting, seed, result["scores"], flush=True)
            tabulate(args)


def load(args, name, method):
    """`(setting, results)` of a row's seeds, those there are."""
    from benchmarks import dropmax_jobs

    return dropmax_jobs.load(args, name, steps_of(args, name), method)


def shown_sets(args):
    """Those with results of this or of an earlier run."""
    names = args.sets if args.smoke else [n for n in SETS if n != "generated"]
    return [
        name for name in names if any(load(args, name, m)[1] for m in CURVES)
    ]


def rows_of(args):
    """Rows of the table, one for each equation."""
    from benchmarks.dropmax_methods import METHODS

    rows = []
    for name in shown_sets(args):
        for method in METHODS:
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
    shown = method if method in _PLAIN else f"{method} ({drawn})"
    return {
        "set": name,
        "method": shown,
        "seeds": len(found),
        "error_%": round(statistics.median(errors), 2),
        "least": round(min(errors), 2),
        "most": round(max(errors), 2),
        "ece": round(statistics.median(of("test", "ece")), 4),
        "validation_error_%": round(
            statistics.median(of("validation", "error")), 2
        ),
        "train_s": round(statistics.median(r["seconds"] for r in found), 1),
    }


def _shown_setting(setting):
    weight = setting.entropy_weight
    return {"l2": setting.l2, "lambda": "own" if weight is None else weight}


_PLAIN = ("base", "sampled uniform", "sampled learned", "sparsemax")


def tabulate(args):
    """Writes dropmax.json and the figures of what there is."""
    rows = rows_of(args)
    if not rows:
        return
    record = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": measure.machine(),
        "command": "python -m benchmarks.dropmax",
        "rows": rows,
    }
    measure.write(os.path.join(args.out, "dropmax.json"), record)
    draw_curves(args)
    draw_retain(args)


def _axes(count, width=5.0):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt.subplots(1, count, figsize=(width * count, 4), squeeze=False)


def draw_curves(args):
    """dropmax_convergence.png: error on validation rows against steps."""
    names = shown_sets(args)
    figure, axes = _axes(len(names))
    for ax, name in zip(axes[0], names):
        for method in CURVES:
            _, found = load(args, name, method)
            if not found:
                continue
            steps = [point["step"] for point in found[0]["curve"]]
            errors = np.median(
                [[p["error"] for p in r["curve"]] for r in found], axis=0
            )
            ax.plot(steps, errors, label=method)
        ax.set(title=name, xlabel="step", ylabel="error, %")
        ax.grid(alpha=0.3)
    axes[0][0].legend(fontsize=8)
    _save(figure, args, "dropmax_convergence.png")


def draw_retain(args):
    """dropmax_retain.png: mean rho for each class of test rows."""
    methods = ("attention", "adaptive", "posterior")
    first = shown_sets(args)[0]
    found = {m: load(args, first, m)[1][:1] for m in methods}
    found = {m: r[0]["retain"] for m, r in found.items() if r}
    if not found:
        return
    figure, axes = _axes(len(found), 4.5)
    for ax, (method, rho) in zip(axes[0], found.items()):
        image = ax.imshow(rho, vmin=0, vmax=1, cmap="viridis")
        ax.set(title=method, xlabel="class retained", ylabel="true class")
        figure.colorbar(image, ax=ax, shrink=0.8)
    _save(figure, args, "dropmax_retain.png")


def _save(figure, args, name):
    import matplotlib.pyplot as plt

    figure.tight_layout()
    figure.savefig(os.path.join(args.out, name), dpi=90)
    plt.close(figure)


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
