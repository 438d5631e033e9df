"""Lazy optimizers against the dense ones of Keras, and TFA's LazyAdam."""

import json
import os

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.cases import quick
from tests.support.processes import run_code
from tfxclass import layers
from tfxclass import optimizers

ROWS, DIM = 12, 5
# Where both do the same float32 operations, in another order.
TOLERANCE = {"rtol": 1e-5, "atol": 2e-6}
DATA = os.path.join(os.path.dirname(__file__), "..", "data")

PAIRS = {
    "sgd": ("SGD", {"learning_rate": 0.1}),
    "momentum": ("SGD", {"learning_rate": 0.1, "momentum": 0.9}),
    "nesterov": (
        "SGD",
        {"learning_rate": 0.1, "momentum": 0.8, "nesterov": True},
    ),
    "adagrad": ("Adagrad", {"learning_rate": 0.1}),
    "adam": ("Adam", {"learning_rate": 0.01}),
    "amsgrad": ("Adam", {"learning_rate": 0.01, "amsgrad": True}),
    "adamw": ("AdamW", {"learning_rate": 0.01, "weight_decay": 0.1}),
}
OPTIONS = {
    "plain": {},
    "weight_decay": {"weight_decay": 0.05},
    "clipnorm": {"clipnorm": 0.5},
    "global_clipnorm": {"global_clipnorm": 0.5},
    "clipvalue": {"clipvalue": 0.1},
    "loss_scale_factor": {"loss_scale_factor": 8.0},
}


def pair(name, **options):
    """Ours and Keras'."""
    kind, arguments = PAIRS[name]
    arguments = {**arguments, **options}
    lazy = getattr(optimizers, f"Lazy{kind}")(**arguments)
    return lazy, getattr(keras.optimizers, kind)(**arguments)


def two_variables(random, rows=ROWS):
    start = random.normal(size=(rows, DIM)).astype(np.float32)
    return keras.Variable(start), keras.Variable(start)


def row_gradient(random, ids, rows=ROWS):
    values = random.normal(size=(len(ids), DIM)).astype(np.float32)
    sparse = tf.IndexedSlices(values, tf.constant(ids), [rows, DIM])
    dense = np.zeros((rows, DIM), np.float32)
    np.add.at(dense, ids, values)
    return sparse, tf.constant(dense)


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("name", quick(PAIRS, ["momentum", "adagrad", "adam"]))
def test_equals_dense_when_every_row_is_touched(name, option):
    random = np.random.default_rng(0)
    lazy, dense = pair(name, **OPTIONS[option])
    ours, theirs = two_variables(random)
    for _ in range(5):
        ids = np.r_[np.arange(ROWS), random.integers(0, ROWS, 7)]
        sparse_gradient, dense_gradient = row_gradient(random, ids)
        lazy.apply([sparse_gradient], [ours])
        dense.apply([dense_gradient], [theirs])
    np.testing.assert_allclose(ours, theirs, **TOLERANCE)


@pytest.mark.parametrize("name", PAIRS)
def test_untouched_rows_and_slots_keep_their_bits(name):
    random = np.random.default_rng(1)
    lazy, _ = pair(name, weight_decay=0.1, clipnorm=0.5)
    variable, _ = two_variables(random)
    lazy.apply([row_gradient(random, np.arange(ROWS))[0]], [variable])
    matrices = [variable] + [
        v for v in lazy.variables if v.shape == variable.shape
    ]
    before = [v.numpy() for v in matrices]
    lazy.apply([row_gradient(random, [3, 1, 3])[0]], [variable])
    untouched = ~np.isin(np.arange(ROWS), [1, 3])
    for old, new in zip(before, matrices):
        np.testing.assert_array_equal(new.numpy()[untouched], old[untouched])
    assert (variable.numpy()[~untouched] != before[0][~untouched]).all()


