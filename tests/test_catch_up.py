"""`catch_up=True` against Keras' dense optimizers, over long gaps."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.cases import quick
from tfxclass import optimizers
from tfxclass.optimizers import skipped_steps

DIM = 3
schedules = keras.optimizers.schedules
SCHEDULES = {
    "constant": lambda steps: 0.01,
    "cosine": lambda steps: schedules.CosineDecay(0.01, steps),
    "step_drop": lambda steps: schedules.PiecewiseConstantDecay(
        [steps // 3, 2 * steps // 3], [0.03, 0.003, 0.0003]
    ),
    "warm_up": lambda steps: schedules.CosineDecay(
        0.0, steps, warmup_target=0.01, warmup_steps=steps // 4
    ),
}
RULES = {
    "momentum": ("SGD", {"momentum": 0.9}),
    "nesterov_decay": (
        "SGD",
        {"momentum": 0.8, "nesterov": True, "weight_decay": 0.05},
    ),
    "adagrad_decay": ("Adagrad", {"weight_decay": 0.05}),
    "adam": ("Adam", {}),
    "adam_small_beta_2": ("Adam", {"beta_2": 0.97}),
    "amsgrad": ("Adam", {"amsgrad": True}),
    "adamw": ("AdamW", {"weight_decay": 0.1}),
}


def pair(rule, rate, **options):
    """Ours and Keras'."""
    kind, arguments = RULES.get(rule, (rule, {}))
    arguments = {"learning_rate": rate, **arguments, **options}
    lazy = getattr(optimizers, f"Lazy{kind}")(**arguments, catch_up=True)
    return lazy, getattr(keras.optimizers, kind)(**arguments)


def two_variables(shape, dtype="float64", seed=0):
    start = np.random.default_rng(seed).normal(size=shape).astype(dtype)
    return [keras.Variable(start, dtype=dtype) for _ in range(2)]


def touched(steps, rows):
    """The two rows of each step: gaps of 1, 10, 100, 1,000 and all steps."""
    ids = np.zeros((steps, 2), np.int64)
    for row, gap in ((1, 10), (2, 100), (3, 1000), (4, steps - 1)):
        ids[row - 1 :: gap, 1] = row
    ids[5, 1] = rows - 1  # touched once, then never
    return ids


def train(lazy, dense, ours, theirs, ids):
    """The same row gradients; ours are caught up, then updated."""
    lazy.build([ours])
    dense.build([theirs])
    shape, dtype = tuple(ours.shape), ours.dtype
    ids = tf.constant(ids)

    def body(t):
        touched = ids[t]
        seed = tf.stack([t, 7])
        values = tf.random.stateless_normal([2, *shape[1:]], seed, dtype=dtype)
        optimizers.catch_up(ours, touched)
        tf.gather(ours.value, touched)
        lazy.apply([tf.IndexedSlices(values, touched, shape)], [ours])
        full = tf.scatter_nd(touched[:, None], values, shape)
        dense.apply([full], [theirs])
        return [t + 1]

    @tf.function(autograph=False)
    def loop():
        return tf.while_loop(lambda t: t < len(ids), body, [0])

    loop()


def difference(ours, theirs, start):
    """Of the greatest of a row, relative to the dense move."""
    ours, theirs = (np.asarray(x.numpy(), float) for x in (ours, theirs))
    move = np.abs(theirs - start).max()
    return np.abs(ours - theirs).max() / move


def check_trajectory(rule, schedule, steps, rows, limit, dtype, **options):
    lazy, dense = pair(rule, SCHEDULES[schedule](steps), **options)
    ours, theirs = two_variables((rows, DIM), dtype)
    start = ours.numpy().astype(float)
    train(lazy, dense, ours, theirs, touched(steps, rows))
    optimizers.catch_up(ours)
    assert difference(ours, theirs, start) < limit


@pytest.mark.parametrize("schedule", quick(SCHEDULES, ["constant", "warm_up"]))
@pytest.mark.parametrize("rule", RULES)
def test_equals_dense_under_any_schedule(rule, schedule):
    """In float64, where dense rounds nothing away; a history is 256 steps."""
    check_trajectory(rule, schedule, 1203, 9, 1e-5, "float64")


