"""One job: a model in training, and its learning curve.

    python -m benchmarks.comparison.train JOB DATA

JOB is the JSON of a `Job`, DATA the file of its data set, as `rows.save`
writes it. The last line of output is the result, JSON. One thread, so that
seconds of the CPU are those of the steps.

The learning rate falls to nothing with the steps, so that a curve is flat at
its end.
"""

import json
import math
import sys
import time

import keras
import numpy as np
import tensorflow as tf

import tfxclass
from benchmarks import measure
from benchmarks.comparison import methods
from benchmarks.comparison import rows
from benchmarks.comparison.jobs import Job
from benchmarks.comparison.model import SampleWatch
from benchmarks.comparison.model import make_model
from benchmarks.comparison.sets import SETS
from benchmarks.comparison.sets import options_of

EVALUATED = 512  # rows a batch of the test
K = 10


def falling(used):
    """The factor of the first rate after the share `used` of the training."""
    return (1 + math.cos(math.pi * min(used, 1.0))) / 2


class Stopwatch:
    """Wall and CPU time of what runs in `with` blocks, added up."""

    wall = cpu = 0.0

    def __enter__(self):
        self._begin = time.perf_counter(), time.process_time()

    def __exit__(self, *_):
        wall, cpu = self._begin
        self.wall += time.perf_counter() - wall
        self.cpu += time.process_time() - cpu


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
    curve, clock, steps, used = [], Stopwatch(), 0, 0.0
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


def run(job, data):
    """The result of a job, a dict."""
    return trained(job, data)[1]


def trained(job, data):
    """The model of a job and its result, a dict.

    Args:
        job: `Job`.
        data: `DataSet`.
    """
    keras.utils.set_random_seed(job.seed)
    set_up = SETS[job.set]._replace(**options_of(job.set_up))
    steps = steps_of(job, data, set_up)
    head = methods.make_head(
        job.method, job.options, data, set_up, job.seed, steps
    )
    options = options_of(job.optimizer)
    rate = options.pop("learning_rate", set_up.first_rate)
    model = make_model(data, set_up, head, rate, **options)
    watch = SampleWatch(head)
    curve = learning_curve(model, watch, data, set_up, job)
    return model, {
        "job": job._asdict(),
        "date": time.strftime("%Y-%m-%d"),
        "machine": measure.machine(),
        "num_classes": data.num_classes,
        "num_sampled": getattr(head, "num_sampled", None),
        "classes_per_row": watch.classes_per_row(),
        "peak_gb": measure.peak_gb(),
        "curve": curve,
    }


def main(job, path):
    measure.use_one_thread()
    print(json.dumps(run(Job(**json.loads(job)), rows.load(path))))


if __name__ == "__main__":
    main(*sys.argv[1:])
