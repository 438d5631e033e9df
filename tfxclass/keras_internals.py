"""What tfxclass uses of the insides of Keras and TensorFlow: all of it, here.

Private names may go with any release. Each has one function or method below,
under a name of ours; nothing else in the package spells it. `_USES` lists them
all, each with a check that runs when the name is first needed. A missing name
never stops the import. It disables the feature that needs it
(NotImplementedError), or a public way takes over, with a warning.
"""

import contextlib
import functools
import importlib
import inspect
import sys
import warnings
import weakref
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any
from typing import NamedTuple

import keras
import tensorflow as tf

from tfxclass.types import Variable

#: What the private names were tested with, as pip spells it.
TESTED = "keras>=3.12,<3.17"
# Public, says Keras' guide to masking.
_MASK = "_keras_mask"
# Ours, on a graph.
_GRADIENTS = "_tfxclass_gradients"
_SCRATCH_GRAPH = "scratch_graph"
_SCRATCH_GRAPH_USE = f"a graph named '{_SCRATCH_GRAPH}'"
# AutoGraph would convert the checks of names that a traced function makes.
_AS_IT_IS = tf.autograph.experimental.do_not_convert
# What every step of a lazy optimizer uses of its base class.
_METHODS = (
    "_all_reduce_sum_gradients",
    "_backend_apply_gradients",
    "_backend_update_step",
    "_clip_gradients",
    "_get_variable_index",
    "_track_variable",
    "_var_key",
)
_STATE = ("_iterations", "_trainable_variables")
_HISTORY = "KerasTensor._keras_history, Operation._inbound_nodes"
_ARGUMENT_OF_FIT = "Model.fit(class_weight=...)"
_METRICS = (
    "Model._compile_metrics",
    "CompileMetrics._user_metrics, ._user_weighted_metrics",
)
_DECAY = ("_apply_weight_decay", "_use_weight_decay")
_SUMS = "_accumulated_gradients"


@_AS_IT_IS
def missing(*names: str) -> list[str]:
    """Which private names out of `names`, keys of `_USES`, are gone."""
    return [name for name in names if not _is_there(name)]


@_AS_IT_IS
def need(feature: str, *names: str) -> None:
    """Refuses a feature whose private names are not all there.

    Args:
        feature: str, the beginning of the message, as "`top_k`".
        names: str, keys of `_USES`.

    Raises:
        NotImplementedError: a name is missing. The message has the versions.
    """
    gone = missing(*names)
    if gone:
        raise NotImplementedError(f"{feature}: not available. {_why(gone)}")


def _needs(feature, *names):
    """Decorator: `need` before each call."""

    def decorate(function):
        @functools.wraps(function)
        def call(*args, **kwargs):
            need(feature, *names)
            return function(*args, **kwargs)

        return call

    return decorate


@_AS_IT_IS
def _has_all(consequence, *names):
    """Whether all names are there; if not, one warning tells what follows."""
    gone = missing(*names)
    if gone:
        _warn_once(f"{consequence} {_why(gone)}")
    return not gone


@functools.cache
def _warn_once(message):
    warnings.warn(message, stacklevel=4)


def _why(gone):
    return (
        f"Keras {keras.__version__} with TensorFlow {tf.__version__} lacks "
        f"private names that tfxclass uses: {', '.join(gone)}. tfxclass was "
        f"tested with {TESTED}. Fix: pip install '{TESTED}', or install a "
        "newer tfxclass."
    )


