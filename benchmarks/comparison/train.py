"""A job of the comparison: one model in training, and its learning curve.

Each job has a process of its own. The learning rate falls to nothing with the
steps, so that a curve is flat at its end.
"""

import functools
import math
import time
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

import tfxclass
from benchmarks import measure
from benchmarks.comparison import methods
from benchmarks.comparison import rows
from benchmarks.comparison import sets
from tfxclass.rows import search

EVALUATED = 512  # rows a batch of the test
K = 10
ONE_IN = 10  # training rows, for validation


class Job(NamedTuple):
    """A model to train."""

    set: str  # in `SETS`
    method: str  # in `METHODS`
    options: dict = {}  # what is varied
    seed: int = 0
    epochs: float = 1.0
    rate: float | None = None  # of the first step; None is the set's
    batch_size: int | None = None  # None is the set's
    points: int = 8  # of the curve; 1 is the end alone
    validation: bool = False  # whether a training row in ten is the test

    @property
    def name(self):
        """Of its result: what differs from the defaults."""
        usual = Job("", "")._asdict()
        fields = {**self._asdict(), "options": text_of(self.options) or {}}
        shown = [f"{k}={v}" for k, v in fields.items() if v != usual[k]]
        return ",".join(shown)


def text_of(options):
    """What is varied, in a word: `num_trees=5`."""
    return ",".join(f"{name}={value}" for name, value in options.items())


def ends_of(jobs, folder, name="comparison"):
    """`(job, result)` of the jobs; those without a result are run first.

    A job that fails is told of and left out, and the next run tries it again.
    """
    found = []
    for job in jobs:
        ask = functools.partial(measure.ask, folder, *job)
        result = measure.once(name, job.name, run=lambda _, ask=ask: ask())
        if "error" not in result:
            found.append((job, result))
    return found


def make_model(data, set_up, head, learning_rate):
    """A compiled model: sum of weighted word embeddings -> `head`.

    With an activation it is the hidden layer of a network on sparse inputs. A
    cosine needs no mean.
    """
    inputs = {
        "ids": keras.Input((data.length,), dtype="int32", name="ids"),
        "values": keras.Input((data.length,), name="values"),
    }
    features = tfxclass.layers.SparseDense(
        data.num_words,
        set_up.dim,
        activation=set_up.activation,
        use_bias=set_up.activation is not None,
        kernel_initializer=keras.initializers.RandomNormal(
            stddev=set_up.dim**-0.5, seed=0
        ),
    )(inputs["ids"], inputs["values"])
    if set_up.scale and not isinstance(head, tfxclass.layers.ClassHead):
        # A head of dot products alone gets features of the same length.
        features = set_up.scale * keras.layers.UnitNormalization()(features)
    model = keras.Model(inputs, head(features))
    optimizer = tfxclass.optimizers.LazyAdam(learning_rate)
    model.compile(optimizer, loss=head.loss)
    optimizer.build(model.trainable_variables)
    return model


