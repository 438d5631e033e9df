"""One job of `groups.py`: a head on classes in groups, and its curve.

    python -m benchmarks.comparison.groups_train JOB

JOB is the JSON of a `GroupsJob`; the last line of output is the result, JSON.
One thread, so that seconds of the CPU are those of the steps.
"""

import json
import sys
import time

import keras
import numpy as np
import tensorflow as tf

import tfxclass
from benchmarks import measure
from benchmarks.comparison.groups import GroupsJob
from benchmarks.comparison.sets import options_of
from benchmarks.comparison.usual_heads import make_head
from benchmarks.comparison.usual_heads import noise

DIM, SCALE = 48, 24.0
WITHIN, NOISE = 0.45, 0.30
RATE = 1e-2
TESTED, PROBED = 2000, 64
POINTS = 12
# Rows that are drawn at a time.
_STRETCH = 100


class Groups:
    """Rows of classes whose means lie in groups, drawn without end.

    A class' mean is its group's, standard normal, and WITHIN times another
    normal; a row is its class' mean and NOISE times a third.
    """

    def __init__(self, num_classes, group):
        random = np.random.default_rng(0)
        of_group = random.normal(size=(-(-num_classes // group), DIM))
        own = random.normal(size=(num_classes, DIM))
        means = of_group[np.arange(num_classes) // group] + WITHIN * own
        self.means = means.astype(np.float32)

    def draw(self, count, seed):
        """`(x, y)`, float32 `[count, DIM]` and int64 `[count]`."""
        random = np.random.default_rng(seed)
        y = random.integers(0, len(self.means), count)
        noise = random.normal(size=(count, DIM))
        return (self.means[y] + NOISE * noise).astype(np.float32), y


def batches(groups, size, seed):
    """Endless batches `(x, y)`, the same for all methods."""
    number = 0
    while True:
        rows = groups.draw(size * _STRETCH, 100 + number + 10**6 * seed)
        for part in range(0, size * _STRETCH, size):
            yield tuple(each[part : part + size] for each in rows)
        number += _STRETCH


def make_model(job):
    """`(model, head)` of a `GroupsJob`, compiled."""
    keras.utils.set_random_seed(job.seed)
    num_sampled = job.batch + job.negatives
    head = make_head(
        job.method, job.classes, num_sampled, SCALE, job.seed,
        **options_of(job.option),
    )  # fmt: skip
    encoder = keras.layers.Dense(DIM, kernel_initializer="identity")
    model = keras.Sequential([keras.Input([DIM]), encoder, head])
    options = options_of(job.optimizer)
    rate = options.pop("learning_rate", RATE)
    decay = keras.optimizers.schedules.CosineDecay(rate, job.steps)
    optimizer = tfxclass.optimizers.LazyAdam(decay, **options)
    model.compile(optimizer, loss=head.loss)
    optimizer.build(model.trainable_variables)
    return model, head


def measured(model, head, x, y, negatives):
    """Accuracy on a test, and v and its reach of a few rows, exactly."""
    ids, _ = tfxclass.top_k(model, 1)(tf.constant(x))
    queries = head.queries(model.layers[0](x[:PROBED]))
    return {
        "accuracy": float(np.mean(ids.numpy()[:, 0] == y)),
        **noise(head, queries, y[:PROBED], negatives),
    }


def learning_curve(job, model, head, groups):
    """Trains; what is measured along the way, a list of dicts."""
    x_test, y_test = groups.draw(TESTED, 9)
    step = tf.function(lambda x, y: model.train_step((x, y)))
    step.get_concrete_function(*map(tf.constant, groups.draw(job.batch, 1)))
    marks = [job.steps * (i + 1) // POINTS for i in range(POINTS)]
    curve, cpu, source = [], 0.0, batches(groups, job.batch, job.seed)
    for number in range(job.steps):
        x, y = next(source)
        begin = time.process_time()
        step(tf.constant(x), tf.constant(y))
        cpu += time.process_time() - begin
        if number + 1 in marks:
            point = measured(model, head, x_test, y_test, job.negatives)
            state = getattr(getattr(head, "sampler", None), "measured", {})
            state = {key: float(value) for key, value in state.items()}
            point = {**point, "step": number + 1, "cpu_s": cpu}
            curve.append({**point, "sampler": state})
    return curve


def main(text):
    measure.use_one_thread()
    job = GroupsJob(**json.loads(text))
    model, head = make_model(job)
    groups = Groups(job.classes, job.group)
    curve = learning_curve(job, model, head, groups)
    print(json.dumps({"curve": curve}))


if __name__ == "__main__":
    main(sys.argv[1])