class OptimizerHooks:
    """Mixin in front of a Keras optimizer: its private methods, renamed.

    Keras calls the hooks `_on_apply`, `_on_clip` and `_on_all_reduce`; a
    subclass overrides them, and `super()` leads to what Keras does. The other
    methods are for subclasses to call.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._check_names([*_METHODS, *_STATE])
        super().__init__(*args, **kwargs)
        if self.weight_decay:
            self._check_names(_DECAY)
        if self.gradient_accumulation_steps:
            self._check_names([_SUMS])
        #: The strategy in scope when the optimizer was made.
        self._strategy = tf.distribute.get_strategy()

    def _check_names(self, names):
        need(
            f"{type(self).__name__} (use an optimizer of keras.optimizers)",
            *[f"Optimizer.{name}" for name in names],
        )

    def _backend_apply_gradients(self, grads, trainable_variables):
        self._on_apply(grads, trainable_variables)

    def _on_apply(self, grads, variables):
        """All of a step after the loss scale: clip, decay, update."""
        super()._backend_apply_gradients(grads, variables)

    def _clip_gradients(self, grads):
        return self._on_clip(grads)

    def _on_clip(self, grads):
        """The gradients, clipped as the constructor's arguments say."""
        return super()._clip_gradients(grads)

    def _all_reduce_sum_gradients(self, grads_and_vars):
        return self._on_all_reduce(grads_and_vars)

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
        """Applies weight decay to variables as a whole."""
        if self.weight_decay is None:
            return
        self._apply_weight_decay(variables)

    def _has_decay(self, variable):
        """Whether a variable is not excluded from weight decay.

        Only after `build`: Keras 3.16 refuses to tell before.
        """
        self._check_names(_DECAY)
        return self._use_weight_decay(variable)

    @property
    def _gradient_sums(self):
        """The accumulators of `gradient_accumulation_steps`, or none."""
        return self._accumulated_gradients

    def _track(self, variable):
        """Makes a variable part of the optimizer's state, after all others."""
        self._track_variable(variable)

    @property
    def _is_replicated(self):
        """Whether several replicas take a step together."""
        return self._strategy.num_replicas_in_sync > 1

    @property
    def _built_for(self):
        """The variables that `build` was given, a list.

        An attribute of ours would make them variables of the optimizer.
        """
        return self._trainable_variables

    def _index_of(self, variable):
        """Place of a variable, or of a replica's copy, in `build`'s list."""
        return self._get_variable_index(variable)

    def _key_of(self, variable):
        """A key of a variable, the same for its copies on replicas."""
        return self._var_key(variable)


@_needs("MultiOptimizer", "Optimizer._iterations")
def count_step(optimizer: keras.optimizers.Optimizer) -> None:
    """Moves the count of steps on, without one.

    `iterations` itself is another number where gradients are accumulated.
    """
    optimizer._iterations.assign_add(1)


@_needs("Lazy optimizers and their growth", "Optimizer._iterations")
def num_applied(optimizer: keras.optimizers.Optimizer) -> tf.Tensor:
    """How often gradients were applied, int64 scalar.

    `iterations` is fewer where they are accumulated.
    """
    return tf.cast(optimizer._iterations, tf.int64)


@_needs(
    "LazyAdam (use keras.optimizers.Adam)",
    "Adam._momentums",
    "Adam._velocities",
    "Adam._velocity_hats",
)
def adam_slots(
    optimizer: keras.optimizers.Optimizer, index: int
) -> list[keras.Variable]:
    """Momentum, velocity and with AMSGrad its maximum, of a variable."""
    slots = [optimizer._momentums[index], optimizer._velocities[index]]
    if optimizer.amsgrad:
        slots.append(optimizer._velocity_hats[index])
    return slots


@_needs("LazyAdagrad (use keras.optimizers.Adagrad)", "Adagrad._accumulators")
def adagrad_slots(
    optimizer: keras.optimizers.Optimizer, index: int
) -> list[keras.Variable]:
    """The accumulator of a variable, in a list."""
    return [optimizer._accumulators[index]]


@_needs(
    "Local steps",
    "tf.__internal__.distribute.interim.maybe_merge_call",
)
def merge_call(
    function: Callable[..., Any], strategy: tf.distribute.Strategy, *args: Any
) -> Any:
    """Calls `function(strategy, *args)` once for all replicas.

    Where the strategy need not wait for the others, in each replica.
    """
    merge = tf.__internal__.distribute.interim.maybe_merge_call
    return merge(function, strategy, *args)


def eager_mode() -> contextlib.AbstractContextManager[None]:
    """A scope in which ops run at once, even while a graph is built.

    `tf.init_scope` leaves functions, but not a plain `tf.Graph`.
    """
    if missing("tf.__internal__.eager_context.eager_mode"):
        return tf.init_scope()
    return tf.__internal__.eager_context.eager_mode()


@_needs("Lazy optimizers and BatchSampler", "Variable._value")
def tf_variable(variable: Variable) -> tf.Variable:
    """The `tf.Variable` of a Keras variable; another is returned as it is.

    Not `.value`, which under autocast is a tensor and has no handle.
    """
    if isinstance(variable, keras.Variable):
        return variable._value
    return variable


