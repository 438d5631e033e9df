"""The state that each rule declares, by name."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfxclass import layers
from tfxclass import optimizers

ROWS, DIM = 12, 5
ADAM = {"momentum", "velocity"}


def built(optimizer):
    """The optimizer's state of a head: class vectors, and the bias."""
    head = layers.FullSoftmax(ROWS, use_bias=True)
    head.build((None, DIM))
    optimizer.build(head.trainable_variables)
    return optimizer._states


@pytest.mark.parametrize(
    ("make", "names", "names_of_bias"),
    [
        (lambda: optimizers.LazySGD(), set(), set()),
        (lambda: optimizers.LazySGD(momentum=0.9), {"momentum"}, {"momentum"}),
        (lambda: optimizers.LazyAdagrad(), {"accumulator"}, {"accumulator"}),
        (lambda: optimizers.LazyAdam(), ADAM, ADAM),
        (lambda: optimizers.LazyAdamW(second_moment="matrix"), ADAM, ADAM),
        (
            lambda: optimizers.HeadAdam(),
            {"gradient_scale", "accumulator"},
            ADAM,
        ),
    ],
)
def test_each_variable_has_the_state_of_its_rule(make, names, names_of_bias):
    optimizer = make()
    of_kernel, of_bias = built(optimizer)
    assert (set(of_kernel), set(of_bias)) == (names, names_of_bias)
    # Nothing more than these, the steps and the learning rate.
    number = len(of_kernel) + len(of_bias)
    assert len(optimizer.variables) == 2 + number
    for state in (of_kernel, of_bias):
        for name, variable in state.items():
            assert variable.name.endswith(f"_{name}")


def test_dense_updates_of_keras_use_the_same_state():
    """Rows and dense gradients in turn share moments."""
    optimizer = optimizers.LazyAdam(0.1)
    variable = keras.Variable(np.ones([ROWS, DIM], np.float32))
    rows = tf.IndexedSlices(tf.ones([1, DIM]), [3], [ROWS, DIM])
    optimizer.apply([rows], [variable])
    (state,) = optimizer._states
    before = state["momentum"].numpy()
    assert before[3].all() and not before[:3].any()
    optimizer.apply([tf.ones([ROWS, DIM])], [variable])
    np.testing.assert_allclose(state["momentum"][3], 0.19, rtol=1e-5)
    np.testing.assert_allclose(state["momentum"][0], 0.1, rtol=1e-5)
