"""How samples of hash tables follow the softmax: Fig. 3 of the LSH paper.

    python -m benchmarks.comparison.lsh_adapts

EU law is trained by the paper's rule (LSH embedding, SimHash, K = 9, L = 50).
Before, during and after the training, 512 test rows are queries. The target is
the softmax over the classes that are no labels of the row. LSH samples a class
in proportion to 1 - (1 - p^K)^L (theorems 1 and 2). Each row ranks the classes
by their target; curves and shares are means over the rows. The results are
benchmarks/results/comparison/lsh_adapts.json and lsh_adapts.png.
"""

import argparse
import os
import tempfile

import keras
import numpy as np
import tensorflow as tf

from benchmarks import figure_style
from benchmarks import measure
from benchmarks.comparison import methods
from benchmarks.comparison import rows as rows_lib
from benchmarks.comparison import sets
from benchmarks.comparison import train
from benchmarks.comparison.model import make_model
from benchmarks.comparison.results import FOLDER
from tfxclass.samplers import lsh_probability

SET, METHOD, SCHEMES = (
    "eurlex57k",
    "lsh_embedding_paper",
    ("embedding", "label"),
)
PARTS = (0.0, 0.1, 0.5, 1.0)  # of the training
ROWS, BEST = 512, 10


def found_by(sampler, scheme, features, labels, kernel):
    """The chance of each class to be in a row's buckets, float32 [n, N]."""
    sampler.scheme = scheme
    asked, valid = sampler.hashed_queries(features, labels, kernel)
    cosines = lsh_probability.cosines(asked, kernel, 0.0)
    in_table = lsh_probability.collision_probability(cosines).numpy()
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
    found = {"target": target, "uniform": np.ones(target.shape)}
    for scheme in SCHEMES:
        found[f"LSH {scheme}"] = found_by(
            head.sampler, scheme, features(words), labels, head.kernel
        )
    order = np.argsort(np.where(is_label, 1, -target), axis=1, kind="stable")
    ranked, sizes = {}, {}
    for name, law in found.items():
        sizes[name] = law.sum(axis=1).mean()
        law = np.where(is_label, 0, law)
        law /= law.sum(axis=1, keepdims=True)
        ranked[name] = np.take_along_axis(law, order, axis=1)
    return ranked, sizes


def row_of(step, ranked, sizes):
    """A row of the table, in percent, and the curves of the figure."""
    row = {"step": step}
    for name, law in ranked.items():
        share = law[:, :BEST].sum(axis=1).mean()
        row[f"10 best, {name}"] = 100 * float(share)
        if name != "target":
            apart = np.abs(law - ranked["target"]).sum(axis=1) / 2
            row[f"apart, {name}"] = 100 * float(apart.mean())
        if name.startswith("LSH"):
            row[f"classes, {name}"] = float(sizes[name])
    return row, {name: law.mean(axis=0) for name, law in ranked.items()}


def trained(data, rate, epochs):
    """What is measured before, during and after the training."""
    keras.utils.set_random_seed(0)
    set_up = sets.SETS[SET]
    head = methods.make_head(METHOD, {}, data, set_up, 0)
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
        yield row_of(done, *laws(model, head, features, words, labels))


def draw(points):
    """A panel for each point of the training."""
    figure, axes = figure_style.new_figure(rows=len(points), height=2.8)
    for one, (row, curves) in zip(axes, points, strict=True):
        for name, law in curves.items():
            ranks = np.unique(
                np.geomspace(1, len(law) - ROWS // 8, 60).astype(int)
            )
            one.plot(ranks, 100 * law[ranks - 1], label=name)
        one.set(title=f"step {row['step']:,}", xscale="log", yscale="log")
        one.set(ylabel="percent of the samples")
        figure_style.plain_ticks(one.xaxis)
    axes[-1].set(xlabel="classes, those with the most probability first")
    axes[0].legend()
    last = points[-1][0]
    figure_style.save(
        figure,
        os.path.join(FOLDER, "lsh_adapts.png"),
        f"After training, the 10 most probable classes get "
        f"{last['10 best, target']:.0f} % of the softmax and "
        f"{last['10 best, LSH embedding']:.0f} % of the samples by hashing",
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--data", default="../shared/data", help="folder of the data sets")
    add("--rate", type=float, default=6e-3)
    add("--epochs", type=float, default=5.0)
    args = parser.parse_args()
    train.use_one_thread()
    with tempfile.NamedTemporaryFile(suffix=".npz") as file:
        sets.prepare(SET, args.data, file.name)
        data = rows_lib.load(file.name)
    points = list(trained(data, args.rate, args.epochs))
    measure.save("comparison/lsh_adapts", [row for row, _ in points])
    draw(points)


if __name__ == "__main__":
    main()
