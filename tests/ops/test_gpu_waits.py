"""How often an op of the GPU waits: the table of gpu_tests/README.md.

What TensorFlow itself copies to the host, for an op or by one of its own, is
not counted.
"""

import numpy as np
import pytest
import tensorflow as tf

from tests.ops.test_class_tree_ops import op_arguments
from tests.ops.test_hashing_forest import built
from tests.ops.test_hashing_forest import clustered
from tests.ops.test_lsh import query
from tests.support import emulated_gpu
from tfxclass.ops import class_tree
from tfxclass.ops import library
from tfxclass.ops.active_classes import active_classes
from tfxclass.ops.lsh import LSHIndex


@pytest.fixture(autouse=True, scope="module")
def emulated():
    with emulated_gpu.patched():
        yield


def waits_of(call):
    before = emulated_gpu.waits()
    call()
    return emulated_gpu.waits() - before


def test_a_loss_in_a_tree_and_its_gradient_wait_once_each():
    arguments = op_arguments()

    def gradient():
        library.ops.tfxclass_tree_path_grad(
            queries=arguments["queries"],
            kernel=arguments["kernel"],
            upstream=tf.ones([2]),
            rows=tf.constant([0, 3], tf.int64),
            slopes=tf.ones([2]),
            splits=tf.constant([0, 1, 2], tf.int64),
        )

    assert waits_of(lambda: class_tree.path_loss(**arguments)) == 1
    assert waits_of(gradient) == 1


@pytest.mark.parametrize("num_labels, waits", [(3, 1), (9, 2)])
def test_active_classes_wait_again_with_more_labels(num_labels, waits):
    labels = tf.range(num_labels, dtype=tf.int64)
    seed = tf.zeros([2], tf.int64)
    assert waits_of(lambda: active_classes(labels, 5, 20, seed)) == waits


def test_a_forest_is_copied_once():
    forest, kernel = built(clustered(200, 5))
    queries = tf.ones([3, 5])
    assert waits_of(lambda: forest.query(kernel, queries, 4)) > 0
    assert waits_of(lambda: forest.query(kernel, queries, 4)) == 0


def test_lsh_candidates_wait_twice():
    kernel = tf.Variable(clustered(200, 5))
    tables = LSHIndex(num_hashes=3, num_tables=4)
    tables.build(kernel, seed=1)
    query(tables, np.ones((3, 5), np.float32))
    assert waits_of(lambda: query(tables, np.ones((3, 5), np.float32))) == 2


def test_sums_of_duplicates_wait_once():
    ids = tf.constant([3, 1, 3], tf.int64)
    sums = library.ops.tfxclass_sum_duplicate_rows
    assert waits_of(lambda: sums(ids, tf.ones([3, 2]))) == 1
