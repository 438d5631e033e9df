"""Accumulated row gradients as Keras' dense ones; what is refused."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.support.cases import quick
from tfxclass import optimizers

ROWS, DIM, STEPS = 9, 3, 18
# Roundings of 18 steps on numbers around 3, in another order; in float64
# momentum and epsilon, which are float32 attributes of the ops.
TOLERANCE = {"float64": 2e-7, "float32": 2e-5, "float16": 2e-2}
RULES = {
    "sgd": ("SGD", {"learning_rate": 0.1}),
    "nesterov": (
        "SGD",
        {"learning_rate": 0.1, "momentum": 0.8, "nesterov": True},
    ),
    "adagrad": ("Adagrad", {"learning_rate": 0.1}),
    "adam": ("Adam", {"learning_rate": 0.05}),
    "amsgrad": ("Adam", {"learning_rate": 0.05, "amsgrad": True}),
    "adamw": ("AdamW", {"learning_rate": 0.05, "weight_decay": 0.1}),
}
# Those that leave rows without a gradient where they are.
RESTING = ("sgd", "adagrad")
ACCUMULATED = {"gradient_accumulation_steps": 3}


def pair(rule, **options):
    """Ours and Keras'."""
    kind, arguments = RULES[rule]
    arguments = {**arguments, **options}
    lazy = getattr(optimizers, f"Lazy{kind}")(**arguments)
    return lazy, getattr(keras.optimizers, kind)(**arguments)


def two_variables(dtype="float64", **options):
    start = np.random.default_rng(0).normal(size=(ROWS, DIM))

    def variable():
        layer = keras.layers.Layer(dtype=dtype)
        return layer.add_weight(
            shape=start.shape,
            initializer=lambda shape, dtype: tf.cast(start, dtype),
            **options,
        )

    # On a GPU, optimizers refuse float64.
    with tf.device("CPU:0"):
        return variable(), variable()


def gradients(steps, dtype, seed=1):
    """Row gradients and the same, dense; the last row rests for long."""
    random = np.random.default_rng(seed)
    for t in range(steps):
        ids = random.integers(0, ROWS - 2, 4)
        if t % 11 == 0:
            ids[0] = ROWS - 1
        values = random.normal(size=(4, DIM)).astype(dtype)
        dense = np.zeros((ROWS, DIM), dtype)
        np.add.at(dense, ids, values)
        yield tf.IndexedSlices(values, ids, dense.shape), tf.constant(dense)


def train(lazy, dense, ours, theirs, steps=STEPS, seed=1):
    """Yields (ours, theirs) after each step, as read."""
    lazy.build([ours])
    dense.build([theirs])
    for sparse, full in gradients(steps, ours.dtype, seed):
        lazy.apply([sparse], [ours])
        dense.apply([full], [theirs])
        yield ours, theirs


def assert_near(a, b, dtype="float64"):
    a, b = (np.asarray(x, np.float64) for x in (a, b))
    tolerance = TOLERANCE[dtype]
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


# Keras' epsilon of 1e-7 is 0 in float16.
OTHER_TYPES = [("adagrad", "float32"), ("sgd", "float16")]


@pytest.mark.parametrize(
    "rule, dtype", [*((rule, "float64") for rule in RESTING), *OTHER_TYPES]
)
def test_accumulated_equals_dense(rule, dtype):
    """Of rules that leave rows without a gradient where they are."""
    lazy, dense = pair(rule, **ACCUMULATED)
    ours, theirs = two_variables(dtype)
    for step, _ in enumerate(train(lazy, dense, ours, theirs)):
        assert_near(ours, theirs, dtype)
    assert step == STEPS - 1


@pytest.mark.parametrize("rule", RULES)
def test_accumulated_equals_dense_where_all_rows_are_touched(rule):
    """Clipped and decayed, too."""
    lazy, dense = pair(rule, **ACCUMULATED, global_clipnorm=2.0)
    ours, theirs = two_variables()
    random = np.random.default_rng(3)
    everything = np.r_[np.arange(ROWS), 3, 3, 1]
    for _ in range(STEPS):
        values = random.normal(size=(len(everything), DIM))
        full = np.zeros((ROWS, DIM))
        np.add.at(full, everything, values)
        lazy.apply([tf.IndexedSlices(values, everything, full.shape)], [ours])
        dense.apply([tf.constant(full)], [theirs])
    assert_near(ours, theirs)


def test_accumulated_rows_rest():
    lazy, dense = pair("adam", **ACCUMULATED)
    ours, theirs = two_variables()
    start = ours.numpy()
    for _ in train(lazy, dense, ours, theirs, 10):
        pass
    np.testing.assert_array_equal(ours.numpy()[ROWS - 2], start[ROWS - 2])
    touched = [x.numpy()[ROWS - 1] for x in (ours, theirs)]
    assert (touched[0] != start[ROWS - 1]).all()


def test_steps_between_change_nothing_and_sums_are_cleared():
    lazy, _ = pair("sgd", **ACCUMULATED)
    ours, _ = two_variables()
    before, named = ours.numpy(), []
    for step, (sparse, _) in enumerate(gradients(6, "float64"), 1):
        lazy.apply([sparse], [ours])
        named.extend(sparse.indices)
        sums = lazy._gradient_sums[0].numpy()
        if step % 3:
            np.testing.assert_array_equal(ours, before)
            assert not sums[np.setdiff1d(np.arange(ROWS), named)].any()
        else:
            assert (ours.numpy() != before).any()
            assert not sums.any()
            named = []
        before = ours.numpy()


