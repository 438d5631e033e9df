"""Accumulated and averaged row gradients, constraints: as Keras' dense ones."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.cases import quick
from tfxclass import optimizers
from tfxclass.ops import row_update

ROWS, DIM, STEPS = 9, 3, 18
# Roundings of 18 steps on numbers around 3, in another order; in float64 the
# terms of a catch-up, which are float32, and Keras' cast of ema_momentum to it.
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
AVERAGED = {"use_ema": True, "ema_momentum": 0.8}


def pair(rule, catch_up=False, **options):
    """Ours and Keras'."""
    kind, arguments = RULES[rule]
    arguments = {**arguments, **options}
    lazy = getattr(optimizers, f"Lazy{kind}")(**arguments, catch_up=catch_up)
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
OTHER_TYPES = [("adam", "float32"), ("sgd", "float16"), ("nesterov", "float16")]


@pytest.mark.parametrize(
    "rule, dtype", [*((rule, "float64") for rule in RULES), *OTHER_TYPES]
)
def test_accumulated_equals_dense(rule, dtype):
    """With every row caught up; clipped and decayed, too."""
    lazy, dense = pair(
        rule, True, **ACCUMULATED, global_clipnorm=2.0, weight_decay=0.01
    )
    ours, theirs = two_variables(dtype)
    for step, _ in enumerate(train(lazy, dense, ours, theirs)):
        optimizers.catch_up(ours, [0, 3])
        at = [0, 3]
        assert_near(ours.numpy()[at], theirs.numpy()[at], dtype)
    assert step == STEPS - 1
    optimizers.catch_up(ours)
    assert_near(ours, theirs, dtype)


def test_accumulated_rows_rest_without_catch_up():
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
    before = ours.numpy()
    for step, (sparse, _) in enumerate(gradients(6, "float64"), 1):
        lazy.apply([sparse], [ours])
        sums, ids = lazy._gradient_sums[0].numpy(), lazy._summed_ids[0].numpy()
        if step % 3:
            np.testing.assert_array_equal(ours, before)
            assert len(ids) == 4 * (step % 3)
            assert not sums[np.setdiff1d(np.arange(ROWS), ids)].any()
        else:
            assert (ours.numpy() != before).any()
            assert not sums.any() and not len(ids)
        before = ours.numpy()


@pytest.mark.parametrize("catch_up", [False, True])
def test_accumulated_in_fit_with_no_variable_but_the_rows(catch_up):
    """TensorFlow's optimizer of graphs took the ids for an empty vector."""
    x = np.random.default_rng(0).normal(size=(24, DIM)).astype("f")
    kernels = []
    for optimizer in pair("adam", catch_up, gradient_accumulation_steps=2):
        # All classes are computed, in each step.
        head = tfxclass.layers.SampledSoftmax(ROWS, ROWS, seed=0)
        head.kernel_initializer = keras.initializers.RandomNormal(seed=1)
        model = keras.Sequential([keras.Input((DIM,)), head])
        model.compile(optimizer, loss=head.loss)
        y = np.arange(24) % ROWS
        model.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0)
        kernels.append(head.kernel.numpy())
    assert_near(*kernels, "float32")


def test_cleared_rows_are_zero_whatever_they_were():
    values = np.full((4, DIM), 2.0, "f")
    values[1], values[2, 0] = np.nan, np.inf
    total = tf.Variable(values)
    tf.function(row_update.clear_rows)(total, tf.constant([1, 2, 1], tf.int64))
    np.testing.assert_array_equal(total[1:3], np.zeros((2, DIM)))
    np.testing.assert_array_equal(total[::3], values[::3])


@pytest.mark.parametrize("rule", ["nesterov", "adamw"])
def test_dense_and_row_gradients_in_one_sum(rule):
    lazy, dense = pair(rule, True, **ACCUMULATED)
    ours, theirs = two_variables()
    for t, (sparse, full) in enumerate(gradients(18, "float64")):
        lazy.apply([full if t % 4 == 1 else sparse], [ours])
        dense.apply([full], [theirs])
    optimizers.catch_up(ours)
    assert_near(ours, theirs)


