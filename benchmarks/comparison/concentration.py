"""How few classes carry the softmax and its gradient, over training.

    python -m benchmarks.comparison.concentration [--sets ...] [--epochs 2]

Fig. 1 of Zhang et al. (AAAI 2018) on the sets of the comparison, on classes in
groups of 50 and on glyphs. CP_K is the sum of the K highest probabilities.
NCG_K (eq. 5) is the part of the gradient's energy, the sum of (p - y)^2, that
the K classes with the highest responses carry. Both are exact means over 512
training rows of a model that is trained with uniform samples. The results are
benchmarks/results/comparison/concentration.json. Each set runs in a process of
its own; its result is kept in benchmarks/cache/concentration.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from collections.abc import Iterator
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from benchmarks import measure
from benchmarks.comparison import groups
from benchmarks.comparison import methods
from benchmarks.comparison import rows as rows_lib
from benchmarks.comparison import sets as sets_lib
from benchmarks.comparison.model import make_model
from benchmarks.comparison.train import batches

NAME = "comparison/concentration"
GLYPHS = os.path.join(measure.CACHE, "glyphs")
SETS = [name for name in sets_lib.SETS if name not in sets_lib.EXTRA]
SETS += ["groups", "glyphs"]
# Of the training, where the curves are taken.
PARTS = (0.0, 0.03, 0.1, 0.3, 1.0)
SHOWN = (1, 10, 100, 1000)
SHARE = 0.0115  # of the classes: the paper's 1,000 of 87,000


def curves(probabilities, targets):
    """CP_K and NCG_K for every K, means over the rows.

    Args:
        probabilities, targets: float `[rows, num_classes]`.

    Returns:
        `(CP, NCG)`, float64 `[num_classes]`; index K - 1 holds the value at K.
    """
    p = np.asarray(probabilities, np.float64)
    energy = (p - targets) ** 2
    whole = np.maximum(energy.sum(axis=1, keepdims=True), 1e-300)
    # Both sums run over the classes with the highest responses (eq. 5). The
    # responses rank the classes as the probabilities do.
    order = np.argsort(-p, axis=1, kind="stable")
    return tuple(
        np.cumsum(np.take_along_axis(part, order, 1), axis=1).mean(axis=0)
        for part in (p, energy / whole)
    )


def targets_of(labels, num_classes):
    """Labels in equal parts, float64 `[rows, num_classes]`."""
    targets = np.zeros((len(labels), num_classes))
    for row, own in zip(targets, labels):
        own = np.unique(own[own >= 0])
        row[own] = 1 / max(len(own), 1)
    return targets


METHOD, ROWS = "uniform", 512


class Subject(NamedTuple):
    """A model trained with uniform samples, and the rows it is measured on.

    Attributes:
        model: a compiled Keras model; its output is over all classes.
        batches: endless `(x, y)`.
        steps: int, of the whole training.
        rows: function of places in `labels`, int `[n]`: inputs of the model.
        labels: int64 `[rows, p]`, -1 is padding.
        num_classes: int.
    """

    model: keras.Model
    batches: Iterator
    steps: int
    rows: Callable
    labels: np.ndarray
    num_classes: int


def make(name, data, epochs):
    """The `Subject` of a set.

    Args:
        name: str, in `sets.SETS`, or "groups" or "glyphs".
        data: folder, of the texts or of the glyphs; groups need none.
        epochs: float, of texts; the others take as many steps as their pages.
    """
    if name == "groups":
        return _groups()
    return _glyphs(data) if name == "glyphs" else _text(name, data, epochs)


def _text(name, folder, epochs):
    with tempfile.NamedTemporaryFile(suffix=".npz") as file:
        sets_lib.prepare(name, folder, file.name)
        data = rows_lib.load(file.name)
    keras.utils.set_random_seed(0)
    set_up = sets_lib.SETS[name]
    head = methods.make_head(METHOD, {}, data, set_up, seed=0)
    chosen = _some(data.train.num_rows)
    words = data.train.batch(chosen, data.length)
    return Subject(
        make_model(data, set_up, head, set_up.learning_rate),
        batches(data, set_up.batch_size, 0),
        int(epochs * data.train.num_rows / set_up.batch_size),
        lambda at: {key: value[at] for key, value in words.items()},
        data.train.labels[chosen],
        data.num_classes,
    )


def _groups():
    job = groups.GroupsJob(*groups.SMALL[0], 128, 3000, METHOD)
    model, _ = groups.make_model(job)
    made = groups.Groups(job.classes, job.group)
    x, y = made.sample(ROWS, seed=8)
    source = groups.batches(made, job.batch, job.seed)
    return Subject(
        model, source, job.steps, lambda at: x[at], y[:, None], job.classes
    )


def _glyphs(folder):
    from benchmarks import glyphs
    from benchmarks import glyphs_data

    data = glyphs_data.load(folder)
    job = glyphs.GlyphsJob(METHOD, glyphs.STEPS)
    model, _, _ = glyphs.make_model(job, data.num_classes)
    chosen = _some(len(data.y))
    return Subject(
        model,
        glyphs.batches(data, job.seed),
        job.steps,
        lambda at: glyphs.pixels(data.x[chosen[at]]),
        data.y[chosen][:, None],
        data.num_classes,
    )


def _some(count):
    random = np.random.default_rng(1)
    return random.choice(count, min(ROWS, count), replace=False)


def probabilities(subject, at):
    """float32 `[n, num_classes]` of the rows `at`."""
    rows = tf.nest.map_structure(tf.constant, subject.rows(at))
    return subject.model(rows, training=False).numpy()


def train(subject):
    """What is measured of a `Subject` along its training, a list of dicts."""
    step = tf.function(lambda x, y: subject.model.train_step((x, y)))
    labels, num_classes = subject.labels, subject.num_classes
    found, done = [], 0
    for part in PARTS:
        for _ in range(int(part * subject.steps) - done):
            step(*next(subject.batches))
        done = int(part * subject.steps)
        both = [np.zeros(num_classes)] * 2
        for at in np.array_split(np.arange(len(labels)), 16):
            targets = targets_of(labels[at], num_classes)
            new = curves(probabilities(subject, at), targets)
            weight = len(at) / len(labels)
            both = [old + weight * one for old, one in zip(both, new)]
        found.append(point(done, *both))
        print(f"step {done} of {subject.steps}", file=sys.stderr, flush=True)
    return found


def point(step, cp, ncg):
    """A row of the table."""
    row = {"step": step}
    for label, curve in (("CP", cp), ("NCG", ncg)):
        for n in SHOWN:
            row[f"{label}_{n}"] = round(float(curve[min(n, len(cp)) - 1]), 3)
        share = float(curve[round(SHARE * len(cp)) - 1])
        row[f"{label} of 1.15 %"] = round(share, 3)
    return row


def child(name, folder, epochs):
    """What is measured of a set, a list of dicts."""
    return train(make(name, folder, epochs))


def main():
    measure.run_child(child)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--data", default="../shared/data", help="folder of the data sets")
    add("--glyphs", default=GLYPHS, help="folder of benchmarks.glyphs")
    add("--sets", nargs="+", choices=(*SETS, "generated"), default=SETS)
    add("--epochs", type=float, default=2.0, help="of texts")
    args = parser.parse_args()
    found = {}
    for name in args.sets:
        folder = args.glyphs if name == "glyphs" else args.data
        path = f"concentration/{name},epochs={args.epochs:g}.json"
        found[name] = measure.kept(
            os.path.join(measure.CACHE, path),
            lambda job=(name, folder, args.epochs): measure.ask(*job),
        )
        if "error" in found[name]:
            sys.exit(f"FAILED {name}: {found[name]['error']}")
    save(found)


def save(found):
    """The table; rows of sets that were not run stay."""
    rows = [
        {"set": name, **row} for name, points in found.items() for row in points
    ]
    rows = measure.with_earlier(NAME, rows, ("set",))
    rows.sort(key=lambda row: (row["set"], row["step"]))
    measure.save(NAME, rows)


if __name__ == "__main__":
    main()
