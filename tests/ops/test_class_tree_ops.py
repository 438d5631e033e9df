"""The ops of a tree of classes: what they refuse, and threads."""

import numpy as np
import pytest
import tensorflow as tf

from tests.support.processes import run_code
from tfxclass import trees
from tfxclass.ops import class_tree
from tfxclass.ops import library


def op_arguments(**changes):
    tree = trees.balanced(5)
    arguments = {
        "queries": tf.ones([2, 3]),
        "kernel": tf.ones([4, 3]),
        "nodes": tree.nodes(),
        "leaves": tree.leaves,
        "labels": np.array([[0], [1]]),
        "weights": np.ones((2, 1), np.float32),
        "independent": False,
    }
    return {**arguments, **changes}


def broken(row, column, value):
    nodes = trees.balanced(5).nodes()
    nodes[row, column] = value
    return nodes


BROKEN_NODES = {
    "parent_after": broken(8, 0, 8),
    "no_parent": broken(8, 0, -1),
    "children_out_of_range": broken(0, 1, 9),
    "children_before": broken(0, 1, 0),
    "far_too_many_children": broken(0, 2, 2**62),
    "rows_out_of_range": broken(0, 3, 4),
    "negative_row": broken(0, 3, -1),
}


@pytest.mark.parametrize("name", BROKEN_NODES)
def test_ops_refuse_what_is_no_tree(name):
    nodes = BROKEN_NODES[name]
    arguments = op_arguments(nodes=nodes, labels=np.array([[0], [1]]))
    calls = [
        lambda: class_tree.path_loss(**arguments),
        lambda: class_tree.log_probabilities(tf.ones([2, 4]), nodes, 5, False),
    ]
    if "parent" not in name:  # a search goes down
        calls.append(
            lambda: class_tree.top_k(
                tf.ones([2, 3]), tf.ones([4, 3]), nodes, 5, False
            )
        )
    for call in calls:
        with pytest.raises(tf.errors.InvalidArgumentError, match="of a Tree"):
            call()


INVALID_INPUTS = {
    "nodes_shape": ({"nodes": np.zeros((9, 4), np.int64)}, "(num_nodes, 5)"),
    "nodes_none": ({"nodes": np.zeros((0, 5), np.int64)}, "one node at least"),
    "leaves_outside": ({"leaves": np.full(5, 9)}, "of a Tree"),
    "leaves_inner": ({"leaves": np.zeros(5, np.int64)}, "of a Tree"),
    "leaves_rank": ({"leaves": np.zeros((5, 1), np.int64)}, "rank 1"),
    "labels_outside": ({"labels": np.array([[5], [0]])}, "[-1, 5)"),
    "labels_below": ({"labels": np.array([[-2], [0]])}, "Received: -2"),
    "labels_rank": ({"labels": np.array([1, 2])}, "rank 2"),
    "labels_batch": ({"labels": np.array([[1]])}, "(2, p)"),
    "weights": ({"weights": np.ones((2, 2), np.float32)}, "`weights` must"),
    "width": ({"kernel": tf.ones([4, 2])}, "of one width"),
    "few_rows": ({"kernel": tf.ones([3, 3])}, "as many rows"),
    "queries_rank": ({"queries": tf.ones([3])}, "rank 2"),
}


@pytest.mark.host
@pytest.mark.parametrize("name", INVALID_INPUTS)
def test_invalid_inputs_of_the_loss(name):
    changes, part = INVALID_INPUTS[name]
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError)) as error:
        class_tree.path_loss(**op_arguments(**changes))
    assert part in str(error.value)


INVALID_GRADS = {
    "rows": ({"rows": np.array([0, 4])}, "`rows` must be in [0, 4)"),
    "slopes": ({"slopes": np.ones(3, np.float32)}, "`slopes` must have"),
    "splits_short": ({"splits": np.array([0, 2])}, "`splits` must rise"),
    "splits_fall": ({"splits": np.array([0, 3, 2])}, "`splits` must rise"),
    "upstream": ({"upstream": np.ones(3, np.float32)}, "`upstream` must"),
}


@pytest.mark.host
@pytest.mark.parametrize("name", INVALID_GRADS)
def test_invalid_inputs_of_the_gradient(name):
    changes, part = INVALID_GRADS[name]
    arguments = {
        "queries": tf.ones([2, 3]),
        "kernel": tf.ones([4, 3]),
        "rows": np.array([0, 3]),
        "slopes": np.ones(2, np.float32),
        "splits": np.array([0, 1, 2]),
        "upstream": np.ones(2, np.float32),
    }
    library.ops.tfxclass_tree_path_grad(**arguments)
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        library.ops.tfxclass_tree_path_grad(**{**arguments, **changes})
    assert part in str(error.value)


THREADS = """
import hashlib
import sys
import numpy as np
import tensorflow as tf
tf.config.threading.set_intra_op_parallelism_threads(int(sys.argv[1]))
from tfxclass import layers
head = layers.HierarchicalSoftmax(5000, "balanced", multi_label="plt")
head.build((None, 32))
random = np.random.default_rng(0)
head.kernel.assign(random.normal(size=head.kernel.shape))
x = tf.constant(random.normal(size=(600, 32)), tf.float32)
y = random.integers(-1, 5000, (600, 3))
with tf.GradientTape() as tape:
    tape.watch(x)
    losses = head.compute_loss(x, y, training=True)
of_x, of_kernel = tape.gradient(losses, [x, head.kernel.value])
ids, scores = head.top_k(x, 5)
parts = (losses, of_x, of_kernel.indices, of_kernel.values, ids, scores)
values = b"".join(part.numpy().tobytes() for part in parts)
print("result", hashlib.sha256(values).hexdigest())
"""


@pytest.mark.slow
def test_same_result_with_one_thread_and_two():
    lines = [run_code(THREADS, count) for count in ("1", "2")]
    assert "result" in lines[0]
    assert lines[0] == lines[1]
