"""`MultiOptimizer`: the behaviour of Addons' one, and more, under Keras 3."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.support.processes import run_code
from tfxclass import optimizers
from tfxclass.optimizers import MultiOptimizer


def dense_model(sizes=(16, 16, 32, 32), dim=4):
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(size) for size in sizes]
    model = keras.Sequential([keras.Input([dim]), *layers])
    return model, np.ones((128, dim), "f"), np.ones((128, sizes[-1]), "f")


def moved(model, x, y, **arguments):
    """Which layers `fit` moves."""
    before = [layer.get_weights() for layer in model.layers]
    model.fit(x, y, batch_size=32, epochs=3, verbose=0, **arguments)
    after = [layer.get_weights() for layer in model.layers]
    return [
        any((a != b).any() for a, b in zip(old, new))
        for old, new in zip(before, after)
    ]


def compiled(model, pairs, **options):
    optimizer = MultiOptimizer(pairs, **options)
    model.compile(optimizer, loss="mse", run_eagerly=True)
    return optimizer


def test_layers_and_lists_of_layers():
    model, x, y = dense_model()
    pairs = [
        (keras.optimizers.SGD(0.0), model.layers[0]),
        (keras.optimizers.Adam(), model.layers[1]),
        (keras.optimizers.Adam(), model.layers[2:]),
    ]
    compiled(model, pairs)
    assert moved(model, x, y) == [False, True, True, True]


def test_nested_models():
    def part():
        inputs = keras.Input([4])
        return keras.Model(inputs, keras.layers.Dense(1)(inputs))

    parts = [part() for _ in range(3)]
    inputs = keras.Input([4])
    outputs = keras.layers.Average()([p(inputs) for p in parts])
    model = keras.Model(inputs, outputs)
    rates = (0.01, 0.0, 0.01)
    compiled(
        model, [(keras.optimizers.SGD(r), p) for r, p in zip(rates, parts)]
    )
    before = [p.get_weights()[0] for p in parts]
    model.fit(np.ones((32, 4)), np.ones((32, 1)), verbose=0)
    after = [p.get_weights()[0] for p in parts]
    changed = [(a != b).any() for a, b in zip(before, after)]
    assert changed == [True, False, True]


def test_subclass_model_in_a_custom_loop():
    class Custom(keras.Model):
        def __init__(self):
            super().__init__()
            self.block1 = keras.layers.Dense(16)
            self.block2 = keras.layers.Dense(8)

        def call(self, x):
            return self.block2(self.block1(x))

    model = Custom()
    optimizer = MultiOptimizer(
        [
            (keras.optimizers.SGD(0.0), model.block1),  # built later
            (keras.optimizers.Adam(), model.block2),
        ]
    )
    model(tf.ones([1, 4]))
    before = model.get_weights()
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(tf.ones([8, 4])) ** 2)
    variables = model.trainable_variables
    gradients = tape.gradient(loss, variables)
    optimizer.apply_gradients(zip(gradients, variables))
    changed = [(a != b).any() for a, b in zip(before, model.get_weights())]
    assert changed == [False, False, True, True]


def test_equals_an_optimizer_for_each_part():
    def train(make):
        model, x, y = dense_model((6, 5))
        schedule = keras.optimizers.schedules.CosineDecay(0.05, 12)
        parts = [
            keras.optimizers.AdamW(schedule, weight_decay=0.1, clipnorm=0.5),
            optimizers.LazySGD(0.01, momentum=0.9),
        ]
        make(model, parts, x, y)
        return model.get_weights()

    def together(model, parts, x, y):
        compiled(model, list(zip(parts, model.layers)))
        model.fit(x, y, epochs=2, verbose=0)

    def apart(model, parts, x, y):
        for part, layer in zip(parts, model.layers):
            part.build(layer.trainable_variables)
        for _ in range(2):
            for i in range(0, len(x), 32):
                with tf.GradientTape() as tape:
                    error = model(x[i : i + 32]) - y[i : i + 32]
                    loss = tf.reduce_mean(error**2)
                gradients = tape.gradient(loss, model.trainable_variables)
                parts[0].apply(gradients[:2])
                parts[1].apply(gradients[2:])

    for a, b in zip(train(together), train(apart)):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def head_model(make, policy="float32"):
    """An encoder and a sampled head, compiled with `make(encoder, head)`."""
    keras.utils.set_random_seed(0)
    keras.config.set_dtype_policy(policy)
    try:
        # GPUs sum the gradient of a bias in any order.
        encoder = keras.layers.Dense(
            8, activation="relu", use_bias=False, name="encoder"
        )
        head = tfxclass.layers.SampledSoftmax(40, 32, "uniform", seed=1)
        model = keras.Sequential([keras.Input([6]), encoder, head])
        model.compile(make(encoder, head), loss=head.loss)
    finally:
        keras.config.set_dtype_policy("float32")
    return model


def pair_of_groups(encoder, head):
    return MultiOptimizer(
        [
            (
                keras.optimizers.AdamW(
                    keras.optimizers.schedules.CosineDecay(2e-3, 20)
                ),
                encoder,
            ),
            (optimizers.LazyAdam(5e-2), head),
        ]
    )


def head_batch():
    random = np.random.default_rng(0)
    return random.normal(size=(64, 6)).astype("f"), np.arange(64) % 40


def test_head_and_encoder_resume_bit_for_bit(tmp_path):
    model = head_model(pair_of_groups)
    x, y = head_batch()
    options = {"batch_size": 16, "shuffle": False, "verbose": 0}
    model.fit(x, y, epochs=2, **options)
    model.save(tmp_path / "model.keras")
    resumed = keras.models.load_model(tmp_path / "model.keras")
    assert type(resumed.optimizer) is MultiOptimizer
    assert isinstance(resumed.optimizer.optimizers[1], optimizers.LazyAdam)
    for one in (model, resumed):
        one.fit(x, y, epochs=2, **options)
    assert int(resumed.optimizer.iterations) == 16
    for a, b in zip(model.get_weights(), resumed.get_weights()):
        np.testing.assert_array_equal(a, b)
    ours, theirs = model.optimizer.variables, resumed.optimizer.variables
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision(policy):
    """`compile` wraps it in a LossScaleOptimizer under "mixed_float16"."""
    model = head_model(pair_of_groups, policy)
    scaled = isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    assert scaled == (policy == "mixed_float16")
    x, y = head_batch()
    encoder, head = model.layers

    def loss():
        return np.mean(head.compute_loss(encoder(x), y))

    first = loss()
    model.fit(x, y, batch_size=16, epochs=3, verbose=0)
    assert loss() < first


def test_learning_rates_move_together():
    model, x, y = dense_model((3, 2))
    parts = [keras.optimizers.SGD(0.1), keras.optimizers.Adam(0.004)]
    optimizer = compiled(model, list(zip(parts, model.layers)))
    plateau = keras.callbacks.ReduceLROnPlateau(
        monitor="loss", factor=0.5, patience=0, min_delta=1e9
    )
    model.fit(x, y, epochs=3, verbose=0, callbacks=[plateau])
    rates = [float(part.learning_rate) for part in parts]
    # The first epoch is the best so far.
    np.testing.assert_allclose(rates, [0.025, 0.001], rtol=1e-6)
    np.testing.assert_allclose(float(optimizer.learning_rate), 0.025)


def test_a_rate_that_cannot_be_set():
    a, b = (keras.Variable(np.ones(2, "f"), name=n) for n in "ab")
    zero = MultiOptimizer([(SGD(0.0), a), (SGD(), b)])
    with pytest.raises(ValueError, match="`learning_rate` must be set for"):
        zero.learning_rate = 0.5
    schedule = keras.optimizers.schedules.CosineDecay(0.1, 10)
    scheduled = MultiOptimizer([(SGD(schedule), a)])
    with pytest.raises(TypeError, match="LearningRateSchedule"):
        scheduled.learning_rate = 0.5


def test_variables_without_weight_decay():
    a, b = (keras.Variable(np.ones(2, "f"), name=n) for n in "ab")
    parts = [keras.optimizers.AdamW(0.1, weight_decay=0.5) for _ in range(2)]
    optimizer = MultiOptimizer(list(zip(parts, (a, b))))
    optimizer.exclude_from_weight_decay(var_names=["b"])
    optimizer.apply([tf.zeros(2), tf.zeros(2)], [a, b])
    np.testing.assert_allclose(a, [0.95, 0.95], rtol=1e-6)
    np.testing.assert_array_equal(b, [1.0, 1.0])


def test_no_gradients_are_no_step():
    one = keras.Variable(np.ones(2, "f"), name="one")
    optimizer = MultiOptimizer([(SGD(), one)])
    optimizer.build([one])
    optimizer.apply([], [])
    assert int(optimizer.iterations) == 0


def test_a_group_without_a_gradient_counts_the_step():
    a, b = (keras.Variable(np.ones(2, "f"), name=n) for n in "ab")
    parts = [keras.optimizers.Adam(), keras.optimizers.Adam()]
    optimizer = MultiOptimizer([(parts[0], a), (parts[1], b)])
    optimizer.build([a, b])
    optimizer.apply([tf.ones(2), None], [a, b])
    optimizer.apply([tf.ones(2)], [a])
    assert [int(part.iterations) for part in parts] == [2, 2]
    np.testing.assert_array_equal(b, np.ones(2))


def test_averages_of_a_group():
    a, b = (keras.Variable(np.ones(2, "f"), name=n) for n in "ab")
    averaged = keras.optimizers.SGD(1.0, use_ema=True, ema_momentum=0.5)
    optimizer = MultiOptimizer([(keras.optimizers.SGD(1.0), a), (averaged, b)])
    for _ in range(2):
        optimizer.apply([tf.ones(2), tf.ones(2)], [a, b])
    optimizer.finalize_variable_values([a, b])
    np.testing.assert_array_equal(a, [-1, -1])
    np.testing.assert_array_equal(b, [-0.5, -0.5])


def test_config_through_json():
    model, _, _ = dense_model((3, 2))
    parts = [keras.optimizers.Adam(1e-3), optimizers.LazySGD(0.1)]
    optimizer = MultiOptimizer(list(zip(parts, model.layers)))
    text = json.dumps(keras.optimizers.serialize(optimizer))
    back = keras.optimizers.deserialize(json.loads(text))
    assert back.get_config() == optimizer.get_config()
    back.build(model.trainable_variables)
    found = [len(group._trainable_variables) for group in back.optimizers]
    assert found == [2, 2]


def test_two_variables_of_one_path_come_back_by_their_order():
    a, b = (keras.Variable(np.ones(2, "f"), name="same") for _ in range(2))
    optimizer = MultiOptimizer(
        [(keras.optimizers.SGD(), b), (keras.optimizers.SGD(), a)]
    )
    optimizer.apply([tf.ones(2), tf.ones(2)], [a, b])
    back = MultiOptimizer.from_config(optimizer.get_config())
    back.build([a, b])
    assert back.optimizers[0]._trainable_variables[0] is b


def variable(name="v"):
    return keras.Variable(np.ones(2, "f"), name=name)


def scaled(optimizer):
    return keras.optimizers.LossScaleOptimizer(optimizer)


SGD = keras.optimizers.SGD
ONE, SHARED = variable("one"), SGD()
BAD = {
    "none": (lambda: [], r"list of pairs.*Received: \[\]"),
    "a name": (lambda: "adam", "Received: 'adam'"),
    "no pair": (lambda: [SGD()], r"\[0\]` must be a pair"),
    "no optimizer": (lambda: [("sgd", ONE)], r"\[0\]` must be a pair.*'sgd'"),
    "no layer": (lambda: [(SGD(), 3)], "Expected layers.*Received: 3"),
    "twice": (
        lambda: [(SGD(), ONE), (SGD(), [ONE])],
        "'one' with numbers 0 and 1",
    ),
    "same optimizer": (
        lambda: [(SHARED, ONE), (SHARED, variable())],
        "same one twice",
    ),
    "several": (
        lambda: [(MultiOptimizer([(SGD(), ONE)]), ONE)],
        "without groups.*MultiOptimizer",
    ),
    "loss scale": (lambda: [(scaled(SGD()), ONE)], "wrap the MultiOptimizer"),
    "loss scale factor": (
        lambda: [(SGD(loss_scale_factor=8.0), ONE)],
        "wrap the MultiOptimizer",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_pairs(case):
    make, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        MultiOptimizer(make())


def test_variables_in_no_group_or_in_two():
    a, b = variable("a"), variable("b")
    optimizer = MultiOptimizer([(SGD(), a)])
    with pytest.raises(ValueError, match=r"none for \['b'\]"):
        optimizer.apply([tf.ones(2), tf.ones(2)], [a, b])
    layer = keras.layers.Dense(2, name="late")
    optimizer = MultiOptimizer([(SGD(), layer)])
    layer.build((None, 3))
    optimizer.build([layer.kernel])
    twice = MultiOptimizer([(SGD(), keras.Sequential([layer])), (SGD(), a)])
    twice.build([layer.kernel, layer.bias, a])
    with pytest.raises(ValueError, match="give them, or call"):
        MultiOptimizer([(SGD(), a)]).apply([tf.ones(2)])
    with pytest.raises(ValueError, match=r"built with.*Received: \['b'\]"):
        twice.apply([tf.ones(2)], [b])


def test_frozen_layers_need_no_group():
    model, x, y = dense_model((3, 2))
    model.layers[0].trainable = False
    compiled(model, [(SGD(), model.layers[1])])
    assert moved(model, x, y) == [False, True]


TWO_DEVICES = """
import keras
import numpy as np
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(
    cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
from tests.optimizers import test_multi_optimizer as tests

x, y = tests.head_batch()
weights = []
for strategy in (tf.distribute.get_strategy(),
                 tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])):
    with strategy.scope():
        model = tests.head_model(tests.pair_of_groups)
    model.fit(x, y, batch_size=16, epochs=2, shuffle=False, verbose=0)
    weights.append(model.get_weights())
for a, b in zip(*weights):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
print("equal")
"""


@pytest.mark.slow
def test_two_devices_equal_one():
    assert run_code(TWO_DEVICES).endswith("equal\n")