@pytest.mark.parametrize("name", PAIRS)
def test_schedule(name):
    random = np.random.default_rng(2)
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)
    lazy, dense = pair(name, learning_rate=schedule)
    ours, theirs = two_variables(random)
    for _ in range(5):
        sparse, full = row_gradient(random, np.arange(ROWS))
        lazy.apply([sparse], [ours])
        dense.apply([full], [theirs])
    np.testing.assert_allclose(ours, theirs, **TOLERANCE)


@pytest.mark.parametrize("setting", ["default", "fast"])
def test_trajectory_of_tensorflow_addons(setting):
    """The file's script: tests/support/addons/write_lazy_adam.py."""
    recorded = np.load(os.path.join(DATA, "tfa_lazy_adam.npz"))
    arguments = {
        "default": {"learning_rate": 0.001},
        "fast": {
            "learning_rate": 0.05,
            "beta_1": 0.8,
            "beta_2": 0.95,
            "epsilon": 1e-4,
        },
    }[setting]
    optimizer = optimizers.LazyAdam(**arguments)
    variable = keras.Variable(recorded["start"])
    shape = recorded["start"].shape
    for step, (ids, grads) in enumerate(
        zip(recorded["ids"], recorded["grads"])
    ):
        optimizer.apply([tf.IndexedSlices(grads, ids, shape)], [variable])
        state = {
            "weights": variable,
            "momentum": optimizer._states[0]["momentum"],
            "velocity": optimizer._states[0]["velocity"],
        }
        for name, value in state.items():
            np.testing.assert_allclose(
                value,
                recorded[f"{name}_{setting}"][step],
                # TFA takes 1 - beta_2 in float32: 1.3e-5 off for 0.999.
                rtol={"weights": 0, "momentum": 1e-6, "velocity": 2e-5}[name],
                # Cancellation in beta_1 * m + (1 - beta_1) * g, |g| <= 3.
                atol={"weights": 5e-7, "momentum": 1e-7, "velocity": 0}[name],
                err_msg=f"{name} at step {step}",
            )


def test_graph_orders_gather_before_update():
    lazy = optimizers.LazyAdam()
    variable, _ = two_variables(np.random.default_rng(0))
    lazy.build([variable])

    @tf.function
    def step(ids):
        rows = tf.gather(variable.value, ids)
        lazy.apply([tf.IndexedSlices(rows, ids, [ROWS, DIM])], [variable])

    graph = step.get_concrete_function(tf.constant([1, 2])).graph
    before = {}  # op: the types of all ops that are done when it starts
    for op in graph.get_operations():
        parents = [x.op for x in op.inputs] + list(op.control_inputs)
        before[op] = set().union(*(before[p] | {p.type} for p in parents))
    gather = next(o for o in before if o.type == "ResourceGather")
    update = next(o for o in before if o.type == "Tfxclass>LazyAdamUpdate")
    assert "Tfxclass>LazyAdamUpdate" not in before[gather]
    assert "ResourceGather" in before[update]


@pytest.mark.parametrize("name", ["sgd", "adagrad"])
def test_dense_and_row_gradients_in_turn(name):
    """Of rules that leave rows without a gradient where they are."""
    random = np.random.default_rng(6)
    lazy, dense = pair(name)
    ours, theirs = two_variables(random)
    for t in range(9):
        sparse, full = row_gradient(random, random.integers(0, ROWS, 3))
        lazy.apply([full if t % 3 == 2 else sparse], [ours])
        dense.apply([full], [theirs])
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=5e-6)


@pytest.mark.parametrize("kind", ["SGD", "Adagrad", "Adam", "AdamW"])
def test_config_through_json(kind):
    cls = getattr(optimizers, f"Lazy{kind}")
    schedule = keras.optimizers.schedules.CosineDecay(0.1, 10)
    for rate in (0.25, schedule):
        optimizer = cls(rate, clipnorm=2.0, l2=0.5)
        text = json.dumps(keras.optimizers.serialize(optimizer))
        assert f"tfxclass>Lazy{kind}" in text
        back = keras.optimizers.deserialize(json.loads(text))
        assert type(back) is cls and back.l2 == 0.5
        assert back.get_config() == optimizer.get_config()


