"""`ShardedSoftmax` on logical devices; run by test_sharded_softmax.py.

    python -m tests.support.sharded num_replicas folder check ...

In a process of its own: a second strategy would meet the first one's
collectives. Each check prints a line when it has passed.
"""

import contextlib
import functools
import pathlib
import sys
from unittest import mock

import keras
import numpy as np
import tensorflow as tf

import tfxclass
from tests.support import helpers
from tests.support import reference
from tfxclass import initializers
from tfxclass import layers
from tfxclass import losses
from tfxclass import metrics
from tfxclass import optimizers
from tfxclass import samplers
from tfxclass.keras_internals import tf_variable
from tfxclass.rows import sharded_rows
from tfxclass.shards import shards as shards_lib

CLASSES, DIM, BATCH, ROWS = 61, 8, 16, 64
# Sums in another order, through eight steps.
TOLERANCE = {"rtol": 1e-4, "atol": 2e-5}
COSFACE = {"similarity": layers.Cosine(margin=0.1)}
ARCFACE = {
    "similarity": layers.Cosine(scale=12.0, margin=0.1, margin_type="arcface")
}
SAMPLERS = [
    samplers.TopKSampler,
    samplers.KMeansSampler,
    samplers.UniformSampler,
    functools.partial(samplers.FrequencySampler, counts=range(CLASSES)),
]
EQUAL = [
    (lambda: optimizers.LazyAdamW(0.02, weight_decay=0.1), ARCFACE),
    (lambda: optimizers.LazyAdam(0.02), COSFACE),
    (lambda: optimizers.LazySGD(0.02, momentum=0.9), {"use_bias": True}),
    (lambda: optimizers.LazyAdam(0.02, second_moment="row"), {}),
    (lambda: optimizers.LazyAdagrad(0.1), {"loss": "sigmoid"}),
]


def data(rows=ROWS):
    random = np.random.default_rng(0)
    x = random.normal(size=(rows, DIM)).astype(np.float32)
    return x, random.integers(-1, CLASSES, (rows, 2))


def make_model(kind, optimizer, strategy=None, **options):
    with strategy.scope() if strategy else contextlib.nullcontext():
        first = keras.initializers.GlorotUniform(seed=3)
        options = {"kernel_initializer": first, **options}
        head = kind(CLASSES, **options)
        encoder = keras.layers.Dense(DIM, kernel_initializer=first)
        model = keras.Sequential([keras.Input([DIM], name="x"), encoder, head])
        model.compile(optimizer(), loss=head.loss)
    return model


def fit(model, epochs=2, rows=ROWS):
    return helpers.fit(model, *data(rows), BATCH, epochs)


def values(model):
    """Weights and slots, rows of all shards in their order."""
    variables = [*model.weights, *model.optimizer.variables]
    return [sharded_rows.read(variable) for variable in variables]


def assert_same(ours, theirs, **tolerance):
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, **(tolerance or TOLERANCE))


def assert_read_in_place(head):
    """Reads of class vectors are no copies of them."""
    for _, part in head.shards.components(head.kernel):
        reads = [tf_variable(part).value() for _ in range(2)]
        one, other = (np.asarray(memoryview(x)) for x in reads)
        assert np.shares_memory(one, other)


def check_equal(strategy, folder):
    """Losses, weights and slots are those of the full softmax."""
    # The others with another number of replicas, which is a slow test.
    some = EQUAL[:1] if strategy.num_replicas_in_sync == 2 else EQUAL[1:]
    for optimizer, options in some:
        one = make_model(layers.FullSoftmax, optimizer, **options)
        many = make_model(layers.ShardedSoftmax, optimizer, strategy, **options)
        assert_same(fit(many), fit(one))
        assert_same(values(many), values(one))


def check_options(strategy, folder):
    """Losses for long tails: exact, and on a sample that has all classes."""
    options = {
        "class_counts": np.arange(1, CLASSES + 1),
        "class_weight": {3: 2.0},
    }
    everything = {"sampler": samplers.UniformSampler(CLASSES + 1)}
    for smoothing, changes in (
        (0.2, {}),
        (0.0, {**everything, "correct_fill": True}),
    ):
        adam, given = optimizers.LazyAdam, {"use_bias": True}
        given["loss_options"] = losses.LossOptions(
            **options, label_smoothing=smoothing
        )
        one = make_model(layers.FullSoftmax, adam, **given)
        history, expected = fit(one), values(one)
        many = make_model(
            layers.ShardedSoftmax, adam, strategy, **given, **changes
        )
        assert_same(fit(many), history)
        ours = [x for x in values(many) if x.shape]
        theirs = [x for x in expected if x.shape]
        assert_same(ours[: len(theirs)], theirs)


