"""What `concentration.py` looks at: a model in training, and some rows."""

import tempfile
from collections.abc import Callable
from collections.abc import Iterator
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

METHOD, ROWS = "uniform", 512


class Subject(NamedTuple):
    """A model that uniform draws train, and rows that it is asked for.

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
    from benchmarks.comparison import methods
    from benchmarks.comparison import rows as rows_lib
    from benchmarks.comparison import sets
    from benchmarks.comparison.model import make_model
    from benchmarks.comparison.train import batches

    with tempfile.NamedTemporaryFile(suffix=".npz") as file:
        sets.prepare(name, folder, file.name)
        data = rows_lib.load(file.name)
    keras.utils.set_random_seed(0)
    set_up = sets.SETS[name]
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
    from benchmarks.comparison import groups
    from benchmarks.comparison import groups_train

    job = groups.GroupsJob(*groups.SMALL[0], 128, 3000, METHOD)
    model, _ = groups_train.make_model(job)
    made = groups_train.Groups(job.classes, job.group)
    x, y = made.draw(ROWS, seed=8)
    source = groups_train.batches(made, job.batch, job.seed)
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