def test_accumulated_in_fit_with_no_variable_but_the_rows():
    """TensorFlow's optimizer of graphs took the ids for an empty vector."""
    x = np.random.default_rng(0).normal(size=(24, DIM)).astype("f")
    kernels = []
    for optimizer in pair("adam", gradient_accumulation_steps=2):
        # All classes are computed, in each step.
        head = tfxclass.layers.SampledSoftmax(ROWS, ROWS, "uniform", seed=0)
        head.kernel_initializer = keras.initializers.RandomNormal(seed=1)
        model = keras.Sequential([keras.Input((DIM,)), head])
        model.compile(optimizer, loss=head.loss)
        y = np.arange(24) % ROWS
        model.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0)
        kernels.append(head.kernel.numpy())
    assert_near(*kernels, "float32")


def test_sums_are_cleared_whatever_they_were():
    lazy, _ = pair("sgd", **ACCUMULATED)
    ours, _ = two_variables("float32")
    values = np.full((2, DIM), np.nan, "f")
    for _ in range(3):
        rows = tf.IndexedSlices(values, [1, 2], [ROWS, DIM])
        lazy.apply([rows], [ours])
    assert not lazy._gradient_sums[0].numpy().any()


@pytest.mark.parametrize("rule", RESTING)
def test_dense_and_row_gradients_in_one_sum(rule):
    lazy, dense = pair(rule, **ACCUMULATED)
    ours, theirs = two_variables()
    for t, (sparse, full) in enumerate(gradients(18, "float64")):
        lazy.apply([full if t % 4 == 1 else sparse], [ours])
        dense.apply([full], [theirs])
    assert_near(ours, theirs)


def test_global_clipping_over_encoder_and_rows():
    lazy, dense = pair("adam", global_clipnorm=0.5)
    first, second = two_variables()
    encoders = [keras.Variable(np.ones((2, 2)), dtype="float64") for _ in "ab"]
    everything = np.r_[np.arange(ROWS), 3, 3, 1]
    random = np.random.default_rng(0)
    for _ in range(5):
        values = random.normal(size=(len(everything), DIM))
        full = np.zeros((ROWS, DIM))
        np.add.at(full, everything, values)
        of_encoder = tf.constant(random.normal(size=(2, 2)))
        sparse = tf.IndexedSlices(values, everything, full.shape)
        lazy.apply([of_encoder, sparse], [encoders[0], first])
        dense.apply([of_encoder, tf.constant(full)], [encoders[1], second])
    assert_near(encoders[0], encoders[1])
    assert_near(first, second)


@pytest.mark.parametrize("of_variable", [keras.constraints.NonNeg(), tf.abs])
def test_a_constraint_on_rows_is_refused(of_variable):
    variable, _ = two_variables("float32", constraint=of_variable)
    optimizer = optimizers.LazyAdam()
    before = variable.numpy()
    rows = tf.IndexedSlices(tf.ones([1, DIM]), [1], [ROWS, DIM])
    with pytest.raises(ValueError, match="constraint on.*optimizers.Adam"):
        optimizer.apply([rows], [variable])
    np.testing.assert_array_equal(variable, before)
    optimizer.apply([-100 * tf.ones([ROWS, DIM])], [variable])  # dense
    assert (variable.numpy() >= 0).all()


# Of two replicas; tests/support/mirrored.py has the processes for whole heads.
def test_several_replicas_are_refused(monkeypatch):
    lazy, _ = pair("adam", **ACCUMULATED)
    ours, _ = two_variables("float32")
    monkeypatch.setattr(type(lazy), "_is_replicated", True)
    rows = tf.IndexedSlices(tf.ones([1, DIM]), [1], [ROWS, DIM])
    message = "gradient_accumulation_steps.*single replica.*Received: 3"
    with pytest.raises(ValueError, match=message):
        lazy.apply([rows], [ours])


def model_of(optimizer):
    keras.utils.set_random_seed(0)
    # GPUs sum the gradient of a bias in any order.
    hidden = keras.layers.Dense(4, use_bias=False)
    table = keras.layers.Embedding(30, 4)
    head = tfxclass.layers.SampledSoftmax(30, 20, "uniform", seed=1)
    model = keras.Sequential([table, keras.layers.Flatten(), hidden, head])
    if optimizer == "multi":
        optimizer = optimizers.MultiOptimizer(
            [
                (optimizers.LazySGD(0.1, **ACCUMULATED), [table, hidden]),
                (optimizers.LazyAdam(0.05, **ACCUMULATED), head),
            ]
        )
    model.build((None, 3))
    model.compile(optimizer, loss=head.loss)
    return model


def data(seed):
    random = np.random.default_rng(seed)
    return random.integers(0, 30, (16, 3)), random.integers(0, 30, 16)


@pytest.mark.parametrize("name", quick(["accumulated", "multi"], ["multi"]))
def test_resumed_model_continues_bit_for_bit(name, tmp_path):
    optimizer = name
    if name != "multi":
        optimizer = optimizers.LazyAdam(0.05, **ACCUMULATED)
    model = model_of(optimizer)
    for seed in range(4):
        model.train_on_batch(*data(seed))
    model.save(tmp_path / "model.keras")
    resumed = keras.models.load_model(tmp_path / "model.keras")
    for seed in range(4, 9):
        model.train_on_batch(*data(seed))
        resumed.train_on_batch(*data(seed))
    for a, b in zip(model.get_weights(), resumed.get_weights()):
        np.testing.assert_array_equal(a, b)
    variables = [x.optimizer.variables for x in (model, resumed)]
    assert len(variables[0]) == len(variables[1])
    for a, b in zip(*variables):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_config_through_json():
    optimizer = optimizers.LazyAdam(0.1, **ACCUMULATED)
    text = json.dumps(keras.optimizers.serialize(optimizer))
    back = keras.optimizers.deserialize(json.loads(text))
    assert back.get_config() == optimizer.get_config()
