"""Variables in shards in files; tests/support/sharded.py has replicas."""

import keras
import numpy as np
import pytest

from tfxclass.rows import sharded_rows


def test_values_that_a_file_lacks_are_named():
    variables = [keras.Variable(np.zeros(3), name=x) for x in ("a", "b")]
    with pytest.raises(ValueError, match="saved for 'b'"):
        sharded_rows.load(variables, {"0": np.ones(3)})


def test_blocks_are_read_into_one_variable():
    variable = keras.Variable(np.zeros((25, 2)))
    rows = np.arange(50, dtype="f").reshape(25, 2)
    store = {f"0.{i}": row[np.newaxis] for i, row in enumerate(rows)}
    assert sharded_rows.num_saved(store) == 1
    sharded_rows.load([variable], store)
    np.testing.assert_array_equal(variable, rows)
