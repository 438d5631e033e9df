"""Initial values that are drawn in blocks."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfxclass import initializers
from tfxclass.initializers import InBlocks


@pytest.mark.parametrize(
    "initializer, spread",
    [
        # The limit or deviation of a matrix of that shape, as Keras has it.
        ("glorot_uniform", np.sqrt(6 / (1000 + 40)) / np.sqrt(3)),
        (keras.initializers.HeNormal(seed=3), np.sqrt(2 / 1000)),
        (keras.initializers.LecunNormal(seed=3), np.sqrt(1 / 1000)),
        (keras.initializers.RandomNormal(stddev=0.5, seed=3), 0.5),
        (keras.initializers.RandomUniform(-0.3, 0.3), 0.3 / np.sqrt(3)),
        (
            keras.initializers.VarianceScaling(3.0, "fan_out", "normal"),
            np.sqrt(3 / 40),
        ),
    ],
)
def test_first_rows_are_drawn_in_blocks(initializer, spread, monkeypatch):
    monkeypatch.setattr(initializers, "BLOCK_NUMBERS", 4000)
    in_blocks = InBlocks(keras.initializers.get(initializer))
    drawn = in_blocks((1000, 40), "bfloat16")
    assert drawn.dtype == tf.bfloat16 and drawn.shape == (1000, 40)
    assert in_blocks.block_rows((1000, 40)) == 100
    values = tf.cast(drawn, tf.float32).numpy()
    # 40,000 numbers: the deviation of their deviation is 0.35 %.
    np.testing.assert_allclose(values.std(), spread, rtol=0.02)
    blocks = values.reshape(10, -1)
    correlation = np.corrcoef(blocks) - np.eye(10)
    assert np.abs(correlation).max() < 5 / np.sqrt(4000)
    third = tf.cast(in_blocks.block((1000, 40), 3), tf.bfloat16)
    np.testing.assert_array_equal(tf.cast(third, tf.float32), values[300:400])
    if not isinstance(initializer, str):
        again = tf.cast(in_blocks((1000, 40), "bfloat16"), tf.float32)
        np.testing.assert_array_equal(values, again)


def test_what_is_not_independent_is_drawn_at_once(monkeypatch):
    monkeypatch.setattr(initializers, "BLOCK_NUMBERS", 40)
    in_blocks = InBlocks(keras.initializers.Orthogonal(seed=1))
    values = tf.cast(in_blocks((20, 4), "bfloat16"), tf.float32).numpy()
    np.testing.assert_allclose(values.T @ values, np.eye(4), atol=0.02)
    assert in_blocks.block_rows((20, 4)) == 20
    ones = InBlocks(keras.initializers.Ones())((20, 4), "bfloat16")
    np.testing.assert_array_equal(tf.cast(ones, tf.float32), np.ones((20, 4)))
