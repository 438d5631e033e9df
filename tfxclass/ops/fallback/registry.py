"""The registry of the fallbacks of compiled ops, and their checks.

A fallback is a function of the name and the arguments of an op, in TensorFlow's
own ops, or in NumPy through `tf.numpy_function`. The annotations of its
arguments say what they become: numbers and arrays become tensors of that type,
as the arguments of an op do.
"""

import contextlib
import functools
import inspect
import math
import threading
import types
import typing
from collections.abc import Callable
from collections.abc import Sequence
from typing import Annotated
from typing import Any

import numpy as np
import tensorflow as tf

from tfxclass import keras_internals
from tfxclass.ops.fallback import slow

#: In place of the module that `tf.load_op_library` returns.
ops = types.SimpleNamespace()
#: The fallbacks, by the names of the ops in Python.
FALLBACKS: dict[str, Any] = {}

# Arguments: what an op takes of these types.
Floats = Annotated[Any, tf.float32]
Doubles = Annotated[Any, tf.float64]
Ids = Annotated[Any, tf.int64]
Flags = Annotated[Any, tf.bool]
Strings = Annotated[Any, tf.string]
# One number, of any rank, and two of them.
Float = Annotated[Any, tf.float32, []]
Id = Annotated[Any, tf.int64, []]
Seed = Annotated[Any, tf.int64, [2]]


class _Scopes(threading.local):
    def __init__(self):
        #: For each fallback that is running: its name, its graph, and a stack
        #: of contexts in which later ops wait for its checks.
        self.stack = []


_scopes = _Scopes()


class InvalidInput(tf.errors.InvalidArgumentError, ValueError):
    """Raised in NumPy; a graph tells a ValueError from other errors."""

    def __init__(self, message: str) -> None:
        super().__init__(None, None, message)


def fallback(
    function: Callable[..., Any] | None = None, *, has_gradient: bool = False
) -> Callable[..., Any]:
    """Registers the fallback of an op, and makes tensors of its arguments.

    Args:
        function: named as the op is, without "tfxclass_".
        has_gradient: whether gradients flow through it, as through the op.
    """
    if function is None:
        return functools.partial(fallback, has_gradient=has_gradient)
    signature = inspect.signature(function)
    hints = typing.get_type_hints(function, include_extras=True)
    dtypes = {
        name: hint.__metadata__
        for name, hint in hints.items()
        if hasattr(hint, "__metadata__")
    }

    @functools.wraps(function)
    def call(*args, name=None, **kwargs):
        given = signature.bind(*args, **kwargs).arguments
        own_name = function.__name__
        with tf.name_scope(name or own_name), _checks_first(own_name):
            for key, (dtype, *shape) in dtypes.items():
                if key not in given:
                    continue
                given[key] = _tensor(given[key], dtype, has_gradient)
                if shape:
                    given[key] = reshaped(key, given[key], *shape)
            return function(**given)

    register(function.__name__, call)
    return call


def register(name: str, call: Callable[..., Any]) -> None:
    """Makes `call` the fallback of the op `name`, without "tfxclass_"."""
    FALLBACKS[f"tfxclass_{name}"] = call
    setattr(ops, f"tfxclass_{name}", call)


@contextlib.contextmanager
def _checks_first(name):
    """In a graph, ops wait for each `require` before them.

    Otherwise another op could fail first, with a message that says less.
    """
    with contextlib.ExitStack() as waiting:
        graph = tf.compat.v1.get_default_graph()
        _scopes.stack.append((name, graph, waiting))
        try:
            yield
        finally:
            _scopes.stack.pop()


def _tensor(value, dtype, has_gradient):
    value = tf.convert_to_tensor(value, dtype)
    if dtype.is_floating and not has_gradient:
        return tf.stop_gradient(value)
    return value


def reshaped(
    name: str, value: tf.Tensor, shape: Sequence[int | tf.Tensor]
) -> tf.Tensor:
    """`value` of this shape; an error where it has more or fewer numbers."""
    require(
        tf.equal(tf.size(value, tf.int64), math.prod(shape)),
        f"`{name}` must have {{}} element(s). Received: shape {{}}",
        tf.convert_to_tensor(math.prod(shape)),
        tf.shape(value),
    )
    return tf.reshape(value, shape)