@pytest.mark.parametrize("options", [AVERAGED, {**AVERAGED, **ACCUMULATED}])
@pytest.mark.parametrize("rule", RESTING)
def test_averages_equal_dense(rule, options):
    lazy, dense = pair(rule, **options)
    ours, theirs = two_variables()
    for t, _ in enumerate(train(lazy, dense, ours, theirs)):
        if t in (0, 1, 13, STEPS - 1):
            assert_near(
                lazy._model_variables_moving_average[0],
                dense._model_variables_moving_average[0],
            )
    lazy.finalize_variable_values([ours])
    dense.finalize_variable_values([theirs])
    assert_near(ours, theirs)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_averages_are_those_of_every_step(dtype):
    """Of Adam's rows, which rest where dense Adam's move; in NumPy."""
    lazy, dense = pair("adam", **AVERAGED)
    ours, theirs = two_variables(dtype)
    expected = None
    for _ in train(lazy, dense, ours, theirs):
        now = ours.numpy().astype(float)
        expected = now if expected is None else 0.8 * expected + 0.2 * now
    assert_near(lazy._model_variables_moving_average[0], expected, dtype)


def test_averages_replace_rows_as_often_as_asked():
    lazy, dense = pair("adagrad", **AVERAGED, ema_overwrite_frequency=5)
    ours, theirs = two_variables()
    for _ in train(lazy, dense, ours, theirs):
        assert_near(ours, theirs)


def test_averages_of_dense_and_row_gradients_in_turn():
    lazy, dense = pair("sgd", **AVERAGED)
    ours, theirs = two_variables()
    bias = [keras.Variable(np.float64(1.0), dtype="float64") for _ in range(2)]
    for t, (sparse, full) in enumerate(gradients(STEPS, "float64")):
        one = tf.ones([], tf.float64)
        # The matrix is frozen in every seventh step.
        first = 1 if t % 7 == 3 else 0
        given = [full if t % 4 == 1 else sparse, one][first:]
        lazy.build([ours, bias[0]])
        dense.build([theirs, bias[1]])
        lazy.apply(given, [ours, bias[0]][first:])
        dense.apply([full, one][first:], [theirs, bias[1]][first:])
    for a, b in zip(
        *(x._model_variables_moving_average for x in (lazy, dense))
    ):
        assert_near(a, b)


def test_an_assignment_counts_from_when_it_was_made():
    lazy, dense = pair("sgd", **AVERAGED)
    ours, theirs = two_variables()
    for t, _ in enumerate(train(lazy, dense, ours, theirs)):
        if t == 10:
            for variable in (ours, theirs):
                variable.assign(np.ones((ROWS, DIM)))
    assert_near(
        lazy._model_variables_moving_average[0],
        dense._model_variables_moving_average[0],
    )


# Betas whose moments outlive the steps here, and a rate that changes.
SCHEDULED = {
    "learning_rate": keras.optimizers.schedules.CosineDecay(0.1, STEPS),
}
CAUGHT_UP = {
    "nesterov": ("nesterov", SCHEDULED),
    "adagrad": ("adagrad", {}),
    "adam": ("adam", SCHEDULED),
    "amsgrad": ("amsgrad", SCHEDULED),
    "accumulated": ("adam", ACCUMULATED),
    "accumulated momentum": ("nesterov", ACCUMULATED),
    "overwritten": ("adam", {"ema_overwrite_frequency": 5}),
}


