"""The private names of Keras and TensorFlow, each with a check.

`USES` lists them all. A check runs when a name is first needed, so a missing
name never stops the import. It disables the feature that needs it
(NotImplementedError), or a public way takes over, with a warning.
"""

import functools
import importlib
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import keras
import tensorflow as tf

#: What the private names were tested with, as pip spells it.
TESTED = "keras>=3.12,<3.17"
# AutoGraph would convert the checks of names that a traced function makes.
AS_IT_IS = tf.autograph.experimental.do_not_convert
SCRATCH_GRAPH = "scratch_graph"
SCRATCH_GRAPH_USE = f"a graph named '{SCRATCH_GRAPH}'"
# What every step of a lazy optimizer uses of its base class.
METHODS = (
    "_all_reduce_sum_gradients",
    "_backend_apply_gradients",
    "_backend_update_step",
    "_clip_gradients",
    "_get_variable_index",
    "_var_key",
)
STATE = ("_iterations", "_trainable_variables")
HISTORY = "KerasTensor._keras_history, Operation._inbound_nodes"
METRICS = (
    "Model._compile_metrics",
    "CompileMetrics._user_metrics, ._user_weighted_metrics",
)
DECAY = ("_apply_weight_decay", "_use_weight_decay")
SUMS = "_accumulated_gradients"


@AS_IT_IS
def missing(*names: str) -> list[str]:
    """Which private names out of `names`, keys of `USES`, are gone."""
    return [name for name in names if not is_there(name)]


@AS_IT_IS
def need(feature: str, *names: str) -> None:
    """Refuses a feature whose private names are not all there.

    Args:
        feature: str, the beginning of the message, as "`top_k`".
        names: str, keys of `USES`.

    Raises:
        NotImplementedError: a name is missing. The message has the versions.
    """
    gone = missing(*names)
    if gone:
        raise NotImplementedError(f"{feature}: not available. {_why(gone)}")


def needs(
    feature: str, *names: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: `need` before each call."""

    def decorate(function):
        @functools.wraps(function)
        def call(*args, **kwargs):
            need(feature, *names)
            return function(*args, **kwargs)

        return call

    return decorate


@AS_IT_IS
def has_all(consequence: str, *names: str) -> bool:
    """Whether all names are there; if not, one warning tells what follows."""
    gone = missing(*names)
    if gone:
        warn_once(f"{consequence} {_why(gone)}")
    return not gone


@functools.cache
def warn_once(message: str) -> None:
    """Warns of it, the first time."""
    warnings.warn(message, stacklevel=4)


def _why(gone):
    return (
        f"Keras {keras.__version__} with TensorFlow {tf.__version__} lacks "
        f"private names that tfxclass uses: {', '.join(gone)}. tfxclass was "
        f"tested with {TESTED}. Fix: pip install '{TESTED}', or install a "
        "newer tfxclass."
    )


def tf_control_flow() -> ModuleType:
    """TensorFlow's module of control flow."""
    return importlib.import_module("tensorflow.python.ops.control_flow_util")


def tf_port() -> ModuleType:
    """TensorFlow's module that says what it was built for and uses."""
    return importlib.import_module("tensorflow.python.util._pywrap_util_port")


def tf_record() -> ModuleType:
    """TensorFlow's module of gradient tapes."""
    return importlib.import_module("tensorflow.python.eager.record")


def tf_ops() -> ModuleType:
    """TensorFlow's module of graphs and tensors."""
    return importlib.import_module("tensorflow.python.framework.ops")


def _has_compiled_metrics():
    from keras.src.trainers import compile_utils

    names = ("_user_metrics", "_user_weighted_metrics")
    return all(_is_read(compile_utils.CompileMetrics, x) for x in names)


def _has_history():
    operation, node_index, _ = keras.Input((1,), name="probe")._keras_history
    return not operation._inbound_nodes[node_index].input_tensors


def _methods(owner, *names):
    """Checks of what a class has, each with its name."""
    return {
        f"{owner.__name__}.{name}": lambda name=name: hasattr(owner, name)
        for name in names
    }


def _attributes(owner, *names):
    """Checks of what the methods of a class set, each with its name."""
    return {
        f"{owner.__name__}.{name}": lambda name=name: _is_read(owner, name)
        for name in names
    }


def _is_read(owner, name):
    """Whether a method of a class uses an attribute; none is made for it."""
    functions = [f for base in owner.__mro__ for f in vars(base).values()]
    codes = [f.__code__ for f in functions if hasattr(f, "__code__")]
    return any(name in code.co_names for code in codes)


#: Every private name, and a function that tells whether it is there. Some are
#: of releases to come: a check may raise anything. A graph is not tried: it
#: starts TensorFlow, whose devices can no longer be configured afterwards.
USES: dict[str, Callable[[], bool]] = {
    # Row gradients: what a step does in which order, and where.
    **_methods(keras.optimizers.Optimizer, *METHODS, *DECAY),
    **_attributes(keras.optimizers.Optimizer, *STATE, SUMS),
    # The resource that ops update in place.
    **_attributes(keras.Variable, "_autocast", "_value"),
    # Class rows that are another layer's.
    **_methods(keras.layers.Layer, "_untrack_variable"),
    # The head of a model, and what it reads.
    **_methods(keras.Model, "_flatten_layers"),
    HISTORY: _has_history,
    # Losses that Keras calls before there are data.
    SCRATCH_GRAPH_USE: lambda: (
        SCRATCH_GRAPH
        in importlib.import_module(
            "keras.src.backend.tensorflow"
        ).compute_output_spec.__code__.co_consts
    ),
    # What `compile` was given.
    **_attributes(keras.Model, "_compile_metrics"),
    METRICS[1]: _has_compiled_metrics,
    # TensorFlow's.
    "tf.__internal__.distribute.interim.maybe_merge_call": lambda: callable(
        tf.__internal__.distribute.interim.maybe_merge_call
    ),
    "tf.__internal__.eager_context.eager_mode": lambda: callable(
        tf.__internal__.eager_context.eager_mode
    ),
    "ops.gradient_registry._registry": lambda: callable(
        tf_ops().gradient_registry._registry["MatMul"]["type"]
    ),
    "_pywrap_util_port.IsMklEnabled": lambda: (
        tf_port().IsMklEnabled() in (True, False)
    ),
    "eager.record.could_possibly_record": lambda: (
        tf_record().could_possibly_record() in (True, False)
    ),
    "control_flow_util.GraphOrParentsInXlaContext": lambda: callable(
        tf_control_flow().GraphOrParentsInXlaContext
    ),
    **_attributes(tf.Graph, "_functions"),
    **_attributes(tf.Operation, "_gradient_function"),
    "Tensor._handle_data": lambda: hasattr(
        tf_ops().EagerTensor, "_handle_data"
    ),
}


@functools.cache
def is_there(name: str) -> bool:
    """Whether a private name, a key of `USES`, is there."""
    try:
        return bool(USES[name]())
    except Exception:
        return False
