"""How samples of hash tables follow the softmax: Fig. 3 of the LSH paper.

    python -m benchmarks.comparison.lsh_adapts --rates 0.003 0.012

EU law is trained by the paper's two rules (SimHash, K = 9, L = 50), each at its
own rate. Before, during and after the training, 512 test rows are queries. The
target is the softmax over the classes that are no labels of the row. LSH
samples a class in proportion to 1 - (1 - p^K)^L (theorems 1 and 2). Each row
ranks the classes by their target. "common" is the length of the mean of all
unit class vectors.
"""

import keras
import numpy as np
import tensorflow as tf

from benchmarks import figure_style
from benchmarks import measure
from benchmarks.comparison import methods
from benchmarks.comparison import sets
from benchmarks.comparison import train
from benchmarks.comparison.train import make_model

SET, SCHEMES = "eurlex57k", ("embedding", "label")
PARTS = (0.0, 0.1, 0.5, 1.0)  # of the training
ROWS, BEST = 512, 10


def found_by(sampler, features, labels, kernel):
    """The chance of each class to be in a row's buckets, float32 [n, N]."""
    asked, valid = sampler.hashed_queries(features, labels, kernel)
    asked, rows = (tf.math.l2_normalize(x, axis=-1) for x in (asked, kernel))
    cosines = np.einsum("bpd,nd->bpn", asked, rows).clip(-1, 1)
    in_table = 1 - np.arccos(cosines) / np.pi
    tables = sampler.tables
    log_none = tables.num_tables * np.log1p(-(in_table**tables.num_hashes))
    none = np.where(valid[:, :, None], log_none, 0.0).sum(axis=1)
    return -np.expm1(none)


def laws(model, head, features, words, labels):
    """Normalized laws, classes in the target's order, and their first sums."""
    target = np.array(model(words), np.float64)
    is_label = np.zeros(target.shape, bool)
    rows, _ = np.nonzero(labels >= 0)
    is_label[rows, labels[labels >= 0]] = True
    lsh = found_by(head.sampler, features(words), labels, head.kernel)
    found = {"target": target, "uniform": np.ones(target.shape), "LSH": lsh}
    order = np.argsort(np.where(is_label, 1, -target), axis=1, kind="stable")
    ranked = {}
    for name, law in found.items():
        law = np.where(is_label, 0, law)
        law /= law.sum(axis=1, keepdims=True)
        ranked[name] = np.take_along_axis(law, order, axis=1)
    unit = tf.math.l2_normalize(head.kernel, axis=1)
    common = tf.norm(tf.reduce_mean(unit, axis=0))
    return ranked, {"classes": lsh.sum(axis=1).mean(), "common": common}


def row_of(scheme, step, ranked, about):
    """A row of the table, in percent, and the curves of the figure."""
    row = {"trained by": f"LSH {scheme}", "step": step}
    for name, law in ranked.items():
        share = law[:, :BEST].sum(axis=1).mean()
        row[f"10 best, {name}"] = 100 * float(share)
        if name != "target":
            apart = np.abs(law - ranked["target"]).sum(axis=1) / 2
            row[f"apart, {name}"] = 100 * float(apart.mean())
    row |= {name: float(value) for name, value in about.items()}
    return row, {name: law.mean(axis=0) for name, law in ranked.items()}


def trained(data, scheme, rate, epochs):
    """What is measured before, during and after the training."""
    keras.utils.set_random_seed(0)
    set_up = sets.SETS[SET]
    head = methods.make_head(f"lsh_{scheme}_paper", {}, data, set_up, 0)
    model = make_model(data, set_up, head, rate)
    features = keras.Model(model.inputs, model.layers[-1].input)
    step = tf.function(lambda x, y: model.train_step((x, y)))
    chosen = np.arange(min(ROWS, data.test.num_rows))
    words = data.test.batch(chosen, data.length)
    labels = data.test.labels[chosen]
    source = train.batches(data, set_up.batch_size, 0)
    steps, done = int(epochs * data.train.num_rows / set_up.batch_size), 0
    for part in PARTS:
        for done in range(done, int(part * steps)):
            used = done / steps
            model.optimizer.learning_rate = rate * train.falling(used)
            step(*next(source))
        done = int(part * steps)
        yield row_of(scheme, done, *laws(model, head, features, words, labels))


def draw(points):
    """A panel for the begin and the end of each training."""
    points = [points[i] for i in (0, len(PARTS) - 1, len(PARTS), -1)]
    figure, axes = figure_style.new_figure(rows=len(points), height=2.8)
    for one, (row, curves) in zip(axes, points, strict=True):
        for name, law in curves.items():
            ranks = np.unique(
                np.geomspace(1, len(law) - ROWS // 8, 60).astype(int)
            )
            one.plot(ranks, 100 * law[ranks - 1], label=name)
        one.set(title=f"{row['trained by']}, step {row['step']:,}")
        one.set(xscale="log", yscale="log", ylabel="percent of the samples")
        figure_style.plain_ticks(one.xaxis)
    axes[-1].set(xlabel="classes, those with the most probability first")
    axes[0].legend()
    first, last = points[1][0], points[-1][0]
    figure_style.save(
        figure,
        measure.result_path("comparison/lsh_adapts.png"),
        "Share of the samples of the 10 most probable classes, after training: "
        f"LSH embedding {first['10 best, LSH']:.0f} %, "
        f"LSH label {last['10 best, LSH']:.0f} %",
    )


def main():
    args = measure.arguments(
        __doc__, data="../shared/data", rates=[0.003, 0.012], epochs=3.0
    )
    measure.use_one_thread()
    data = sets.load(SET, args.data)
    points = [
        point
        for scheme, rate in zip(SCHEMES, args.rates, strict=True)
        for point in trained(data, scheme, rate, args.epochs)
    ]
    measure.save("comparison/lsh_adapts", [row for row, _ in points])
    draw(points)


if __name__ == "__main__":
    main()
