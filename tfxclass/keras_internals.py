"""Private names of Keras and TensorFlow, which may go with any release.

Each has one function or method here, under a name of ours, and a test, which
`make test-versions` runs with all versions. Nothing else spells it.
"""

import contextlib
import functools
import inspect
import warnings
import weakref
from collections.abc import Callable
from collections.abc import Iterator
from typing import TYPE_CHECKING
from typing import Any

import keras
import tensorflow as tf
from keras.src.saving import saving_lib
from tensorflow.python.eager import record
from tensorflow.python.framework import convert_to_constants
from tensorflow.python.framework import ops
from tensorflow.python.ops import control_flow_util
from tensorflow.python.util import _pywrap_util_port

from tfxclass.types import Config
from tfxclass.types import Variable

if TYPE_CHECKING:
    from typing import Any as _Base  # Keras' class is to the right of it.
else:
    _Base = object

# Public, says Keras' guide to masking.
_MASK = "_keras_mask"
#: What the private names were tested with, as pip spells it.
TESTED = "keras>=3.12,<3.17"


def check_version() -> None:
    """Warns where Keras is of another version, whose names may differ."""
    minor = tuple(map(int, keras.__version__.split(".")[:2]))
    if not (3, 12) <= minor < (3, 17):
        warnings.warn(
            "tfxclass uses private names of Keras, and was tested with "
            f"{TESTED}. Fix: pip install '{TESTED}', or install a newer "
            f"tfxclass. Received: keras {keras.__version__}",
            stacklevel=2,
        )


def check_backend() -> None:
    """Raises ImportError where Keras computes with another backend."""
    if keras.backend.backend() != "tensorflow":
        raise ImportError(
            "tfxclass needs Keras with the backend TensorFlow. Fix: "
            "KERAS_BACKEND=tensorflow in the environment, before Keras is "
            f"imported. Received: {keras.backend.backend()!r}"
        )


check_backend()
check_version()


# Layers, variables and models.


def tf_variable(variable: Variable) -> tf.Variable:
    """The `tf.Variable` of a Keras variable; another is returned as it is."""
    # Under autocast, `.value` is a tensor and has no handle.
    is_keras = isinstance(variable, keras.Variable)
    return variable._value if is_keras else variable


def path_of(variable: Variable) -> str:
    """`path`, or the name of a bare `tf.Variable`."""
    return getattr(variable, "path", variable.name)


def untrack(layer: keras.layers.Layer, variable: keras.Variable) -> None:
    """Makes a variable that is an attribute of `layer` none of its weights."""
    layer._untrack_variable(variable)


def without_autocast(variable: keras.Variable) -> None:
    """Makes a variable one that a layer of lower precision reads as it is."""
    variable._autocast = False


def get_mask(tensor: tf.Tensor) -> tf.Tensor | None:
    """The mask that Keras attached to what a layer returned, or None."""
    return getattr(tensor, _MASK, None)


def set_mask(tensor: tf.Tensor, mask: tf.Tensor | None) -> None:
    setattr(tensor, _MASK, mask)


def flat_layers(model: keras.Layer) -> list[keras.layers.Layer]:
    """A model or layer and all layers in it, however deep; a list."""
    return list(model._flatten_layers())


def made_by(
    tensor: keras.KerasTensor,
) -> tuple[keras.Operation, list[keras.KerasTensor]]:
    """The layer or operation that made a symbolic tensor, and its arguments."""
    operation, node_index, _ = tensor._keras_history
    return operation, operation._inbound_nodes[node_index].input_tensors


def tensors_before(tensor: keras.KerasTensor) -> list[keras.KerasTensor]:
    """A symbolic tensor and all that it was computed from."""
    pending, found = [tensor], {}
    while pending:
        reached = pending.pop()
        if id(reached) not in found:
            found[id(reached)] = reached
            pending += made_by(reached)[1]
    return list(found.values())


def layers_before(tensor: keras.KerasTensor) -> list[keras.layers.Layer]:
    """The layers that a symbolic tensor was computed by; a list."""
    makers = [made_by(x)[0] for x in tensors_before(tensor)]
    return [x for x in makers if isinstance(x, keras.layers.Layer)]


def names_of_functions(config: Config) -> Config:
    """A configuration with strings where Keras' loader of `.h5` put functions.

    It replaces each string that names a function of `keras.layers`, as
    `similarity="dot"` does.
    """
    # Values of these names may be functions that a user registered.
    of_functions = ("initializer", "regularizer", "constraint")
    return config | {
        name: value.__name__
        for name, value in config.items()
        if inspect.isfunction(value) and not name.endswith(of_functions)
    }


# Graphs, gradients and resources of TensorFlow.


def eager_mode() -> contextlib.AbstractContextManager[None]:
    """A scope in which ops run at once, even while a `tf.Graph` is built."""
    return tf.__internal__.eager_context.eager_mode()


def with_constants(function: Any) -> Any:
    """A concrete function whose variables and captures are constants."""
    return convert_to_constants.convert_variables_to_constants_v2(
        function, lower_control_flow=False, aggressive_inlining=True
    )


def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """`tf.custom_gradient` whose gradient goes when its graph goes.

    TensorFlow's list of gradient functions would keep the graph and a class
    matrix. It gets a weak reference, and the operation has the function.
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


@contextlib.contextmanager
def without_broadcast(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Scope in which each worker makes the initial values of its variables.

    Otherwise `MultiWorkerMirroredStrategy` sends the first worker's to all.
    """
    extended = strategy.extended
    num_workers = getattr(extended, "_num_workers", 1)
    if num_workers > 1:
        extended._num_workers = 1
    try:
        yield
    finally:
        if num_workers > 1:
            extended._num_workers = num_workers


