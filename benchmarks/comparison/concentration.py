"""How few classes carry the softmax and its gradient, over training.

    python -m benchmarks.comparison.concentration

Fig. 1 of Zhang et al. (AAAI 2018). CP_K is the sum of the K highest
probabilities. NCG_K (eq. 5) is the part of the gradient's energy, the sum of
(p - y)^2, that the K classes with the highest responses carry. Both are exact
means over 512 training rows of a model that is trained with uniform samples.
What has a result in benchmarks/cache/concentration is not run again.
"""

import functools
import sys
from collections.abc import Callable
from collections.abc import Iterator
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from benchmarks import glyphs
from benchmarks import glyphs_data
from benchmarks import measure
from benchmarks.comparison import methods
from benchmarks.comparison import sets as sets_lib
from benchmarks.comparison.train import batches
from benchmarks.comparison.train import make_model
from tfxclass import metrics

# Of the training, where the curves are taken.
PARTS = (0.0, 0.03, 0.1, 0.3, 1.0)
SHOWN = (1, 10, 100, 1000)
SHARE = 0.0115  # of the classes: the paper's 1,000 of 87,000
METHOD, ROWS, EPOCHS = "uniform", 512, 2.0


class Subject(NamedTuple):
    """A model trained with uniform samples, and the rows it is measured on."""

    model: keras.Model  # compiled, its output is over all classes
    batches: Iterator  # endless `(x, y)`
    steps: int  # of the whole training
    rows: Callable  # of places in `labels`: inputs of the model
    labels: np.ndarray  # int64 [rows, p], -1 is padding


def _text(name, folder):
    data = sets_lib.load(name, folder)
    keras.utils.set_random_seed(0)
    set_up = sets_lib.SETS[name]
    head = methods.make_head(METHOD, {}, data, set_up, seed=0)
    chosen = _some(data.train.num_rows)
    words = data.train.batch(chosen, data.length)
    return Subject(
        make_model(data, set_up, head, set_up.learning_rate),
        batches(data, set_up.batch_size, 0),
        int(EPOCHS * data.train.num_rows / set_up.batch_size),
        lambda at: {key: value[at] for key, value in words.items()},
        data.train.labels[chosen],
    )


def _glyphs():
    data = glyphs_data.load()
    model, _ = glyphs.make_model(METHOD, glyphs.STEPS, 0, data.num_classes)
    chosen = _some(len(data.y))
    return Subject(
        model,
        glyphs.batches(data, 0),
        glyphs.STEPS,
        lambda at: glyphs.pixels(data.x[chosen[at]]),
        data.y[chosen][:, None],
    )


def _some(count):
    random = np.random.default_rng(1)
    return random.choice(count, min(ROWS, count), replace=False)


def train(subject):
    """What is measured of a `Subject` along its training, a list of dicts."""
    step = tf.function(lambda x, y: subject.model.train_step((x, y)))
    found, done = [], 0
    for part in PARTS:
        for _ in range(int(part * subject.steps) - done):
            step(*next(subject.batches))
        done = int(part * subject.steps)
        found.append({"step": done, **point(subject)})
        print(f"step {done} of {subject.steps}", file=sys.stderr, flush=True)
    return found


def point(subject):
    head, labels = subject.model.layers[-1], subject.labels
    counts = {f"_{k}": k for k in SHOWN}
    counts[" of 1.15 %"] = round(SHARE * head.num_classes)
    kinds = {
        "CP": metrics.CumulativeProbability,
        "NCG": metrics.NormalizedCumulativeGradient,
    }
    measured = {
        name + of_count: kind(head, k)
        for name, kind in kinds.items()
        for of_count, k in counts.items()
    }
    for at in np.array_split(np.arange(len(labels)), 16):
        rows = tf.nest.map_structure(tf.constant, subject.rows(at))
        y_pred = subject.model(rows, training=False)
        for metric in measured.values():
            metric.update_state(labels[at], y_pred)
    return {name: round(float(m.result()), 3) for name, m in measured.items()}


def child(folder, name):
    # Glyphs take as many steps as on their page.
    return train(_glyphs() if name == "glyphs" else _text(name, folder))


def main():
    measure.run_child(child)
    args = measure.arguments(__doc__, data="../shared/data")
    rows, ask = [], functools.partial(measure.ask, args.data)
    for name in (*sets_lib.USUAL, "glyphs"):
        found = measure.once("concentration", name, run=ask)
        if "error" in found:
            sys.exit(f"FAILED {name}: {found['error']}")
        rows += [{"set": name, **point} for point in found]
    measure.save("comparison/concentration", rows, ("set",))


if __name__ == "__main__":
    main()