@pytest.mark.parametrize(
    "case", quick(CAUGHT_UP, ["adagrad", "adam", "overwritten"])
)
def test_averages_of_caught_up_rows_equal_dense(case):
    """Rows move in the steps they skip, and their averages with them.

    Read now and then; frozen in every seventh step, all moved in some.
    """
    rule, options = CAUGHT_UP[case]
    lazy, dense = pair(rule, True, **AVERAGED, **options)
    ours, theirs = two_variables()
    bias = [keras.Variable(np.float64(1.0), dtype="float64") for _ in range(2)]
    lazy.build([ours, bias[0]])
    dense.build([theirs, bias[1]])
    for t, (sparse, full) in enumerate(gradients(2 * STEPS, "float64")):
        one = tf.ones([], tf.float64)
        first = 1 if t % 7 == 3 else 0
        given = [full if t % 9 == 4 else sparse, one][first:]
        lazy.apply(given, [ours, bias[0]][first:])
        dense.apply([full, one][first:], [theirs, bias[1]][first:])
        if t % 5 == 0:
            optimizers.catch_up(ours, [1, 2, 1])
            assert_near(ours.numpy()[[1, 2]], theirs.numpy()[[1, 2]])
        if t in (0, 1, 2 * STEPS - 1):
            assert_near(
                lazy._model_variables_moving_average[0],
                dense._model_variables_moving_average[0],
            )
    lazy.finalize_variable_values([ours])
    dense.finalize_variable_values([theirs])
    assert_near(ours, theirs)


def test_averages_of_rows_that_rest_longer_than_a_history():
    """Their history begins anew, in a step that reads other rows."""
    lazy, dense = pair("adam", True, **AVERAGED)
    ours, theirs = two_variables()
    lazy.build([ours])
    dense.build([theirs])
    zeros = tf.zeros([ROWS, DIM], tf.float64)
    start = tf.constant(np.random.default_rng(0).normal(size=(ROWS, DIM)))

    # Not Keras' own loop: 260 steps of it take seconds.
    @tf.function(reduce_retracing=True)
    def step(values, ids, full):
        rows = tf.IndexedSlices(values, ids, tf.shape(full))
        lazy.apply([rows], [ours])
        dense.apply([full], [theirs])

    step(start, tf.range(ROWS), zeros + start)
    for _ in range(259):
        step(zeros[:1], tf.range(1), zeros)
    assert_near(
        lazy._model_variables_moving_average[0],
        dense._model_variables_moving_average[0],
    )


CONSTRAINTS = {
    "max_norm": lambda: keras.constraints.MaxNorm(0.7, axis=1),
    "unit_norm": lambda: keras.constraints.UnitNorm(axis=1),
    "non_neg": keras.constraints.NonNeg,
    "function": lambda: lambda w: tf.clip_by_value(w, -0.5, 0.5),
}


@pytest.mark.parametrize("options", [{}, AVERAGED, ACCUMULATED])
@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_constrained_rows_equal_dense(constraint, options):
    lazy, dense = pair("adagrad", **options)
    made = CONSTRAINTS[constraint]()
    ours, theirs = two_variables(constraint=made)
    for _ in train(lazy, dense, ours, theirs):
        # Keras divides by the norm plus 1e-7 in each step, of all rows.
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    if options is AVERAGED:
        averages = [x._model_variables_moving_average[0] for x in (lazy, dense)]
        np.testing.assert_allclose(*averages, rtol=1e-5, atol=1e-5)


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


