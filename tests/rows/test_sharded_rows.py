"""Variables in shards in files; tests/support/sharded.py has replicas."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfxclass.rows import sharded_rows
from tfxclass.shards import Shards


def test_values_that_a_file_lacks_are_named():
    variables = [keras.Variable(np.zeros(3), name=x) for x in ("a", "b")]
    with pytest.raises(ValueError, match="saved for 'b'"):
        sharded_rows.load(variables, {"0": np.ones(3)})


def test_blocks_of_shards_are_a_part_of_a_shard():
    """Small ones for little memory, large ones for few collectives."""
    found = []
    for num_rows in (10**6, 10**8):
        shards = Shards(num_rows)
        shards.capacity = num_rows // 8  # Of 8 processes.
        found.append(shards.num_blocks(tf.TensorSpec([None, 128])))
    assert found == [245, 1025]


def test_short_block_between_others_is_refused():
    variable = keras.Variable(np.zeros((25, 2)))
    blocks = np.split(np.ones((25, 2), "f"), [10, 15])
    with pytest.raises(ValueError, match="must have shape"):
        Shards(25).write_blocks(variable, blocks, np.asarray)


def test_blocks_are_read_into_one_variable():
    variable = keras.Variable(np.zeros((25, 2)))
    rows = np.arange(50, dtype="f").reshape(25, 2)
    store = {f"0.{i}": row[np.newaxis] for i, row in enumerate(rows)}
    assert sharded_rows.num_saved(store) == 1
    sharded_rows.load([variable], store)
    np.testing.assert_array_equal(variable, rows)