def require(condition: tf.Tensor, message: str, *values: tf.Tensor) -> None:
    """`InvalidArgumentError` unless `condition` holds.

    Args:
        message: str with a {} for each of `values`.
    """
    text = tf.strings.format(message, values, summarize=10)
    check = tf.debugging.Assert(condition, [text])
    if check is None or not _scopes.stack:  # eagerly, or in no fallback
        return
    _, graph, waiting = _scopes.stack[-1]
    # No op outside of the branch of a condition can wait for a check in it.
    if graph is tf.compat.v1.get_default_graph():
        waiting.enter_context(tf.control_dependencies([check]))


def check_ids(
    name: str, ids: tf.Tensor, bound: int | tf.Tensor, lowest: int = 0
) -> None:
    """`InvalidArgumentError` unless `ids` are in [lowest, bound)."""
    bound = tf.cast(bound, tf.int64)
    require(
        tf.reduce_all((ids >= lowest) & (ids < bound)),
        f"`{name}` must be in [{lowest}, {{}}). Received: {{}}",
        bound,
        ids,
    )


def check_shape(
    name: str, value: tf.Tensor, shape: Sequence[int | tf.Tensor | None]
) -> None:
    """`InvalidArgumentError` unless `value` has this shape; None is any."""
    text = f"`{name}` must have rank {len(shape)}. Received: shape {{}}"
    if value.shape.rank not in (None, len(shape)):
        raise InvalidInput(text.format(tuple(value.shape)))
    found = tf.shape(value, tf.int64)
    require(tf.equal(tf.rank(value), len(shape)), text, found)
    if not shape:
        return
    sizes = [
        found[i] if size is None else tf.cast(size, tf.int64)
        for i, size in enumerate(shape)
    ]
    require(
        tf.reduce_all(found == sizes),
        f"`{name}` must have shape {{}}. Received: shape {{}}",
        tf.stack(sizes),
        found,
    )


def check_number(name: str, value: float, least: float) -> None:
    """`InvalidInput` unless an attribute is finite and at least `least`."""
    if not least <= value < math.inf:
        raise InvalidInput(
            f"`{name}` must be a number >= {least}. Received: {value}"
        )


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """`InvalidInput` unless an attribute is one of `choices`."""
    if value not in choices:
        raise InvalidInput(
            f"`{name}` must be one of {', '.join(choices)}. Received: {value!r}"
        )


def on_host(
    function: Callable[..., Any],
    types: Sequence[tf.DType],
    inputs: Sequence[Any],
    shapes: Sequence[Sequence[int | None]],
) -> list[tf.Tensor]:
    """Runs a function of arrays in this process, with Python's lock held.

    Where that takes long, a warning says so.

    Args:
        function: takes the `inputs` as arrays; returns a tuple of arrays.
        types: the types of the results.
        inputs: tensors.
        shapes: of the results, None for what is not known.
    """
    name = _scopes.stack[-1][0] if _scopes.stack else "unknown"

    def run(*arrays):
        with slow.warning_if_slow(name):
            return function(*arrays)

    found = tf.numpy_function(run, inputs, types)
    if len(types) == 1:  # eagerly it is no list
        found = found if isinstance(found, list) else [found]
    return [tf.ensure_shape(x, s) for x, s in zip(found, shapes, strict=True)]


def rows_of(kernel: tf.Tensor) -> tf.Tensor:
    """The rows behind the handle of a variable, not copied on a CPU."""
    dtype = keras_internals.dtype_of_handle(kernel) or tf.float32
    return tf.raw_ops.ReadVariableOp(resource=kernel, dtype=dtype)


def check_finite(name: str, values: np.ndarray) -> None:
    """`InvalidInput` where an element is not finite."""
    if not np.all(np.isfinite(values)):
        wrong = np.asarray(values)[~np.isfinite(values)]
        raise InvalidInput(
            f"`{name}` must be finite. Received: {wrong.ravel()[0]}"
        )


def generator(*seeds: int) -> np.random.Generator:
    """A random generator of these seeds, negative ones as well."""
    return np.random.default_rng([int(x) & (2**64 - 1) for x in seeds])