def dtype_of_handle(handle: tf.Tensor) -> tf.DType | None:
    """The dtype of the variable behind a handle, or None."""
    data = getattr(handle, "_handle_data", None)
    if data is None or not data.is_set:
        return None
    return tf.as_dtype(data.shape_and_type[0].dtype)


@_needs(
    "`top_k`, exports, SamplerLog and layers as groups of MultiOptimizer",
    "Model._flatten_layers",
)
def flat_layers(model: keras.Layer) -> list[keras.layers.Layer]:
    """A model or layer and all layers in it, however deep; a list."""
    return list(model._flatten_layers())


@_needs("`top_k` and exports", _HISTORY)
def arguments_of(tensor: keras.KerasTensor) -> list[keras.KerasTensor]:
    """The symbolic tensors that a symbolic tensor was computed from."""
    operation, node_index, _ = tensor._keras_history
    return operation._inbound_nodes[node_index].input_tensors


@_needs("`replace_head`", _HISTORY)
def maker_of(tensor: keras.KerasTensor) -> keras.Operation:
    """The layer or operation that a symbolic tensor was computed by."""
    return tensor._keras_history[0]


def tensors_before(tensor: keras.KerasTensor) -> list[keras.KerasTensor]:
    """A symbolic tensor and all that it was computed from."""
    pending, found = [tensor], {}
    while pending:
        reached = pending.pop()
        if id(reached) not in found:
            found[id(reached)] = reached
            pending.extend(arguments_of(reached))
    return list(found.values())


@_needs("`tied_to` by its name", _HISTORY)
def layers_before(tensor: keras.KerasTensor) -> list[keras.layers.Layer]:
    """The layers that a symbolic tensor was computed by; a list."""
    made_by = [x._keras_history[0] for x in tensors_before(tensor)]
    return [x for x in made_by if isinstance(x, keras.layers.Layer)]


@_needs("`tied_to`", "Layer._untrack_variable")
def untrack(layer: keras.layers.Layer, variable: keras.Variable) -> None:
    """Makes a variable that is an attribute of `layer` none of its weights."""
    layer._untrack_variable(variable)


@_needs("`tied_to`", "Variable._autocast")
def without_autocast(variable: keras.Variable) -> None:
    """Makes a variable one that a layer of lower precision reads as it is."""
    variable._autocast = False


def get_mask(tensor: tf.Tensor) -> tf.Tensor | None:
    """The mask that Keras attached to what a layer returned, or None."""
    return getattr(tensor, _MASK, None)


def set_mask(tensor: tf.Tensor, mask: tf.Tensor | None) -> None:
    """Attaches a mask, which Keras' losses and layers read."""
    setattr(tensor, _MASK, mask)


def is_keras_building() -> bool:
    """Whether Keras calls the loss and the metrics on placeholders.

    Under a `tf.distribute` strategy it does so ahead of training, metrics
    before the loss and with labels that it has averaged over the replicas:
    floats. Ours have nothing to build.
    """
    if tf.executing_eagerly():
        return False
    _has_all(
        "Training under a tf.distribute strategy may fail before its first "
        "step.",
        _SCRATCH_GRAPH_USE,
    )
    return tf.compat.v1.get_default_graph().name.startswith(_SCRATCH_GRAPH)


class RunningFit(NamedTuple):
    """Arguments of the `fit` or `train_on_batch` that is running.

    Attributes:
        class_weight: dict, or None.
        labels: what was given as `y`.
        labels_shape: `tf.TensorShape` of a batch's labels, as far as known.
        model: the model that is trained.
    """

    class_weight: dict[int, float] | None
    labels: Any
    labels_shape: tf.TensorShape
    model: keras.Model


def running_fit() -> RunningFit | None:
    """The `fit` or `train_on_batch` below which this is called, or None.

    This is the one place that reads stack frames. Keras turns `class_weight`
    into sample weights before a loss is called, and keeps it nowhere: neither
    the model nor its callbacks, optimizer or data adapter have it afterwards.
    With rows of several labels these weights are wrong without any error.
    """
    is_known = _has_all(
        "`class_weight` of `fit` is not checked against the labels.",
        _ARGUMENT_OF_FIT,
    )
    if not is_known:
        return None
    methods = (keras.Model.fit, keras.Model.train_on_batch)
    codes = [inspect.unwrap(method).__code__ for method in methods]
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code in codes:
            given = frame.f_locals
            return RunningFit(
                given["class_weight"],
                given["y"],
                _labels_shape(given),
                given["self"],
            )
        frame = frame.f_back
    return None


