"""A job of the comparison: one model in training, and its learning curve.

Each job has a process of its own. The learning rate falls to nothing with the
steps, so that a curve is flat at its end.
"""

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
from benchmarks.comparison.model import SampleWatch
from benchmarks.comparison.model import make_model

EVALUATED = 512  # rows a batch of the test
K = 10
ONE_IN = 10  # training rows, for validation


class Job(NamedTuple):
    """A model to train.

    Attributes:
        set: str, name in `SETS`.
        method: str, name in `METHODS`.
        options: dict, what is varied.
        seed: int.
        epochs: float, the budget.
        rate: float, of the first step; None is the set's.
        batch_size: int, or None for the set's.
        points: int, of the curve; 1 is the end alone.
        validation: bool, whether a training row in ten is the test.
    """

    set: str
    method: str
    options: dict = {}
    seed: int = 0
    epochs: float = 1.0
    rate: float | None = None
    batch_size: int | None = None
    points: int = 8
    validation: bool = False

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
    """Runs the jobs without a result, and reads all results.

    A job that fails is told of and leaves no result, so that the next run
    tries it again.

    Args:
        jobs: list of `Job`.
        folder: of the shared data.
        name: str, of the folder of results in the cache.

    Returns:
        list of `(job, result)`, without those that failed.
    """
    found = []
    for job in jobs:

        def run(_, job=job):
            return measure.ask(folder, *job)

        result = measure.once(name, job.name, run=run)
        if "error" not in result:
            found.append((job, result))
    return found


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
    """A function of a batch of words: ids of its best classes."""
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
                "overlap": watch.overlap(),
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
    """The model of a job and its result, a dict.

    Args:
        job: `Job`.
        data: `DataSet`.
    """
    keras.utils.set_random_seed(job.seed)
    set_up = sets.SETS[job.set]
    set_up = set_up._replace(batch_size=job.batch_size or set_up.batch_size)
    steps = steps_of(job, data, set_up)
    head = methods.make_head(
        job.method, job.options, data, set_up, job.seed, steps
    )
    model = make_model(data, set_up, head, job.rate or set_up.first_rate)
    watch = SampleWatch(head)
    curve = learning_curve(model, watch, data, set_up, job)
    return model, {
        "date": time.strftime("%Y-%m-%d"),
        "machine": measure.machine(),
        "num_sampled": getattr(head, "num_sampled", None),
        "classes_per_row": watch.classes_per_row(),
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