def small_model(optimizer):
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.layers.Embedding(50, 6),
            keras.layers.Flatten(),
            keras.layers.Dense(3, use_bias=False),
        ]
    )
    # Else Keras asks XLA on a GPU.
    model.compile(optimizer, loss="mse", jit_compile=False)
    model.build((None, 4))
    return model


def multi_optimizer(layer):
    return optimizers.MultiOptimizer([(keras.optimizers.Adam(), layer)])


MAKERS = {
    "momentum": lambda layer: optimizers.LazySGD(0.1, momentum=0.9),
    "adagrad": lambda layer: optimizers.LazyAdagrad(0.1),
    "adam": lambda layer: optimizers.LazyAdam(0.1),
    "sums": lambda layer: optimizers.LazyAdam(
        0.1, gradient_accumulation_steps=2
    ),
    "head": lambda layer: optimizers.HeadAdam(),
    "stages": lambda layer: optimizers.LocalSGD(
        stages=[(0.1, 10, 2)], gamma=0.1
    ),
    "multi": multi_optimizer,
}


@pytest.mark.parametrize(
    "name", quick(MAKERS, ["adam", "sums", "stages", "multi"])
)
def test_fit_traces_a_step_once(name):
    """`fit` builds the optimizer while it traces: no trace is thrown away."""
    traces = []

    def loss(y_true, y_pred):
        traces.append(name)
        return tf.reduce_mean(tf.square(y_true - y_pred))

    layer = keras.layers.Dense(3)
    model = keras.Sequential([keras.Input((4,)), layer])
    model.compile(MAKERS[name](layer), loss=loss, jit_compile=False)
    x, y = data(0)
    model.fit(x, y, batch_size=16, epochs=2, verbose=0)
    assert len(traces) == 1
    assert model.optimizer.iterations.numpy() == (2 if name == "sums" else 4)


def data(seed):
    random = np.random.default_rng(seed)
    return random.integers(0, 50, (32, 4)), random.normal(size=(32, 3))


@pytest.mark.parametrize("name", quick(PAIRS, ["momentum", "adam"]))
def test_resumed_model_continues_bit_for_bit(name, tmp_path):
    lazy, _ = pair(name)
    model = small_model(lazy)
    for seed in range(3):
        model.train_on_batch(*data(seed))
    model.save(tmp_path / "model.keras")
    resumed = keras.models.load_model(tmp_path / "model.keras")
    assert type(resumed.optimizer) is type(lazy)
    for seed in range(3, 6):
        model.train_on_batch(*data(seed))
        resumed.train_on_batch(*data(seed))
    for a, b in zip(model.get_weights(), resumed.get_weights()):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(lazy.variables, resumed.optimizer.variables):
        np.testing.assert_array_equal(a, b)


def test_a_dense_gradient_has_one_moment_for_each_class_vector():
    """As the same gradient of all rows by name."""
    values = tf.random.stateless_normal([ROWS, DIM], (1, 2))
    rows = tf.IndexedSlices(values, tf.range(ROWS), tf.constant([ROWS, DIM]))
    kernels = []
    for gradient in (values, rows):
        head = layers.FullSoftmax(ROWS)
        head.build((None, DIM))
        head.kernel.assign(tf.ones([ROWS, DIM]))
        optimizer = optimizers.LazyAdam(0.1, second_moment="row")
        for _ in range(2):
            optimizer.apply([gradient], [head.kernel])
        kernels.append(head.kernel.numpy())
    np.testing.assert_allclose(*kernels, **TOLERANCE)