def called_graphs(graph: tf.Graph) -> Iterator[tf.Graph]:
    """The graphs of the functions that a graph calls; yields each."""
    for function in graph._functions.values():
        if hasattr(function, "graph"):
            yield function.graph


def save_nowhere(model: keras.Model) -> None:
    """Reads what `save_weights` reads, in its order, and keeps no file.

    The first worker's file has values of all workers, who read them together.
    """

    class Nowhere(saving_lib.NpzIOStore):
        def make(self, path, metadata=None):
            return self

        def __setitem__(self, name, value):
            pass

    saving_lib._save_state(model, Nowhere("", mode="w"), None, "", set())


# `fit`, `compile` and traced steps.


def is_keras_building() -> bool:
    """Whether Keras calls the loss and the metrics on placeholders.

    Under a strategy it does so ahead of training, metrics before the loss and
    with float labels, averaged over the replicas. Ours have nothing to build.
    """
    if tf.executing_eagerly():
        return False
    return tf.compat.v1.get_default_graph().name.startswith("scratch_graph")


def metrics_of(model: keras.Model, output_name: str) -> list[Any]:
    """The metrics of one output, as `compile` was given them."""
    compiled = model._compile_metrics
    if compiled is None:
        return []
    # Sequential and subclassed models have one, or no names.
    names = getattr(model, "output_names", None) or [output_name]
    found = []
    for given in (compiled._user_metrics, compiled._user_weighted_metrics):
        if len(names) > 1 and isinstance(given, (list, tuple)):
            given = dict(zip(names, given))
        if len(names) > 1 and isinstance(given, dict):
            given = given.get(output_name)
        found += tf.nest.flatten(given)
    return [metric for metric in found if metric is not None]


# Optimizers.


class OptimizerHooks(_Base):
    """Mixin in front of a Keras optimizer: its private methods, renamed.

    A subclass overrides `_on_apply`, `_on_clip` and `_on_all_reduce`, and
    `super()` leads to what Keras does. It calls the other methods.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        #: The strategy in scope when the optimizer was made.
        self._strategy = tf.distribute.get_strategy()

    def _backend_apply_gradients(self, grads, variables):
        self._on_apply(grads, variables)

    def _clip_gradients(self, grads):
        return self._on_clip(grads)

    def _all_reduce_sum_gradients(self, pairs):
        return self._on_all_reduce(pairs)

    def _on_apply(self, grads, variables):
        """All of a step after the loss scale: clip, decay, update."""
        super()._backend_apply_gradients(grads, variables)

    def _on_clip(self, grads):
        return super()._clip_gradients(grads)

    def _on_all_reduce(self, pairs):
        """Pairs of gradient and variable, gradients summed over replicas."""
        pairs = list(pairs)
        is_given = any(gradient is not None for gradient, _ in pairs)
        if is_given and not tf.distribute.has_strategy():
            # Without one TensorFlow sums nothing, but keeps the graph for ever.
            return pairs
        return super()._all_reduce_sum_gradients(pairs)

    def _update_all(self, grads, variables):
        """Calls `update_step` for each variable, where it lies."""
        self._backend_update_step(grads, variables, self.learning_rate)

    def _decay_all(self, variables):
        self._apply_weight_decay(variables)

    def _has_decay(self, variable):
        """Whether a variable has weight decay; only after `build`."""
        return self._use_weight_decay(variable)

    @property
    def _gradient_sums(self):
        """The accumulators of `gradient_accumulation_steps`, or none."""
        return self._accumulated_gradients

    @property
    def _is_replicated(self):
        return self._strategy.num_replicas_in_sync > 1

    @property
    def _built_for(self):
        """The variables that `build` was given, a list."""
        return self._trainable_variables

    def _index_of(self, variable):
        """Place of a variable, or of a replica's copy, in `build`'s list."""
        return self._get_variable_index(variable)

    def _key_of(self, variable):
        """A key of a variable, the same for its copies on replicas."""
        return self._var_key(variable)


@contextlib.contextmanager
def eager_variables() -> Iterator[None]:
    """Makes variables at once, also where a `tf.function` is traced.

    `fit` builds an optimizer while it traces the first step. TensorFlow would
    then trace the step again, and keep a copy of each initial value.
    """

    def create(next_creator: Callable[..., Any], **options: Any) -> Any:
        options["experimental_enable_variable_lifting"] = False
        return next_creator(**options)

    with tf.init_scope(), tf.variable_creator_scope(create):
        yield


def count_step(optimizer: keras.optimizers.Optimizer) -> None:
    """Adds one to what `num_applied` counts."""
    optimizer._iterations.assign_add(1)


def num_applied(optimizer: keras.optimizers.Optimizer) -> tf.Tensor:
    """How often gradients were given, also where they are accumulated."""
    return tf.cast(optimizer._iterations, tf.int64)


def merge_call(
    function: Callable[..., Any], strategy: tf.distribute.Strategy, *args: Any
) -> Any:
    """Calls `function(strategy, *args)` once for all replicas, if it can."""
    merge = tf.__internal__.distribute.interim.maybe_merge_call
    return merge(function, strategy, *args)