def check_inference(strategy, folder):
    """Rows that do not divide; outputs in and out of the replicas."""
    adam = optimizers.LazyAdam
    one = make_model(layers.FullSoftmax, adam, use_bias=True)
    many = make_model(layers.ShardedSoftmax, adam, strategy, use_bias=True)
    head = many.layers[-1]
    bias = np.random.default_rng(1).normal(size=CLASSES)
    sharded_rows.write(head.bias, bias)
    one.layers[-1].bias.assign(bias)
    with strategy.scope():
        best = metrics.TopKAccuracy(head, 3)
        mass = metrics.CumulativeProbability(head, 5)
        many.compile("sgd", loss=head.loss, metrics=[best, mass])
    same = one.layers[-1]
    best = metrics.TopKAccuracy(same, 3)
    mass = metrics.CumulativeProbability(same, 5)
    one.compile("sgd", loss=same.loss, metrics=[best, mass])
    x, y = data(34)
    # The mean of unequal parts is another one, under any strategy.
    found, expected = (
        m.evaluate(x[:32], y[:32], batch_size=BATCH, verbose=0)
        for m in (many, one)
    )
    assert_same(found, expected)
    for rows in (34, 33, 1):
        found, expected = (
            m.predict(x[:rows], batch_size=BATCH, verbose=0)
            for m in (many, one)
        )
        np.testing.assert_allclose(found, expected, **TOLERANCE)
    np.testing.assert_allclose(many(x), one(x), **TOLERANCE)
    for k in (1, 7, CLASSES):
        expected = tfxclass.top_k(one, k).predict(x, verbose=0)
        for found in (
            tfxclass.top_k(many, k).predict(x, verbose=0),
            _top_k_in_replicas(strategy, many, x[:32], k),
        ):
            rows = len(found[0])
            np.testing.assert_array_equal(found[0], expected[0][:rows])
            np.testing.assert_allclose(found[1], expected[1][:rows], rtol=1e-4)
    np.testing.assert_allclose(
        head.class_matrix.values(),
        one.layers[-1].class_matrix.values(),
        rtol=1e-6,
    )


def _top_k_in_replicas(strategy, model, x, k):
    with strategy.scope():
        best = tfxclass.top_k(model, k)
        return best.predict(x, batch_size=BATCH, verbose=0)


class _Watched(layers.ShardedSoftmax):
    """Notes when logits of the full output are computed."""

    computed = 0

    def all_logits(self, features):
        logits = super().all_logits(features)

        def note(logits):
            self.computed += 1
            return logits

        # Not stateful: pruned with what it is for.
        return tf.ensure_shape(
            tf.numpy_function(note, [logits], tf.float32, stateful=False),
            logits.shape,
        )


def check_pruning(strategy, folder):
    """The full output is not computed, nor exchanged, for the loss."""
    model = make_model(_Watched, optimizers.LazyAdam, strategy)
    head = model.layers[-1]
    fit(model)
    model.evaluate(*data(), batch_size=BATCH, verbose=0)
    assert not head.computed
    model.predict(data()[0], batch_size=ROWS, verbose=0)
    assert head.computed == strategy.num_replicas_in_sync