@pytest.mark.parametrize(
    "rule", quick(["momentum", "adam", "adamw"], ["momentum"])
)
def test_equals_dense_over_ten_thousand_steps(rule):
    """In one history: as many rows as steps."""
    check_trajectory(rule, "cosine", 10_002, 10_100, 1e-5, "float64")


@pytest.mark.parametrize("rule", RULES)
def test_equals_dense_in_float32(rule):
    # 1,200 roundings of numbers around 2 on either side, half of 2^-23 each,
    # beside moves of about 1: 2e-5 as a random walk.
    check_trajectory(rule, "cosine", 1203, 9, 3e-5, "float32")


@pytest.mark.parametrize(
    "beta_1, beta_2", [(0.9, 0.9), (0.9, 0.5), (0.6, 0.1), (0.99, 0.999)]
)
@pytest.mark.parametrize("epsilon", [1e-7, 1e-2])
def test_equals_dense_with_any_betas(beta_1, beta_2, epsilon):
    betas = {"beta_1": beta_1, "beta_2": beta_2, "epsilon": epsilon}
    check_trajectory("Adam", "step_drop", 600, 9, 1e-5, "float64", **betas)


def test_bias_vectors_and_gradients_as_small_as_epsilon():
    lazy, dense = pair("adamw", SCHEDULES["warm_up"](500), epsilon=0.5)
    ours, theirs = two_variables((9,))
    start = ours.numpy()
    train(lazy, dense, ours, theirs, touched(500, 9))
    optimizers.catch_up(ours)
    assert difference(ours, theirs, start) < 1e-5


def test_the_cost_of_a_row_does_not_depend_on_its_age():
    terms, each_element = skipped_steps.adam_terms(
        0.9, 0.999, 1e-7, False, 65536
    )
    assert terms.shape == (3, 198) and not each_element
    assert skipped_steps.adam_terms(0.9, 0.5, 1e-7, False, 65536)[1]
    assert skipped_steps.sgd_terms(0.9, False, 65536).shape == (1, 197)
    assert skipped_steps.sgd_terms(1.0, False, 300).shape == (1, 300)
    assert skipped_steps.sgd_terms(0.0, False, 300).shape == (1, 1)


def test_betas_without_end_are_refused():
    optimizers.LazyAdam(beta_2=0.5, catch_up=True)
    optimizers.LazyAdam(beta_2=0.5, epsilon=0.0, amsgrad=True, catch_up=True)
    with pytest.raises(ValueError, match="beta_2=0.5, epsilon=0.0"):
        optimizers.LazyAdam(beta_2=0.5, epsilon=0.0, catch_up=True)