def test_class_vectors_of_one_seed_are_rounded_apart():
    """Equal matrices that get equal gradients do not stay equal."""
    kernels = []
    for _ in range(2):
        head = layers.FullSoftmax(ROWS, kernel_dtype="bfloat16", seed=3)
        head.build((None, 20))
        head.kernel.assign(tf.ones([ROWS, 20], tf.bfloat16))
        kernels.append(head.kernel)
    # A quarter of the last bit.
    optimizer = optimizers.LazySGD(1e-3)
    gradient = tf.IndexedSlices(
        tf.ones([ROWS, 20]), tf.range(ROWS), tf.constant([ROWS, 20])
    )
    optimizer.apply([gradient, gradient], kernels)
    first, second = (
        tf.cast(kernel.value, tf.float32).numpy() for kernel in kernels
    )
    moved = (first < 1), (second < 1)
    assert all(0.1 < x.mean() < 0.5 for x in moved)
    # Independent bits agree in five of eight places.
    assert 0.2 < (moved[0] != moved[1]).mean() < 0.6


def test_others_are_refused_for_bfloat16_class_vectors():
    """By `fit` itself: they would round each small step to none."""
    options = {"sampler": "uniform", "kernel_dtype": "bfloat16"}
    head = layers.SampledSoftmax(100, 20, **options)
    model = keras.Sequential([keras.Input([DIM]), head])
    x, y = np.ones([8, DIM]), np.arange(8)
    scaled = keras.optimizers.LossScaleOptimizer
    for other in (
        keras.optimizers.Adam(),
        keras.optimizers.SGD(),
        scaled(keras.optimizers.Adam()),
    ):
        model.compile(other, loss=head.loss)
        with pytest.raises(ValueError, match=r"one of tfxclass\.optimizers"):
            model.fit(x, y, verbose=0)
    model.compile(scaled(optimizers.LazyAdam()), loss=head.loss)
    before = tf.identity(head.kernel)
    model.fit(x, y, verbose=0)
    assert tf.reduce_any(before[:8] != head.kernel[:8])


def test_a_step_for_xla_is_refused():
    """As Keras asks for by itself on a GPU."""
    model = small_model(optimizers.LazyAdam())
    model.compile(optimizers.LazyAdam(), loss="mse", jit_compile=True)
    with pytest.raises(ValueError, match="jit_compile=False"):
        model.fit(*data(0), verbose=0)


class DenseAdagrad(keras.optimizers.Adagrad):
    """Keras' own squares and clips duplicate rows before it sums them."""

    def apply(self, grads, trainable_variables=None):
        grads = [tf.convert_to_tensor(g) for g in grads]
        super().apply(grads, trainable_variables)


def test_fit_of_embedding_and_dense_layers_equals_dense():
    arguments = {"learning_rate": 0.1, "clipvalue": 0.01}
    models = [
        small_model(cls(**arguments))
        for cls in (optimizers.LazyAdagrad, DenseAdagrad)
    ]
    x, y = data(0)
    for model in models:
        model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    for a, b in zip(models[0].get_weights(), models[1].get_weights()):
        np.testing.assert_allclose(a, b, **TOLERANCE)


def test_mixed_precision_and_loss_scale():
    losses = []
    for cls in (optimizers.LazyAdagrad, DenseAdagrad):
        scaled = keras.optimizers.LossScaleOptimizer(cls(0.1))
        keras.config.set_dtype_policy("mixed_float16")
        try:
            model = small_model(scaled)
        finally:
            keras.config.set_dtype_policy("float32")
        losses.append([model.train_on_batch(*data(t)) for t in range(4)])
    np.testing.assert_allclose(losses[0], losses[1], rtol=2e-3)  # float16


def test_rank_one_variable_and_missing_static_shape():
    lazy, dense = pair("adam")
    ours, theirs = (keras.Variable(np.ones(6, np.float32)) for _ in range(2))
    lazy.build([ours])

    @tf.function(
        input_signature=[
            tf.TensorSpec(None, tf.float32),
            tf.TensorSpec(None, tf.int32),
        ]
    )
    def step(values, ids):
        lazy.apply([tf.IndexedSlices(values, ids)], [ours])

    step(tf.ones([6]), tf.range(6))
    dense.apply([tf.ones([6])], [theirs])
    np.testing.assert_allclose(ours, theirs, **TOLERANCE)


