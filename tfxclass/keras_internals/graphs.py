"""What is used of the insides of TensorFlow: graphs, gradients, resources."""

import contextlib
import functools
import weakref
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import record
from tensorflow.python.framework import convert_to_constants
from tensorflow.python.framework import ops
from tensorflow.python.ops import collective_ops as collective_ops
from tensorflow.python.ops import control_flow_util
from tensorflow.python.util import _pywrap_util_port


def eager_mode() -> contextlib.AbstractContextManager[None]:
    """A scope in which ops run at once, even while a graph is built.

    `tf.init_scope` leaves functions, but not a plain `tf.Graph`.
    """
    return tf.__internal__.eager_context.eager_mode()


def dtype_of_handle(handle: tf.Tensor) -> tf.DType | None:
    """The dtype of the variable behind a handle, or None."""
    data = getattr(handle, "_handle_data", None)
    if data is None or not data.is_set:
        return None
    return tf.as_dtype(data.shape_and_type[0].dtype)


def with_constants(function: Any) -> Any:
    """A concrete function whose variables and captures are constants."""
    return convert_to_constants.convert_variables_to_constants_v2(
        function, lower_control_flow=False, aggressive_inlining=True
    )


def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """`tf.custom_gradient` whose gradient goes when its graph goes.

    TensorFlow keeps each gradient function of a graph in a list of the process,
    and with it the graph and the variables in it: a class matrix a model. Here
    the list has a weak reference; the operation itself has the function.
    """
    decorated = tf.custom_gradient(function)

    @functools.wraps(function)
    def call(*args):
        result = decorated(*args)
        first = tf.nest.flatten(result)[0]
        if isinstance(first, tf.Tensor) and not hasattr(first, "numpy"):
            _keep_with_operation(first.op)
        return result

    return call


def is_recorded() -> bool:
    """Whether a gradient tape may see what is computed here."""
    return record.could_possibly_record()


def is_for_xla() -> bool:
    """Whether the graph being traced is one that XLA will compile."""
    graph = tf.compat.v1.get_default_graph()
    return bool(control_flow_util.GraphOrParentsInXlaContext(graph))


def is_onednn_on() -> bool:
    """Whether TensorFlow uses oneDNN."""
    return _pywrap_util_port.IsMklEnabled()


# AutoGraph would convert the function that is put into TensorFlow's list.
@tf.autograph.experimental.do_not_convert
def _keep_with_operation(operation):
    """Moves the gradient function of an operation from the list to it."""
    gradients = ops.gradient_registry._registry
    name = operation.get_attr("_gradient_op_type").decode()
    function = gradients[name]["type"]
    operation._gradient_function = function
    reference = weakref.ref(function, lambda _: gradients.pop(name, None))
    gradients[name]["type"] = lambda *args: reference()(*args)


def called_graphs(graph: tf.Graph) -> Iterator[tf.Graph]:
    """The graphs of the functions that a graph calls; yields each."""
    for function in graph._functions.values():
        if hasattr(function, "graph"):
            yield function.graph
