"""LocalSGD on two logical devices or workers; run by test_local_sgd.py."""

import json
import os
import sys
import tempfile

import keras
import numpy as np
import tensorflow as tf

from tests.layers.test_tied_rows import step_of_both_uses
from tests.support import helpers
from tests.support.lsh import lsh_sampler
from tests.support.mixing import MixingSampler
from tfxclass import layers
from tfxclass import optimizers
from tfxclass import samplers
from tfxclass.rows import class_matrix

CLASSES, DIM, BATCH, STEPS = 20, 6, 8, 17
# The last one is repeated; its end is no multiple of its interval.
STAGES = [(0.5, 4, 1), (0.25, 5, 2), (0.2, 7, 3)]
GAMMA, MOMENTUM = 2.0, 0.5
QUIET = {"batch_size": BATCH, "shuffle": False, "verbose": 0}


def worker_index():
    return json.loads(os.environ["TF_CONFIG"])["task"]["index"]


def components(variable):
    """What each replica has; of two workers, that of this one."""
    return [v.numpy() for v in variable.value.values]


def assert_equal_replicas(model, but=()):
    but = {variable.path for variable in but}
    for variable in [*model.weights, *model.optimizer.variables]:
        if variable.path in but:
            continue
        first, second = components(variable)
        np.testing.assert_array_equal(first, second, variable.path)


def plan(stages, num_steps):
    """(learning rate, stage starts, models are averaged) of each step."""
    steps = []
    stages = list(stages)
    while len(steps) < num_steps:
        rate, length, interval = stages[0]
        for t in range(1, length + 1):
            is_average = t % interval == 0 or t == length
            steps.append((rate, t == 1, is_average))
        stages = stages[1:] or stages
    return steps[:num_steps]


def oracle(start, gradient, stages, num_steps):
    """Algorithm 2 of RP for two replicas in float64.

    `gradient(z, step, replica)` gives a gradient and the rows it is of.
    """
    models = [start.astype(np.float64) for _ in range(2)]
    speeds = [np.zeros_like(model) for model in models]
    for step, (rate, starts, averages) in enumerate(plan(stages, num_steps)):
        if starts:
            origin = models[0].copy()
        for replica, (z, v) in enumerate(zip(models, speeds)):
            slope, rows = gradient(z, step, replica)
            slope = slope[rows] + (z - origin)[rows] / GAMMA
            v[rows] = MOMENTUM * v[rows] - rate * slope
            z[rows] += v[rows]
        if averages:
            for both in (models, speeds):
                both[0][:] = both[1][:] = sum(both) / 2
    return models, speeds