def _labels_shape(given):
    """Shape of the labels, from the variables of a `fit`."""
    batch = getattr(given.get("iterator"), "element_spec", (None, given["y"]))
    has_labels = isinstance(batch, tuple) and len(batch) > 1
    shape = getattr(batch[1], "shape", None) if has_labels else None
    return tf.TensorShape(shape)


def metrics_of(model: keras.Model, output_name: str) -> list[Any]:
    """`metrics` and `weighted_metrics` as `compile` was given them.

    Args:
        model: a Keras model.
        output_name: str, of the one output whose metrics are asked for.

    Returns:
        List of names, functions and `keras.metrics.Metric`.
    """
    is_known = _has_all(
        "Slow metrics of a sampled head are not reported.", *_METRICS
    )
    compiled = model._compile_metrics if is_known else None
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


def at_each_call(check: Callable[[], None]) -> None:
    """Calls `check` below the caller of the step, in each step.

    Python code runs while a function is traced, and not when a later call takes
    the same trace. So in a `tf.function` the check becomes part of its calls.
    TensorFlow passes it on to an outer function, but not through a loop or a
    branch (`steps_per_execution`): there only the outer function calls `check`.
    Replicas of a `MirroredStrategy` trace in threads of their own, and their
    calls begin in the thread of `fit`, too.
    """
    graphs = [graph for graph in _outer_graphs() if _is_function(graph)]
    if not graphs or missing("FuncGraph.capture_call_time_value"):
        _in_main_thread(check)
        return

    def value():
        check()
        return tf.zeros([])

    key = object()
    for graph in graphs:
        if not _is_branch(graph.outer_graph):
            graph.capture_call_time_value(value, tf.TensorSpec([]), key)


def _in_main_thread(check):
    """Calls `check` in the thread that waits for the replicas, if any."""
    context = tf.distribute.get_replica_context()
    is_mirrored = isinstance(
        tf.distribute.get_strategy(), tf.distribute.MirroredStrategy
    )
    if context is not None and is_mirrored:
        context.merge_call(lambda strategy: check())
    else:
        check()


def _outer_graphs():
    """The graph that is being built, and those around it."""
    graph = tf.compat.v1.get_default_graph()
    while graph is not None:
        yield graph
        graph = getattr(graph, "outer_graph", None)


def _is_function(graph):
    return type(graph) is tf.__internal__.FuncGraph


def _is_branch(graph):
    """Whether it is the graph of a branch or of a loop's body."""
    is_any = isinstance(graph, tf.__internal__.FuncGraph)
    return is_any and not _is_function(graph)


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
    the list has a weak reference; the graph itself has the function. Without
    the list, as TensorFlow does it, and one warning.
    """
    decorated = tf.custom_gradient(function)

    @functools.wraps(function)
    def call(*args):
        result = decorated(*args)
        first = tf.nest.flatten(result)[0]
        is_symbolic = isinstance(first, tf.Tensor) and not hasattr(
            first, "numpy"
        )
        if is_symbolic and _has_all(
            "The memory of models is kept until the process ends.",
            "ops.gradient_registry._registry",
        ):
            _keep_with_graph(first.op)
        return result

    return call


@_AS_IT_IS
def is_recorded() -> bool:
    """Whether a gradient tape may see what is computed here."""
    if missing("eager.record.could_possibly_record"):
        return True
    return _tf_record().could_possibly_record()


@_AS_IT_IS
def is_for_xla() -> bool:
    """Whether the graph being traced is one that XLA will compile."""
    if missing("control_flow_util.GraphOrParentsInXlaContext"):
        return False
    graph = tf.compat.v1.get_default_graph()
    return bool(_tf_control_flow().GraphOrParentsInXlaContext(graph))


def _tf_control_flow():
    return importlib.import_module("tensorflow.python.ops.control_flow_util")


def _tf_record():
    return importlib.import_module("tensorflow.python.eager.record")


def _tf_ops():
    return importlib.import_module("tensorflow.python.framework.ops")


@_AS_IT_IS
def _keep_with_graph(operation):
    """Moves the gradient function of an operation to its graph."""
    gradients = _tf_ops().gradient_registry._registry
    name = operation.get_attr("_gradient_op_type").decode()
    function = gradients[name]["type"]
    # The graph of an operation is a proxy, without a __dict__.
    kept = getattr(operation.graph, _GRADIENTS, [])
    setattr(operation.graph, _GRADIENTS, [*kept, function])
    reference = weakref.ref(function, lambda _: gradients.pop(name, None))
    gradients[name]["type"] = lambda *args: reference()(*args)


def collective_ops() -> Any:
    """The module of TensorFlow's collectives, whose calls are counted."""
    from tensorflow.python.ops import collective_ops

    return collective_ops