REFUSED = {
    "mixed rows": (
        {},
        {"constraint": keras.constraints.MaxNorm(1.0, axis=0)},
        r"MaxNorm.*'axis': 0",
    ),
    "averages of skipped decay": (
        {"use_ema": True, "catch_up": True, "weight_decay": 0.1},
        {},
        "use_ema=True.*`catch_up=True` without weight decay",
    ),
    "averages of skips without sums": (
        {"use_ema": True, "catch_up": True, "beta_1": 0.9, "beta_2": 0.5},
        {},
        "use_ema=True.*`catch_up=True` with betas",
    ),
    "constraint and catch_up": (
        {"catch_up": True},
        {"constraint": "non_neg"},
        "constraint.*without `catch_up=True`",
    ),
    "constraint and overwriting": (
        {"use_ema": True, "ema_overwrite_frequency": 3},
        {"constraint": "non_neg"},
        "ema_overwrite_frequency=3",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_right_is_refused(case):
    arguments, of_variable, message = REFUSED[case]
    variable, _ = two_variables("float32", **of_variable)
    optimizer = optimizers.LazyAdam(**arguments)
    before = variable.numpy()
    rows = tf.IndexedSlices(tf.ones([1, DIM]), [1], [ROWS, DIM])
    with pytest.raises(ValueError, match=message):
        optimizer.apply([rows], [variable])
    np.testing.assert_array_equal(variable, before)


# Of two replicas; tests/mirrored.py has the processes for whole heads.
@pytest.mark.parametrize(
    "options, message",
    [
        (ACCUMULATED, "gradient_accumulation_steps=3.*one replica"),
        (AVERAGED, "use_ema=True.*one replica"),
    ],
)
def test_several_replicas_are_refused(options, message, monkeypatch):
    lazy, _ = pair("adam", **options)
    ours, _ = two_variables("float32")
    monkeypatch.setattr(type(lazy), "_is_replicated", True)
    rows = tf.IndexedSlices(tf.ones([1, DIM]), [1], [ROWS, DIM])
    with pytest.raises(ValueError, match=message):
        lazy.apply([rows], [ours])


OPTIONS = {
    "accumulated": ACCUMULATED,
    "averaged": AVERAGED,
    "both": {**ACCUMULATED, **AVERAGED},
    "overwritten": {**AVERAGED, "ema_overwrite_frequency": 2},
    "caught_up": {**AVERAGED, "catch_up": True},
}


def model_of(optimizer, constraint=None):
    keras.utils.set_random_seed(0)
    hidden = keras.layers.Dense(4)
    table = keras.layers.Embedding(30, 4, embeddings_constraint=constraint)
    head = tfxclass.layers.SampledSoftmax(30, 20, seed=1)
    model = keras.Sequential([table, keras.layers.Flatten(), hidden, head])
    if optimizer == "multi":
        optimizer = optimizers.MultiOptimizer(
            [
                (optimizers.LazySGD(0.1, **OPTIONS["both"]), [table, hidden]),
                (optimizers.LazyAdam(0.05, **OPTIONS["both"]), head),
            ]
        )
    model.build((None, 3))
    model.compile(optimizer, loss=head.loss)
    return model


def data(seed):
    random = np.random.default_rng(seed)
    return random.integers(0, 30, (16, 3)), random.integers(0, 30, 16)


@pytest.mark.parametrize(
    "name",
    quick([*OPTIONS, "constrained", "multi"], ["both", "constrained"]),
)
def test_resumed_model_continues_bit_for_bit(name, tmp_path):
    constraint = CONSTRAINTS["max_norm"]() if name == "constrained" else None
    optimizer = name
    if name != "multi":
        optimizer = optimizers.LazyAdam(0.05, **OPTIONS.get(name, {}))
    model = model_of(optimizer, constraint)
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


def test_fit_ends_with_the_averages_and_swaps_them():
    optimizer = optimizers.LazyAdam(0.05, **AVERAGED)
    model = model_of(optimizer)
    x, y = data(0)
    swap = keras.callbacks.SwapEMAWeights()
    model.fit(x, y, batch_size=4, epochs=2, verbose=0, callbacks=[swap])
    averages = optimizer._model_variables_moving_average
    for weight, average in zip(model.trainable_variables, averages):
        np.testing.assert_allclose(weight, average, rtol=1e-6, atol=1e-7)


def test_config_through_json():
    optimizer = optimizers.LazyAdam(0.1, **OPTIONS["both"])
    text = json.dumps(keras.optimizers.serialize(optimizer))
    back = keras.optimizers.deserialize(json.loads(text))
    assert back.get_config() == optimizer.get_config()
