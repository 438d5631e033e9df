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
from benchmarks.comparison.groups import GroupsJob
from benchmarks.comparison.methods import RandomSampler
from tfxclass.rows.class_rows import ClassRows
from tfxclass.samplers.auto import effective_classes

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


@keras.saving.register_keras_serializable("benchmarks")
class NeighborsSampler(tfxclass.samplers.AutoSampler):
    """Half of the places for neighbours, whatever the noise."""

    def _choose(self, level):
        return tf.ones([])


def make_head(job):
    layers = tfxclass.layers
    common = {"similarity": "cosine", "scale": SCALE, "seed": job.seed}
    num_classes, num_sampled = job.classes, job.batch + job.negatives
    if job.method == "full":
        return layers.FullSoftmax(num_classes, **common)
    if job.method in ("uniform", "auto"):
        return layers.SampledSoftmax(
            num_classes, num_sampled, sampler=job.method, **common
        )
    if job.method == "forest":
        return layers.SelectiveSoftmax(num_classes, num_sampled, **common)
    if job.method == "lsh":
        return layers.LSHSoftmax(num_classes, num_sampled, **common)
    sampler = _SAMPLERS[job.method](num_sampled, job.seed)
    return layers.SampledSoftmax(num_classes, sampler=sampler, **common)


_SAMPLERS = {
    "neighbors": lambda size, seed: NeighborsSampler(size, seed=seed),
    "random": lambda size, seed: RandomSampler(size, seed=seed),
    "forest_paper": lambda size, seed: tfxclass.samplers.HashingForestSampler(
        size,
        num_candidates=None,
        neighbor_fraction=1.0,
        correct_fill=False,
        seed=seed,
    ),
    "lsh_paper": lambda size, seed: tfxclass.samplers.LSHSampler(
        size, neighbor_fraction=1.0, correction="none", seed=seed
    ),
}


def measured(model, head, x, y, negatives):
    """Accuracy on a test, and v and its reach of a few rows, exactly."""
    ids, _ = tfxclass.top_k(model, 1)(tf.constant(x))
    queries = head.queries(model.layers[0](x[:PROBED]))
    found = effective_classes(
        queries,
        tf.constant(y[:PROBED, np.newaxis]),
        ClassRows(tf.convert_to_tensor(head.kernel), normalize=True),
    )
    k_eff, missed = (each.numpy() for each in found[:2])
    v = head.num_classes / (negatives * k_eff)
    return {
        "accuracy": float(np.mean(ids.numpy()[:, 0] == y)),
        "v": float(v.mean()),
        "noise": float((v * missed).mean()),
        "k_eff": float(np.median(k_eff)),
    }


def learning_curve(job, model, head, groups):
    """Trains; what is measured along the way, a list of dicts."""
    x_test, y_test = groups.draw(TESTED, 9)
    step = tf.function(lambda x, y: model.train_step((x, y)))
    step.get_concrete_function(*map(tf.constant, groups.draw(job.batch, 1)))
    marks = [job.steps * (i + 1) // POINTS for i in range(POINTS)]
    curve, cpu = [], 0.0
    for number in range(job.steps):
        place = number % _STRETCH * job.batch
        if place == 0:
            seed = 100 + number + 10**6 * job.seed
            x, y = groups.draw(job.batch * _STRETCH, seed)
        part = slice(place, place + job.batch)
        begin = time.process_time()
        step(tf.constant(x[part]), tf.constant(y[part]))
        cpu += time.process_time() - begin
        if number + 1 in marks:
            point = measured(model, head, x_test, y_test, job.negatives)
            state = getattr(getattr(head, "sampler", None), "measured", {})
            state = {key: float(value) for key, value in state.items()}
            point = {**point, "step": number + 1, "cpu_s": cpu}
            curve.append({**point, "sampler": state})
    return curve


def main(text):
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    job = GroupsJob(**json.loads(text))
    keras.utils.set_random_seed(job.seed)
    head = make_head(job)
    encoder = keras.layers.Dense(DIM, kernel_initializer="identity")
    model = keras.Sequential([keras.Input([DIM]), encoder, head])
    decay = keras.optimizers.schedules.CosineDecay(RATE, job.steps)
    optimizer = tfxclass.optimizers.LazyAdam(decay)
    model.compile(optimizer, loss=head.loss)
    optimizer.build(model.trainable_variables)
    groups = Groups(job.classes, job.group)
    curve = learning_curve(job, model, head, groups)
    print(json.dumps({"curve": curve}))


if __name__ == "__main__":
    main(sys.argv[1])