@_needs("The ONNX export", "Graph._functions")
def called_graphs(graph: tf.Graph) -> Iterator[tf.Graph]:
    """The graphs of the functions that a graph calls; yields each."""
    for function in graph._functions.values():
        if hasattr(function, "graph"):
            yield function.graph


def _has_argument_of_fit():
    return "class_weight" in inspect.signature(keras.Model.fit).parameters


def _has_compiled_metrics():
    from keras.src.trainers import compile_utils

    names = ("_user_metrics", "_user_weighted_metrics")
    return all(_is_read(compile_utils.CompileMetrics, x) for x in names)


def _has_scratch_graph():
    # Not tried: making a graph starts TensorFlow, whose devices can no longer
    # be configured afterwards.
    backend = importlib.import_module("keras.src.backend.tensorflow")
    code = backend.compute_output_spec.__code__
    return _SCRATCH_GRAPH in code.co_consts


def _has_history():
    operation, node_index, _ = keras.Input((1,), name="probe")._keras_history
    return not operation._inbound_nodes[node_index].input_tensors


def _has_merge_call():
    return callable(tf.__internal__.distribute.interim.maybe_merge_call)


def _has_record():
    return _tf_record().could_possibly_record() in (True, False)


def _has_xla_context():
    # Not tried: a graph starts TensorFlow.
    return callable(_tf_control_flow().GraphOrParentsInXlaContext)


def _has_gradients():
    registered = _tf_ops().gradient_registry._registry["MatMul"]
    return callable(registered["type"])


def _has_handle_data():
    return hasattr(_tf_ops().EagerTensor, "_handle_data")


def _has_eager_mode():
    return callable(tf.__internal__.eager_context.eager_mode)


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
#: of releases to come: a check may raise anything.
_USES = {
    # Row gradients: what a step does in which order, and where.
    **_methods(keras.optimizers.Optimizer, *_METHODS, *_DECAY),
    **_attributes(keras.optimizers.Optimizer, *_STATE, _SUMS),
    # Optimizer state, which the fused updates write.
    **_attributes(
        keras.optimizers.Adam, "_momentums", "_velocities", "_velocity_hats"
    ),
    **_attributes(keras.optimizers.Adagrad, "_accumulators"),
    # The resource that ops update in place.
    **_attributes(keras.Variable, "_autocast", "_value"),
    # Class rows that are another layer's.
    **_methods(keras.layers.Layer, "_untrack_variable"),
    # The head of a model, and what it reads.
    **_methods(keras.Model, "_flatten_layers"),
    _HISTORY: _has_history,
    # Losses that Keras calls before there are data.
    _SCRATCH_GRAPH_USE: _has_scratch_graph,
    _ARGUMENT_OF_FIT: _has_argument_of_fit,
    # What `compile` was given.
    **_attributes(keras.Model, "_compile_metrics"),
    _METRICS[1]: _has_compiled_metrics,
    # TensorFlow's.
    "tf.__internal__.distribute.interim.maybe_merge_call": _has_merge_call,
    "tf.__internal__.eager_context.eager_mode": _has_eager_mode,
    "ops.gradient_registry._registry": _has_gradients,
    "eager.record.could_possibly_record": _has_record,
    "control_flow_util.GraphOrParentsInXlaContext": _has_xla_context,
    **_attributes(tf.Graph, "_functions"),
    **_methods(tf.__internal__.FuncGraph, "capture_call_time_value"),
    "Tensor._handle_data": _has_handle_data,
}


@functools.cache
def _is_there(name):
    try:
        return bool(_USES[name]())
    except Exception:
        return False


def check_backend() -> None:
    """Raises ImportError where Keras computes with another backend."""
    if keras.backend.backend() != "tensorflow":
        raise ImportError(
            "tfxclass needs Keras with the backend TensorFlow. Fix: "
            "KERAS_BACKEND=tensorflow in the environment, before Keras is "
            f"imported. Received: {keras.backend.backend()!r}"
        )


check_backend()