def steps_of(lazy, dense, ours, theirs, count, seed, is_trained=True):
    """Steps of two variables, of which the first may be left out."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        gradients = []
        for _ in range(2):
            ids = random.integers(0, 9, 2)
            values = random.normal(size=(2, DIM))
            full = np.zeros((9, DIM))
            np.add.at(full, ids, values)
            rows = tf.IndexedSlices(values, ids, (9, DIM))
            gradients.append((rows, tf.constant(full)))
        first = 0 if is_trained else 1
        sparse, full = zip(*gradients[first:])
        lazy.apply(list(sparse), ours[first:])
        dense.apply(list(full), theirs[first:])


def two_pairs():
    first, second = two_variables((9, DIM)), two_variables((9, DIM), seed=1)
    return map(list, zip(first, second))


def test_a_frozen_variable_stays_where_dense_leaves_it():
    lazy, dense = pair("adamw", SCHEDULES["cosine"](60))
    ours, theirs = two_pairs()
    lazy.build(ours)
    dense.build(theirs)
    arguments = (lazy, dense, ours, theirs)
    steps_of(*arguments, 20, 0)
    optimizers.catch_up(ours[0], [1, 2])
    steps_of(*arguments, 20, 1, is_trained=False)
    optimizers.catch_up(ours[0])
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-6, atol=1e-6)
    frozen = ours[0].numpy()
    steps_of(*arguments, 5, 2, is_trained=False)
    optimizers.catch_up(ours[0])
    np.testing.assert_array_equal(ours[0], frozen)
    steps_of(*arguments, 20, 3)
    for a, b in zip(ours, theirs):
        optimizers.catch_up(a)
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("how", ["assign", "assign_add", "assign_sub"])
def test_an_assigned_row_goes_on_from_its_new_place(how):
    lazy, dense = pair("adam", 0.05)
    ours, theirs = two_pairs()
    arguments = (lazy, dense, ours, theirs)
    steps_of(*arguments, 20, 0)
    value = np.random.default_rng(5).normal(size=(9, DIM))
    for variable in (ours[0], theirs[0]):
        getattr(variable, how)(value)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-6, atol=1e-6)
    optimizers.catch_up(ours[0])
    if how == "assign":
        np.testing.assert_array_equal(ours[0], value)
    steps_of(*arguments, 20, 1)
    for a, b in zip(ours, theirs):
        optimizers.catch_up(a)
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


def test_set_weights_in_a_model():
    model = head_model("float32")
    x, y = batch()
    model.fit(x, y, batch_size=16, epochs=2, verbose=0)
    weights = [np.full(w.shape, 0.25, "float32") for w in model.get_weights()]
    model.set_weights(weights)
    optimizers.catch_up(model.layers[-1].kernel)
    for found, expected in zip(model.get_weights(), weights):
        np.testing.assert_array_equal(found, expected)


def batch():
    random = np.random.default_rng(0)
    return random.normal(size=(64, 6)).astype("f"), np.arange(64) % 40


def head_model(policy):
    keras.utils.set_random_seed(0)
    keras.config.set_dtype_policy(policy)
    try:
        head = tfxclass.layers.SampledSoftmax(
            40, num_sampled=24, sampler="uniform", seed=1
        )
        layers = [keras.Input([6]), keras.layers.Dense(8), head]
        model = keras.Sequential(layers)
    finally:
        keras.config.set_dtype_policy("float32")
    # In float16 the root of most velocities is below the default epsilon.
    optimizer = optimizers.LazyAdam(0.01, epsilon=1e-3, catch_up=True)
    model.compile(optimizer, loss=head.loss, run_eagerly=True)
    return model


@pytest.mark.parametrize("policy", ["bfloat16", "float16", "mixed_bfloat16"])
def test_policies(policy):
    """The encoder's variables have types of their own."""
    model = head_model(policy)
    x, y = batch()
    first = model.evaluate(x, y, verbose=0)
    model.fit(x, y, batch_size=16, epochs=4, verbose=0)
    assert model.evaluate(x, y, verbose=0) < first


def test_resumes_bit_for_bit_under_a_schedule(tmp_path):
    lazy, _ = pair("adamw", SCHEDULES["cosine"](400))
    (ours,) = two_variables((9, DIM))[:1]
    layer = keras.layers.Layer()
    layer.kernel = ours
    ids = touched(400, 9)

    def steps(optimizer, variable, first, last):
        random = np.random.default_rng(first)
        for t in range(first, last):
            values = random.normal(size=(2, DIM))
            rows = tf.IndexedSlices(values, ids[t], (9, DIM))
            optimizer.apply([rows], [variable])

    steps(lazy, ours, 0, 270)
    resumed, _ = pair("adamw", SCHEDULES["cosine"](400))
    copy = keras.Variable(ours.numpy(), dtype="float64")
    resumed.build([copy])
    store = {}
    lazy.save_own_variables(store)
    resumed.load_own_variables(store)
    for optimizer, variable in ((lazy, ours), (resumed, copy)):
        steps(optimizer, variable, 270, 300)
        optimizers.catch_up(variable)
    np.testing.assert_array_equal(ours, copy)
    for a, b in zip(lazy.variables, resumed.variables):
        np.testing.assert_array_equal(a, b)