def check_memory(strategy, folder):
    """The head's bytes are on the replicas in equal parts."""
    adam = functools.partial(optimizers.LazyAdam, 0.02)
    one = make_model(layers.FullSoftmax, adam)
    many = make_model(layers.ShardedSoftmax, adam, strategy)
    fit(one), fit(many)
    found, (whole,) = map(tfxclass.memory_per_replica, (many, one))
    assert len(found) == strategy.num_replicas_in_sync
    row = 3 * 4 * DIM  # weights, two moments
    rest = whole - row * CLASSES + 16  # the seed
    capacity = -(-CLASSES // len(found))
    assert found == [rest + row * capacity] * len(found)
    with strategy.scope():
        estimate = tfxclass.estimate(
            layers.ShardedSoftmax(CLASSES), DIM, BATCH, adam()
        )
    assert estimate.weight_bytes == 4 * DIM * capacity
    assert estimate.slot_bytes == (row - 4 * DIM) * capacity
    print("bytes of a replica", found, "of one device", whole)


def check_sampled(strategy, folder):
    """A step of Partial FC, by the rows that it moved."""
    for options in ({"sample_rate": 0.4}, {"num_sampled": 25}):
        model = make_model(
            layers.ShardedSoftmax,
            lambda: optimizers.LazySGD(0.5),
            strategy,
            seed=1,
            **options,
        )
        head = model.layers[-1]
        x, y = data(BATCH)
        before = head.shards.read(head.kernel)
        features = model.layers[0](x).numpy()
        (loss,) = fit(model, epochs=1, rows=BATCH)
        moved = np.any(head.shards.read(head.kernel) != before, axis=1)
        labels = np.unique(y[y >= 0])
        assert np.all(moved[labels])
        for start, size in zip(head.shards.starts, head.shards.sizes):
            here = np.sum((labels >= start) & (labels < start + size))
            share = np.ceil(size * options.get("sample_rate", 25 / CLASSES))
            assert moved[start : start + size].sum() == max(here, share)
        logits = np.where(moved, reference.head_logits(features, before), -1e9)
        expected = reference.cross_entropy(logits, y).mean()
        np.testing.assert_allclose(loss, expected, rtol=1e-5)
        again = make_model(
            layers.ShardedSoftmax,
            lambda: optimizers.LazySGD(0.5),
            strategy,
            seed=1,
            **options,
        )
        assert fit(again, epochs=1, rows=BATCH) == [loss]
        fit(again)
        assert not np.array_equal(head.shards.read(head.kernel), before)


def check_negatives(strategy, folder):
    """Negatives of rows are in a step, each in the replica of its class."""
    given, x = 3, data(BATCH)[0]
    random = np.random.default_rng(3)
    y = random.integers(-1, CLASSES, (BATCH, 2 + given))
    model = make_model(
        layers.ShardedSoftmax,
        lambda: optimizers.LazySGD(0.5),
        strategy,
        num_sampled=45,
        num_negatives=given,
        seed=1,
    )
    head = model.layers[-1]
    before = head.shards.read(head.kernel)
    features = model.layers[0](x).numpy()
    (loss,) = helpers.fit(model, x, y, BATCH, 1)
    moved = np.any(head.shards.read(head.kernel) != before, axis=1)
    assert np.all(moved[y[y >= 0]])
    logits = np.where(moved, reference.head_logits(features, before), -1e9)
    expected = reference.cross_entropy(logits, y[:, :2]).mean()
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


def check_initial(strategy, folder):
    """First values, drawn in blocks, do not depend on the replicas."""
    for dtype in ("float32", "bfloat16"):
        found = []
        with mock.patch.object(initializers, "BLOCK_NUMBERS", 13 * DIM):
            for scope in (strategy.scope(), contextlib.nullcontext()):
                with scope:
                    initializer = keras.initializers.HeNormal(seed=5)
                    head = layers.ShardedSoftmax(
                        CLASSES,
                        kernel_initializer=initializer,
                        kernel_dtype=dtype,
                    )
                    head.build((None, DIM))
                found.append(sharded_rows.read(head.kernel))
                if dtype == "float32":
                    assert_read_in_place(head)
        assert_same(found[:1], found[1:], rtol=0, atol=0)
        assert len(np.unique(found[0].astype(np.float32))) > CLASSES


def check_blocks(strategy, folder):
    """Blocks that end anywhere replace what was there, NaN too."""
    head = make_model(
        layers.ShardedSoftmax, optimizers.LazyAdam, strategy
    ).layers[-1]
    sharded_rows.write(head.kernel, np.full((CLASSES, DIM), np.nan))
    rows = np.random.default_rng(0).normal(size=(CLASSES, DIM)).astype("f")
    blocks = np.split(rows, range(7, CLASSES, 7))
    head.shards.write_blocks(head.kernel, blocks, np.asarray)
    np.testing.assert_array_equal(head.shards.read(head.kernel), rows)
    assert_read_in_place(head)


def check_files(strategy, folder):
    """Writes what other numbers of replicas read, and reads theirs."""
    check_loading(strategy, folder)
    model = _train_and_save(strategy, folder, "full", COSFACE)[0]
    losses = fit(model)
    arrays = {str(i): x for i, x in enumerate(values(model))}
    path = folder / f"full_{strategy.num_replicas_in_sync}.npz"
    predictions = model.predict(data()[0], verbose=0)
    np.savez(path, predictions=predictions, losses=losses, **arrays)


def _train_and_save(strategy, folder, name, options):
    # Files have several blocks of a class matrix.
    shards_lib.BLOCK_NUMBERS = 20 * DIM
    model = make_model(
        layers.ShardedSoftmax,
        lambda: optimizers.LazyAdam(0.02),
        strategy,
        **options,
    )
    fit(model)
    path = folder / f"{name}_{strategy.num_replicas_in_sync}.keras"
    model.save(path)
    return model, path


def check_loading(strategy, folder):
    """Goes on from the files of other numbers of replicas."""
    for path in sorted(folder.glob("full_*.keras")):
        with strategy.scope():
            model = keras.saving.load_model(path)
        expected = np.load(path.with_suffix(".npz"))
        assert_same(fit(model), expected["losses"])
        found = values(model)
        assert_same(found, [expected[str(i)] for i in range(len(found))])
        predictions = model.predict(data()[0], verbose=0)
        assert_same(predictions, expected["predictions"])


def check_restart(strategy, folder):
    """On as many replicas a run goes on bit for bit, with its sampling."""
    forest = samplers.HashingForestSampler(
        40, num_trees=5, leaf_size=5, rebuild_interval=2, seed=1
    )
    half = {"kernel_dtype": "bfloat16", "sample_rate": 0.4}
    for options in ({"sample_rate": 0.4}, {"sampler": forest}, half):
        model, path = _train_and_save(strategy, folder, "sampled", options)
        with strategy.scope():
            loaded = keras.saving.load_model(path)
        assert fit(loaded) == fit(model)
        assert_same(values(loaded), values(model), rtol=0, atol=0)


def check_half(strategy, folder):
    """Rows of half the bytes learn what others do, and are answered from."""
    adam = functools.partial(optimizers.LazyAdam, 0.02)
    compact = functools.partial(
        adam, second_moment="row", slot_dtype="bfloat16"
    )
    for optimizer, limit in ((compact, 0.1), (adam, 0.01)):
        model = make_model(
            layers.ShardedSoftmax, optimizer, strategy, kernel_dtype="bfloat16"
        )
        wide = make_model(layers.ShardedSoftmax, adam, strategy)
        assert_same(fit(model, 8), fit(wide, 8), rtol=limit)
    head = model.layers[-1]
    rows = head.shards.read(head.kernel)
    assert tf.as_dtype(rows.dtype) == tf.bfloat16
    x = model.layers[0](data()[0])
    expected, _ = reference.top_k(x.numpy() @ rows.astype("f").T, 5)
    np.testing.assert_array_equal(head.top_k(x, 5)[0], expected)


def check_samplers(strategy, folder):
    """Those that choose all classes give the full softmax."""
    sgd = functools.partial(optimizers.LazySGD, 0.02)
    one = make_model(layers.FullSoftmax, sgd, **COSFACE)
    losses = fit(one)
    for kind in SAMPLERS:
        many = make_model(
            layers.ShardedSoftmax,
            sgd,
            strategy,
            sampler=kind(CLASSES + 1, seed=1),
            **COSFACE,
        )
        assert_same(fit(many), losses)
        kernel = many.layers[-1].class_matrix.values()
        assert_same([kernel], [one.layers[-1].class_matrix.values()])


def check_export(strategy, folder):
    model = make_model(
        layers.ShardedSoftmax, optimizers.LazyAdam, strategy, **COSFACE
    )
    fit(model)
    path = tfxclass.export.saved_model(model, folder / "export", top_k=7)
    served = tf.saved_model.load(path).signatures["serving_default"]
    x, _ = data()
    ids, scores = tfxclass.top_k(model, 7).predict(x, verbose=0)
    answers = served(x=tf.constant(x))
    np.testing.assert_array_equal(answers["ids"], ids)
    np.testing.assert_allclose(answers["scores"], scores, rtol=1e-4)


def check_errors(strategy, folder):
    adam, kind = optimizers.LazyAdam, layers.ShardedSoftmax

    def outside():
        model = make_model(kind, adam)
        with strategy.scope():
            model.compile(adam(), loss=model.layers[-1].loss)
            fit(model)

    def too_few():
        with strategy.scope():
            kind(strategy.num_replicas_in_sync - 1).build((None, DIM))

    def train_outside():
        head = make_model(kind, adam, strategy).layers[-1]
        head.compute_loss(*data(), training=True)

    def wrong_file():
        head = make_model(kind, adam, strategy).layers[-1]
        sharded_rows.write(head.kernel, np.zeros((CLASSES + 1, DIM)))

    def unbuilt():
        model = make_model(kind, adam, strategy)
        batch = data(BATCH)
        strategy.run(tf.function(model.train_step), args=(batch,))

    def clipped():
        fit(make_model(kind, lambda: adam(clipnorm=1.0), strategy))

    def uneven():
        fit(make_model(kind, adam, strategy), rows=BATCH + 1)

    for function, part in {
        outside: "`strategy` must be the one",
        too_few: "`num_classes` must be at least the number of replicas",
        train_outside: "`training=True` outside",
        wrong_file: "must have shape (61, 8)",
        unbuilt: "`optimizer` must be one of",
        clipped: "`clipnorm` needs more",
        uneven: "`batch_size` must be a multiple",
        lambda: fit(make_model(kind, keras.optimizers.Adam, strategy)): (
            "`optimizer` must be one of"
        ),
    }.items():
        try:
            function()
        except (ValueError, tf.errors.InvalidArgumentError) as error:
            assert part in str(error), (part, str(error))
        else:
            raise AssertionError(part)


CHECKS = {
    name[6:]: function
    for name, function in list(globals().items())
    if name.startswith("check_")
}


def main(num_replicas, folder, names):
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * num_replicas,
    )
    devices = [f"CPU:{i}" for i in range(num_replicas)]
    strategy = tf.distribute.MirroredStrategy(devices)
    for name in names:
        CHECKS[name](strategy, folder)
        print("passed:", name, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:])
