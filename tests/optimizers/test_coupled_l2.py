"""`l2` of the lazy optimizers: as the dense optimizer on a loss with it."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.layers.test_row_options import RULES
from tests.layers.test_row_options import assert_near
from tests.layers.test_row_options import gradients
from tests.layers.test_row_options import pair
from tests.layers.test_row_options import two_variables

L2 = 0.3


@pytest.mark.parametrize("rule", RULES)
def test_equals_keras_where_all_rows_are_touched(rule):
    """Rows named twice count once."""
    lazy, dense = pair(rule)
    lazy = type(lazy).from_config({**lazy.get_config(), "l2": L2})
    ours, theirs = two_variables()
    lazy.build([ours])
    dense.build([theirs])
    random = np.random.default_rng(3)
    for _ in range(6):
        ids = np.concatenate([np.arange(ours.shape[0]), [2, 5, 2]])
        values = random.normal(size=(len(ids), ours.shape[1]))
        full = np.zeros(ours.shape)
        np.add.at(full, ids, values)
        full += L2 * theirs.numpy()
        lazy.apply([tf.IndexedSlices(values, ids, ours.shape)], [ours])
        dense.apply([tf.constant(full)], [theirs])
        assert_near(ours, theirs)


def test_touched_rows_alone_and_dense_gradients():
    lazy, _ = pair("sgd")
    lazy = type(lazy)(0.1, l2=L2)
    rows, whole = two_variables()
    start = rows.numpy()
    for sparse, full in gradients(1, "float64"):
        lazy.apply([sparse, full], [rows, whole])
        touched = np.unique(sparse.indices)
        expected = start - 0.1 * (full.numpy() + L2 * start)
        assert_near(rows.numpy()[touched], expected[touched])
        rest = np.setdiff1d(np.arange(len(start)), touched)
        np.testing.assert_array_equal(rows.numpy()[rest], start[rest])
        assert_near(whole, expected)


def test_excluded_variables_and_config():
    lazy = tfxclass.optimizers.LazySGD(0.1, l2=L2)
    variable, _ = two_variables()
    lazy.exclude_from_weight_decay([variable])
    start = variable.numpy()
    (sparse, full), *_ = gradients(1, "float64")
    lazy.apply([sparse], [variable])
    assert_near(variable, start - 0.1 * full.numpy())
    text = json.dumps(keras.optimizers.serialize(lazy))
    assert keras.optimizers.deserialize(json.loads(text)).l2 == L2


def test_a_step_of_all_classes_is_regularised():
    """Without `l2` an exact softmax is updated class by class."""
    random = np.random.default_rng(0)
    x = random.normal(size=(24, 4)).astype(np.float32)
    y = random.integers(0, 30, 24)
    head = tfxclass.layers.FullSoftmax(30, seed=1)
    head.build((None, 4))
    optimizer = tfxclass.optimizers.LazySGD(0.1, l2=L2)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(head.compute_loss(x, y, training=True))
        grads = tape.gradient(loss, [head.kernel.value])
        optimizer.apply(grads, [head.kernel])
        return tf.convert_to_tensor(grads[0])

    optimizer.build([head.kernel])
    start = head.kernel.numpy()
    gradient = step().numpy()
    expected = start - 0.1 * (gradient + L2 * start)
    np.testing.assert_allclose(head.kernel, expected, atol=1e-6)


def test_fit_reaches_the_regularised_optimum():
    """One-vs-rest ridge of a head: where its gradient is nothing."""
    random = np.random.default_rng(0)
    x = random.normal(size=(24, 4)).astype(np.float32)
    y = random.integers(0, 3, 24)
    head = tfxclass.layers.FullSoftmax(3, loss="squared_hinge")
    head.build((None, 4))
    optimizer = tfxclass.optimizers.LazySGD(0.1, momentum=0.9, l2=0.5)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(head.compute_loss(x, y, training=True))
        grads = tape.gradient(loss, [head.kernel.value])
        optimizer.apply(grads, [head.kernel])
        return tf.convert_to_tensor(grads[0])

    optimizer.build([head.kernel])
    for _ in range(300):
        kernel = head.kernel.numpy()
        gradient = step().numpy()
    np.testing.assert_allclose(gradient + 0.5 * kernel, 0.0, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"l2": -1.0}, "`l2` must be finite and >= 0. Received: -1.0"),
        ({"l2": float("inf")}, "`l2` must be finite and >= 0. Received: inf"),
    ],
)
def test_bad_arguments(options, part):
    with pytest.raises(ValueError) as error:
        tfxclass.optimizers.LazyAdam(**options)
    assert part in str(error.value)
