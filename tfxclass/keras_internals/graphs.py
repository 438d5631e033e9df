"""What is used of the insides of TensorFlow: graphs, gradients, resources."""

import contextlib
import functools
import weakref
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfxclass.keras_internals.names import AS_IT_IS
from tfxclass.keras_internals.names import has_all
from tfxclass.keras_internals.names import missing
from tfxclass.keras_internals.names import needs
from tfxclass.keras_internals.names import tf_control_flow
from tfxclass.keras_internals.names import tf_ops
from tfxclass.keras_internals.names import tf_port
from tfxclass.keras_internals.names import tf_record


def eager_mode() -> contextlib.AbstractContextManager[None]:
    """A scope in which ops run at once, even while a graph is built.

    `tf.init_scope` leaves functions, but not a plain `tf.Graph`.
    """
    if missing("tf.__internal__.eager_context.eager_mode"):
        return tf.init_scope()
    return tf.__internal__.eager_context.eager_mode()


def dtype_of_handle(handle: tf.Tensor) -> tf.DType | None:
    """The dtype of the variable behind a handle, or None."""
    data = getattr(handle, "_handle_data", None)
    if data is None or not data.is_set:
        return None
    return tf.as_dtype(data.shape_and_type[0].dtype)


def with_constants(function: Any) -> Any:
    """A concrete function whose variables and captures are constants."""
    from tensorflow.python.framework.convert_to_constants import (
        convert_variables_to_constants_v2,
    )

    return convert_variables_to_constants_v2(
        function, lower_control_flow=False, aggressive_inlining=True
    )


def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """`tf.custom_gradient` whose gradient goes when its graph goes.

    TensorFlow keeps each gradient function of a graph in a list of the process,
    and with it the graph and the variables in it: a class matrix a model. Here
    the list has a weak reference; the operation itself has the function.
    Without the list, as TensorFlow does it, and one warning.
    """
    decorated = tf.custom_gradient(function)

    @functools.wraps(function)
    def call(*args):
        result = decorated(*args)
        first = tf.nest.flatten(result)[0]
        is_symbolic = isinstance(first, tf.Tensor) and not hasattr(
            first, "numpy"
        )
        if is_symbolic and has_all(
            "The memory of models is kept until the process ends.",
            "ops.gradient_registry._registry",
            "Operation._gradient_function",
        ):
            _keep_with_operation(first.op)
        return result

    return call


@AS_IT_IS
def is_recorded() -> bool:
    """Whether a gradient tape may see what is computed here."""
    if missing("eager.record.could_possibly_record"):
        return True
    return tf_record().could_possibly_record()


@AS_IT_IS
def is_for_xla() -> bool:
    """Whether the graph being traced is one that XLA will compile."""
    if missing("control_flow_util.GraphOrParentsInXlaContext"):
        return False
    graph = tf.compat.v1.get_default_graph()
    return bool(tf_control_flow().GraphOrParentsInXlaContext(graph))


@AS_IT_IS
def is_onednn_on() -> bool | None:
    """Whether TensorFlow uses oneDNN; None where it does not say."""
    if missing("_pywrap_util_port.IsMklEnabled"):
        return None
    return tf_port().IsMklEnabled()


@AS_IT_IS
def _keep_with_operation(operation):
    """Moves the gradient function of an operation from the list to it."""
    gradients = tf_ops().gradient_registry._registry
    name = operation.get_attr("_gradient_op_type").decode()
    function = gradients[name]["type"]
    operation._gradient_function = function
    reference = weakref.ref(function, lambda _: gradients.pop(name, None))
    gradients[name]["type"] = lambda *args: reference()(*args)


def collective_ops() -> Any:
    """The module of TensorFlow's collectives, whose calls are counted."""
    from tensorflow.python.ops import collective_ops

    return collective_ops


@needs("The ONNX export", "Graph._functions")
def called_graphs(graph: tf.Graph) -> Iterator[tf.Graph]:
    """The graphs of the functions that a graph calls; yields each."""
    for function in graph._functions.values():
        if hasattr(function, "graph"):
            yield function.graph
