"""Sample weights of rows, against NumPy's broadcasting."""

import numpy as np
import pytest
import tensorflow as tf

from tfxclass.core.forward import row_weights


@pytest.mark.parametrize("shape", [(3,), (3, 1), (3, 4)])
def test_weights_are_of_all_positions(shape):
    weights = np.random.default_rng(0).random(shape).astype("float32")
    expected = np.broadcast_to(weights.reshape(3, -1), (3, 4))
    found = row_weights(weights, tf.zeros([3, 4, 2]))
    np.testing.assert_array_equal(found, expected.ravel())


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
def test_weights_of_rows(shape):
    weights = np.arange(3.0).reshape(shape)
    found = row_weights(weights, tf.zeros([3, 2]))
    np.testing.assert_array_equal(found, [0, 1, 2])