def part(values, step, replica):
    start = step * BATCH + replica * BATCH // 2
    return values[start : start + BATCH // 2]


def local_sgd():
    return optimizers.LocalSGD(stages=STAGES, gamma=GAMMA, momentum=MOMENTUM)


def assert_near(model, weight, oracles):
    models, speeds = oracles
    momentum = model.optimizer.momentums[0]
    # float32 rounding of 17 steps.
    for variable, expected in ((weight, models), (momentum, speeds)):
        found = components(variable)
        if len(found) == 1:
            expected = [expected[worker_index()]]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def train_steps(strategy, model, x, y, num_steps):
    """As `fit` on `num_steps` batches, but without the average at its end."""
    with strategy.scope():
        model.optimizer.build(model.trainable_variables)

    def parts(context):
        data = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH // 2)
        workers = context.num_input_pipelines
        return data.shard(workers, context.input_pipeline_id)

    data = iter(strategy.distribute_datasets_from_function(parts))
    step = tf.function(
        lambda batch: strategy.run(model.train_step, args=(batch,)),
        autograph=False,
    )
    for _ in range(num_steps):
        step(next(data))


def check_dense_oracle(strategy):
    random = np.random.default_rng(0)
    x = random.normal(size=(STEPS * BATCH, DIM)).astype(np.float32)
    y = random.integers(0, CLASSES, STEPS * BATCH)
    with strategy.scope():
        head = layers.FullSoftmax(CLASSES, use_bias=False, seed=1)
        model = keras.Sequential([keras.Input([DIM]), head])
        model.compile(local_sgd(), loss=head.loss)
    start = head.kernel.numpy()

    def gradient(z, step, replica):
        features, labels = part(x, step, replica), part(y, step, replica)
        logits = features @ z.T
        logits -= logits.max(axis=1, keepdims=True)
        p = np.exp(logits)
        p /= p.sum(axis=1, keepdims=True)
        p[np.arange(len(labels)), labels] -= 1
        return p.T @ features / len(labels), np.arange(CLASSES)

    found = oracle(start, gradient, STAGES, STEPS)
    assert np.abs(found[0][0] - found[0][1]).max() > 1e-2
    train_steps(strategy, model, x, y, STEPS)
    assert_near(model, head.kernel, found)


def check_row_oracle(strategy):
    """Rows, some of them twice in a batch, of an embedding."""
    random = np.random.default_rng(0)
    x = random.integers(0, CLASSES, STEPS * BATCH)
    y = random.normal(size=(STEPS * BATCH, DIM)).astype(np.float32)
    with strategy.scope():
        table = keras.layers.Embedding(CLASSES, DIM)
        model = keras.Sequential([keras.Input([], dtype="int64"), table])
        model.compile(local_sgd(), loss="mse")
    start = table.embeddings.numpy()

    def gradient(z, step, replica):
        ids, targets = part(x, step, replica), part(y, step, replica)
        slope = np.zeros_like(z)
        np.add.at(slope, ids, 2 * (z[ids] - targets) / targets.size)
        return slope, np.unique(ids)

    train_steps(strategy, model, x, y, STEPS)
    assert model.optimizer._averages._row_indices == {0}
    assert_near(model, table.embeddings, oracle(start, gradient, STAGES, STEPS))


HEADS = {
    "full": lambda: layers.FullSoftmax(CLASSES, seed=1),
    "uniform": lambda: layers.SampledSoftmax(CLASSES, 10, "uniform", seed=1),
}


def small_model(make_head, optimizer):
    keras.utils.set_random_seed(1)
    head = make_head()
    model = keras.Sequential(
        [keras.Input([DIM]), keras.layers.Dense(DIM, "tanh"), head]
    )
    model.compile(optimizer, loss=head.loss)
    return model


def small_data(num_batches=6):
    random = np.random.default_rng(0)
    x = random.normal(size=(num_batches * BATCH, DIM)).astype(np.float32)
    return x, random.integers(0, CLASSES, (num_batches * BATCH, 1))


def check_interval_one(strategy):
    """Synchronous SGD on one device, the whole batch at once."""
    one = tf.distribute.OneDeviceStrategy("CPU:0")
    x, y = small_data()
    for name, make_head in HEADS.items():
        models = []
        for scope, kind in (
            (one, optimizers.LazySGD),
            (strategy, optimizers.LocalSGD),
        ):
            with scope.scope():
                model = small_model(make_head, kind(0.3, momentum=0.9))
            helpers.fit(model, x, y, BATCH, epochs=2)
            models.append(model.get_weights())
        for ours, theirs in zip(*models, strict=True):
            np.testing.assert_allclose(
                ours, theirs, rtol=1e-4, atol=1e-6, err_msg=name
            )


INDEXED = {
    "selective": lambda: layers.SelectiveSoftmax(
        CLASSES,
        sampler=samplers.HashingForestSampler(
            10, num_trees=3, leaf_size=5, rebuild_interval=2, seed=1
        ),
        seed=1,
    ),
    "auto": lambda: layers.SampledSoftmax(
        CLASSES, sampler=MixingSampler(10, seed=1)
    ),
    "lsh": lambda: layers.LSHSoftmax(
        CLASSES,
        sampler=lsh_sampler(
            10, num_hashes=3, num_tables=4, rebuild_interval=2, seed=1
        ),
        seed=1,
    ),
}


def after_steps(strategy, make_head, interval, x, y, num_steps=3):
    """What each replica has, and the head."""
    with strategy.scope():
        model = small_model(make_head, optimizers.LocalSGD(0.3, interval))
    train_steps(strategy, model, x, y, num_steps)
    return [components(v) for v in model.trainable_weights], model


def others(values, random):
    """The second half of each batch drawn anew."""
    values = values.reshape(-1, BATCH, *values.shape[1:]).copy()
    second = values[:, BATCH // 2 :]
    second[:] = random.permuted(second, axis=0)[::-1]
    return values.reshape(-1, *values.shape[2:])


def check_local_draws(strategy):
    """Between averages nothing of a replica depends on another's data."""
    random = np.random.default_rng(0)
    x, y = small_data(3)
    x2, y2 = others(x, random), others(y, random)
    assert np.any(x != x2) and np.any(y != y2)
    found, _ = after_steps(strategy, HEADS["uniform"], 100, x, y)
    other, _ = after_steps(strategy, HEADS["uniform"], 100, x2, y2)
    for (ours, _), (theirs, _) in zip(found, other, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def compare_indexes(strategy, make_head):
    x, y = small_data(5)
    found, model = after_steps(strategy, make_head, 3, x, y, 5)
    if len(found[0]) == 2:
        assert any(np.any(first != second) for first, second in found)
    steps = components(model.layers[-1].sampler.step)
    assert set(map(int, steps)) == {5}
    model.optimizer.average()
    if len(found[0]) == 2:
        # A worker caches in the copy of its first replica.
        cached = model.layers[-1].sampler.neighbor_cache.weights
        assert_equal_replicas(model, cached)


def check_indexes(strategy):
    """Counted once a step; refreshed while replicas differ."""
    for name in ("selective", "auto"):
        compare_indexes(strategy, INDEXED[name])


def check_lsh(strategy):
    """Its tables are an index as the forest is."""
    compare_indexes(strategy, INDEXED["lsh"])


def check_draws_differ(strategy):
    """Of the same data, each replica draws classes of its own."""
    x, y = small_data(1)
    half = slice(0, BATCH // 2)
    x, y = np.concatenate([x[half]] * 2), np.concatenate([y[half]] * 2)
    for interval, is_equal in ((100, False), (1, True)):
        found, _ = after_steps(strategy, HEADS["uniform"], interval, x, y, 1)
        first, second = found[-1]  # of the class matrix
        assert np.array_equal(first, second) == is_equal


class Follower:
    """Marks the rows that it is told of."""

    def __init__(self):
        self.marks = tf.Variable(tf.zeros([CLASSES], tf.bool))

    def told(self, ids):
        marks = tf.ones_like(ids, dtype=tf.bool)
        self.marks.scatter_update(tf.IndexedSlices(marks, ids))


def check_averages_are_told(strategy):
    """An index hears of the rows that an average moves."""
    x, y = small_data(1)
    with strategy.scope():
        model = small_model(HEADS["uniform"], optimizers.LocalSGD(0.3, 2))
    kernel = model.layers[-1].kernel
    start, follower = components(kernel)[0], Follower()
    class_matrix.of(kernel).on_moved = follower.told
    train_steps(strategy, model, x, y, 1)
    assert not np.any(follower.marks)
    model.optimizer.average()
    moved = np.any(components(kernel)[0] != start, axis=1)
    assert 10 <= moved.sum() < CLASSES
    np.testing.assert_array_equal(follower.marks.numpy(), moved)


def check_end_of_fit(strategy):
    x, y = small_data()
    with strategy.scope():
        optimizer = optimizers.LocalSGD(0.3, 100, momentum=0.9)
        model = small_model(HEADS["uniform"], optimizer)
    start = model.get_weights()
    model.fit(x, y, **QUIET)
    assert_equal_replicas(model)
    assert np.abs(model.get_weights()[0] - start[0]).max() > 1e-3


def check_average(strategy):
    """The mean, once; not saved before."""
    x, y = small_data()
    with strategy.scope():
        model = small_model(HEADS["uniform"], optimizers.LocalSGD(0.3, 4))
    train_steps(strategy, model, x, y, 3)
    before = [components(variable) for variable in model.weights]
    assert any(np.any(first != second) for first, second in before)
    path = os.path.join(tempfile.mkdtemp(), "model.keras")
    try:
        model.save(path)
        raise AssertionError("saved a model whose replicas differ")
    except ValueError as e:
        assert "AverageReplicas" in str(e) and "iterations=3" in str(e)
    model.optimizer.average()
    assert_equal_replicas(model)
    for variable, (first, second) in zip(model.weights, before):
        np.testing.assert_allclose(
            variable.numpy(), (first + second) / 2, rtol=1e-6, atol=1e-7
        )
    model.save(path)
    model.optimizer.average()
    # Nothing was touched since: rows that cross are none.
    model.optimizer._averages._averaged_at = 0
    model.optimizer.average()
    assert_equal_replicas(model)
    # One graph for both.
    assert (
        model.optimizer._averages._averaging.experimental_get_tracing_count()
        == 1
    )


class _EqualReplicas(keras.callbacks.Callback):
    def on_test_begin(self, logs=None):
        assert_equal_replicas(self.model)

    def on_epoch_end(self, epoch, logs=None):
        assert_equal_replicas(self.model)


def check_resume(strategy):
    """Two epochs, and one with another after saving and loading."""
    x, y = small_data(5)
    path = os.path.join(tempfile.mkdtemp(), "model.keras")
    callbacks = [optimizers.AverageReplicas(), _EqualReplicas()]
    options = {"callbacks": callbacks, "validation_data": (x, y), **QUIET}
    with strategy.scope():
        model = small_model(HEADS["uniform"], local_sgd())
    model.fit(x, y, **options)
    model.save(path)
    alone = keras.models.load_model(path)
    for ours, theirs in zip(
        model.optimizer.variables, alone.optimizer.variables, strict=True
    ):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
    model.fit(x, y, **options)
    with strategy.scope():
        loaded = keras.models.load_model(path)
    assert int(loaded.optimizer.iterations.numpy()) == 5
    loaded.fit(x, y, **options)
    for ours, theirs in zip(
        [*model.weights, *model.optimizer.variables],
        [*loaded.weights, *loaded.optimizer.variables],
        strict=True,
    ):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def check_build(strategy):
    with strategy.scope():
        model = small_model(HEADS["full"], optimizers.LocalSGD())
    x, y = small_data(1)
    step = tf.function(lambda: strategy.run(model.train_step, args=((x, y),)))
    try:
        step()
        raise AssertionError("built in a tf.function")
    except ValueError as e:
        assert "must be built before" in str(e)


def check_shards(strategy):
    x, y = small_data(1)
    with strategy.scope():
        model = small_model(
            lambda: layers.ShardedSoftmax(CLASSES), optimizers.LocalSGD()
        )
    try:
        model.fit(x, y, **QUIET)
        raise AssertionError("averaged rows of different classes")
    except ValueError as e:
        assert "kernel' is in shards" in str(e) and "LazySGD" in str(e)


def check_tied_rows(strategy):
    """Rows of an embedding and of a head, both kinds of gradient."""
    random = np.random.default_rng(0)
    # Words of the input are among the labels.
    x = random.integers(0, 9, (STEPS * BATCH, 3))
    y = random.integers(0, CLASSES, STEPS * BATCH)
    for head in ("FullSoftmax", "SampledSoftmax"):
        model = tied_model(strategy, head)
        words = model.layers[0].embeddings
        start = words.numpy()

        def gradient(z, step, replica):
            ids, labels = part(x, step, replica), part(y, step, replica)
            moved = step_of_both_uses(z, ids, labels, 1.0)
            return z - moved, np.arange(CLASSES)

        train_steps(strategy, model, x, y, STEPS)
        assert model.layers[-1].kernel is words
        assert_near(model, words, oracle(start, gradient, STAGES, STEPS))
        model.optimizer.average()
        if len(components(words)) == 2:
            assert_equal_replicas(model)


def tied_model(strategy, head):
    with strategy.scope():
        words = keras.layers.Embedding(CLASSES, DIM)
        words.build()
        # All classes are drawn: it is the full softmax.
        options = {"num_sampled": CLASSES} if head != "FullSoftmax" else {}
        head = getattr(layers, head)(CLASSES, tied_to=words, **options)
        pooled = keras.layers.GlobalAveragePooling1D()
        inputs = keras.Input([3], dtype="int64")
        model = keras.Sequential([inputs, words, pooled, head])
        model.compile(local_sgd(), loss=head.loss)
    return model


def check_scope(strategy):
    optimizer = optimizers.LocalSGD()
    x, y = small_data(1)
    with strategy.scope():
        model = small_model(HEADS["full"], optimizer)
    try:
        model.fit(x, y, **QUIET)
        raise AssertionError("trained with an optimizer of another scope")
    except ValueError as e:
        assert "strategy.scope()" in str(e)
        assert "no strategy" in str(e)


CHECKS = {
    name.removeprefix("check_"): check
    for name, check in list(globals().items())
    if name.startswith("check_")
}


def two_replicas():
    if "TF_CONFIG" in os.environ:
        return tf.distribute.MultiWorkerMirroredStrategy()
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * 2,
    )
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def main(names):
    # One for all: a second one in the same process would meet the first
    # one's collectives.
    strategy = two_replicas()
    for name in names:
        CHECKS[name](strategy)
        print("passed:", name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or list(CHECKS))