def test_plain_tensorflow_variable():
    lazy, dense = pair("adamw")
    ours, theirs = (tf.Variable(tf.ones([6, 2])) for _ in range(2))
    lazy.apply([tf.IndexedSlices(tf.ones([6, 2]), tf.range(6))], [ours])
    dense.apply([tf.ones([6, 2])], [theirs])
    np.testing.assert_allclose(ours, theirs, **TOLERANCE)


def test_excluded_variable_does_not_decay():
    lazy = optimizers.LazySGD(0.1, weight_decay=0.5)
    variable = keras.Variable(np.ones((3, 2), "float32"), name="bias")
    lazy.exclude_from_weight_decay(var_names=["bias"])
    lazy.apply([tf.IndexedSlices(tf.zeros([1, 2]), [1], [3, 2])], [variable])
    np.testing.assert_array_equal(variable, np.ones((3, 2)))


def test_dense_gradients_may_be_accumulated():
    lazy, dense = pair("adam", gradient_accumulation_steps=2)
    ours, theirs = two_variables(np.random.default_rng(0))
    for _ in range(4):
        lazy.apply([tf.ones([ROWS, DIM])], [ours])
        dense.apply([tf.ones([ROWS, DIM])], [theirs])
    np.testing.assert_array_equal(ours, theirs)


def test_row_out_of_range_says_so():
    variable, _ = two_variables(np.random.default_rng(0))
    rows = tf.IndexedSlices(tf.ones([1, DIM]), [ROWS], [ROWS, DIM])
    with pytest.raises(tf.errors.InvalidArgumentError, match="12 at position"):
        optimizers.LazyAdam().apply([rows], [variable])


TWO_DEVICES = """
import sys
import keras
import numpy as np
import tensorflow as tf
from tfxclass import optimizers

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(
    cpu, [tf.config.LogicalDeviceConfiguration()] * 2)


class Rows(keras.layers.Layer):
    def build(self, shape):
        self.kernel = self.add_weight(shape=(20, 3), initializer="normal")

    def call(self, ids):
        return tf.reduce_sum(tf.gather(self.kernel, ids), axis=1)


def weights_after_fit(strategy, **arguments):
    random = np.random.default_rng(0)
    with strategy.scope():
        keras.utils.set_random_seed(0)
        model = keras.Sequential([
            keras.Input([2], dtype="int32"), Rows(), keras.layers.Dense(2)])
        cls = getattr(optimizers, arguments.pop("kind"))
        model.compile(cls(0.01, **arguments), loss="mse")
    model.fit(random.integers(0, 20, (64, 2)), random.normal(size=(64, 2)),
              batch_size=8, epochs=2, shuffle=False, verbose=0)
    kernel = model.layers[0].kernel
    copies = [x.numpy() for x in strategy.experimental_local_results(
        kernel.value)]
    for copy in copies[1:]:
        np.testing.assert_allclose(copies[0], copy, rtol=1e-5, atol=1e-6)
    return [kernel.numpy(), model.layers[1].kernel.numpy()]


for arguments in (
    dict(kind="LazyAdam"),
    dict(kind="LazyAdamW"),
    dict(kind="LazySGD", momentum=0.9, weight_decay=0.1),
    dict(kind="LazyAdagrad", loss_scale_factor=2.0),
):
    one = weights_after_fit(tf.distribute.get_strategy(), **arguments)
    two = weights_after_fit(
        tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]), **arguments)
    for a, b in zip(one, two):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5)
print("equal")
"""


@pytest.mark.slow
def test_two_devices_equal_one():
    assert run_code(TWO_DEVICES).endswith("equal\n")


@pytest.mark.parametrize("name", ["LazyAdam", "LazyAdamW"])
@pytest.mark.parametrize("epsilon", [-1e-7, float("nan"), float("inf"), "big"])
def test_an_epsilon_that_gives_nan_is_refused(name, epsilon):
    with pytest.raises(ValueError, match=f"`epsilon`.*Received: {epsilon!r}"):
        getattr(optimizers, name)(1e-3, epsilon=epsilon)
    for right in (0, 1e-2, np.float32(0.5)):
        assert getattr(optimizers, name)(1e-3, epsilon=right).epsilon == right