class SampleWatch:
    """Keeps the last choice of a head's sampler."""

    def __init__(self, head):
        self.head = head
        self._ids = _any_length(tf.int64)
        self._targets = _any_length(tf.int64)
        self._queries = _any_length(tf.float32, 2)
        self._per_row = tf.Variable(0.0)
        self._sample, head.sampler.sample = head.sampler.sample, self._watched

    def _watched(self, queries, target_ids, kernel):
        sample = self._sample(queries, target_ids, kernel)
        self._ids.assign(sample.ids)
        self._targets.assign(tf.reshape(target_ids, [-1]))
        self._queries.assign(queries)
        self._per_row.assign(_classes_per_row(sample))
        return sample

    def classes_per_row(self):
        """Mean size of a row's softmax in the last step."""
        return float(self._per_row)

    def overlap(self):
        """Share of the optimal selection that the last step chose, or None.

        Optimal are, for each row of the batch, the classes with the greatest
        logits: as many as fill the step's places; labels are not counted.
        """
        ids, queries = self._ids.numpy(), self._queries.numpy()
        best, _ = search.top_k(
            tf.constant(queries),
            self.head.class_matrix.values(),
            max(len(ids) // len(queries), 1),
            normalize=self.head.similarity == "cosine",
        )
        best = np.setdiff1d(best.numpy(), self._targets.numpy())
        return float(np.isin(best, ids).mean()) if len(best) else None


def _classes_per_row(sample):
    if sample.mask is None:
        return tf.cast(tf.size(sample.ids), tf.float32)
    counts = tf.math.count_nonzero(sample.mask, axis=1, dtype=tf.float32)
    return tf.reduce_mean(counts)


def _any_length(dtype, rank=1):
    shape = [None] * rank
    return tf.Variable(tf.zeros([0] * rank, dtype), shape=shape)


def falling(used):
    """The factor of the first rate after the share `used` of the training."""
    return (1 + math.cos(math.pi * min(used, 1.0))) / 2


def batches(data, size, seed):
    """Endless shuffled batches `(words, labels)`, the same for all methods."""
    random = np.random.default_rng(seed)
    train = data.train
    size = min(size, train.num_rows)
    while True:
        order = random.permutation(train.num_rows)
        for start in range(0, len(order) - size + 1, size):
            which = order[start : start + size]
            yield train.batch(which, data.length, random), train.labels[which]


def make_search(model, num_classes):
    answer = tfxclass.top_k(model, k=min(K, num_classes))
    return tf.function(lambda words: answer(words)[0], reduce_retracing=True)


def precisions(search, data):
    """P@1, P@3, P@5, and the share of rows with a label among the 10 best."""
    found = []
    for start in range(0, data.test.num_rows, EVALUATED):
        stop = min(start + EVALUATED, data.test.num_rows)
        words = data.test.batch(np.arange(start, stop), data.length)
        found.append(search(words).numpy())
    found = np.concatenate(found)[:, np.newaxis, :]
    hits = (data.test.labels[:, :, np.newaxis] == found).any(axis=1)
    result = {
        f"precision@{k}": hits[:, :k].sum(axis=1).mean() / k for k in (1, 3, 5)
    }
    result["accuracy@10"] = hits.any(axis=1).mean()
    return {name: float(value) for name, value in result.items()}


def learning_curve(model, watch, data, set_up, job):
    """Trains; what is measured along the way, a list of dicts."""
    source = batches(data, set_up.batch_size, job.seed)
    step = tf.function(lambda x, y: model.train_step((x, y)))
    search = make_search(model, data.num_classes)
    x, y = next(batches(data, set_up.batch_size, job.seed))
    # Traced ahead of the clock. Nothing runs yet: indexes are built in it.
    step.get_concrete_function(x, y)
    steps_an_epoch = data.train.num_rows / len(y)
    # More of the points are early on, where curves are steep.
    due = [((i + 1) / job.points) ** 1.5 for i in range(job.points)]
    curve, clock, steps, used = [], measure.Stopwatch(), 0, 0.0
    first_rate = float(model.optimizer.learning_rate)
    while due:
        model.optimizer.learning_rate = first_rate * falling(used)
        with clock:
            loss = step(*next(source))["loss"]
            steps += 1
        epochs = steps / steps_an_epoch
        used = epochs / job.epochs
        if used < due[0]:
            continue
        loss = float(loss)
        if not math.isfinite(loss):
            raise ValueError(f"The loss was {loss} at step {steps}.")
        model.reset_metrics()  # the loss is the mean since the last point
        curve.append(
            {
                "step": steps,
                "epochs": epochs,
                "seconds": clock.wall,
                "cpu_seconds": clock.cpu,
                "loss": loss,
                "overlap": watch and watch.overlap(),
                **precisions(search, data),
            }
        )
        due = [point for point in due if point > used]
    return curve


def steps_of(job, data, set_up):
    """How many an adaptive allocation reckons with, int."""
    size = min(set_up.batch_size, data.train.num_rows)
    return max(round(job.epochs * data.train.num_rows / size), 1)


def trained(job, data):
    keras.utils.set_random_seed(job.seed)
    set_up = sets.SETS[job.set]
    set_up = set_up._replace(batch_size=job.batch_size or set_up.batch_size)
    steps = steps_of(job, data, set_up)
    head = methods.make_head(
        job.method, job.options, data, set_up, job.seed, steps
    )
    model = make_model(data, set_up, head, job.rate or set_up.first_rate)
    watch = SampleWatch(head) if getattr(head, "sampler", None) else None
    curve = learning_curve(model, watch, data, set_up, job)
    return model, {
        "date": time.strftime("%Y-%m-%d"),
        "machine": measure.machine(),
        "num_sampled": getattr(head, "num_sampled", None),
        "classes_per_row": watch and watch.classes_per_row(),
        "peak_gb": measure.peak_gb(),
        "curve": curve,
    }


def child(folder, *job):
    """The result of a `Job`, on one thread: seconds are of the steps."""
    measure.use_one_thread()
    job = Job(*job)
    data = sets.load(job.set, folder)
    if job.validation:
        data = rows.validation(data, ONE_IN)
    return trained(job, data)[1]
