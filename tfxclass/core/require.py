"""What data must fulfil, told in a message that is not buried in a trace."""

import tensorflow as tf

from tfxclass.types import Array

# Node names have no spaces; it is what the first line of an error names.
_MOST_LETTERS = 60


def require(
    condition: tf.Tensor, name: str, message: str, *values: Array
) -> tf.Operation | None:
    """Raises InvalidArgumentError with `message` and `values` unless it holds.

    What a graph raises names the node, then all calls that led to it, then
    the message. A node that was imported has no such calls: the message stands
    in the fourth line, below the node's name, which says the same in short.

    Args:
        condition: bool tensor `[]`.
        name: str, what must hold, in words joined by `_`.
        message: str.
        *values: tensors, which are printed behind it.

    Returns:
        An operation on which what needs the condition should depend; None
        when executing eagerly.
    """
    values = [tf.convert_to_tensor(value) for value in values]
    if tf.executing_eagerly():
        if condition:
            return None
        shown = [str(value.numpy()) for value in values]
        raise tf.errors.InvalidArgumentError(
            None, None, " ".join([message, *shown])
        )
    inputs = [tf.convert_to_tensor(condition), *values]
    graph, names = _check(inputs, message)
    # The import fails within `tf.control_dependencies`; inputs are enough.
    with tf.control_dependencies(None):
        (node,) = tf.graph_util.import_graph_def(
            graph,
            dict(zip(names, inputs, strict=True)),
            return_elements=["check"],
            name=name[:_MOST_LETTERS],
        )
    return node


def _check(inputs, message):
    """A graph with the node `check`, and the names of its inputs."""
    with tf.Graph().as_default() as graph:
        taken = [
            tf.compat.v1.placeholder(x.dtype, x.shape, f"x{i}")
            for i, x in enumerate(inputs)
        ]
        condition, *values = taken
        tf.raw_ops.Assert(
            condition=condition,
            data=[tf.constant(message), *values],
            summarize=10,
            name="check",
        )
    return graph.as_graph_def(), [x.name for x in taken]
