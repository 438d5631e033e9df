"""Fallbacks of the optimizers' steps on touched rows.

After a step TensorFlow copies the matrix at each full read of it, as after its
own scatters. Rows and optimizer state have one dtype: bfloat16 rows that are
rounded by chance are refused.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfxclass import keras_internals
from tfxclass.ops.fallback import exact_softmax
from tfxclass.ops.fallback.refused import refusal
from tfxclass.ops.fallback.registry import Ids
from tfxclass.ops.fallback.registry import InvalidInput
from tfxclass.ops.fallback.registry import check_ids
from tfxclass.ops.fallback.registry import check_shape
from tfxclass.ops.fallback.registry import fallback
from tfxclass.ops.fallback.registry import register
from tfxclass.ops.fallback.registry import require
from tfxclass.ops.fallback.registry import reshaped

# The least and the most variables of an optimizer's state.
_NUM_SLOTS = {"sgd": (0, 1), "adagrad": (1, 1), "adam": (2, 3)}


@fallback
def sum_duplicate_rows(ids: Ids, grads: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """Distinct ids, rising, and the sums of their rows in order."""
    grads = tf.stop_gradient(grads)
    check_shape("ids", ids, [None])
    require(
        _is_same(tf.shape(ids), tf.shape(grads)[:1]),
        "`grads` must have a row for each of `ids`. Received: shapes {} and {}",
        tf.shape(ids),
        tf.shape(grads),
    )
    check_ids("ids", ids, tf.int64.max)
    order = tf.argsort(ids, stable=True)
    distinct, place = tf.unique(tf.gather(ids, order))
    return distinct, tf.math.segment_sum(tf.gather(grads, order), place)


def _is_same(shape, other):
    """Whether two shapes are the same, of any ranks."""
    return tf.equal(tf.size(shape), tf.size(other)) & tf.reduce_all(
        shape == other
    )


class _Rows:
    """A matrix and its optimizer state, computed in `wide`."""

    def __init__(self, kind, given):
        least, most = _NUM_SLOTS[kind]
        if not least <= len(given["slots"]) <= most:
            raise InvalidInput(
                f"`slots` must be {least} to {most} variables. Received: "
                f"{len(given['slots'])}"
            )
        self.variables = [given["variable"], *given["slots"]]
        self.dtype = tf.as_dtype(given["T"])
        is_plain = not given["row_moments"] and not given["bfloat16_moments"]
        if not is_plain or self.dtype != tf.as_dtype(given["S"]):
            raise refusal(
                'A step of bfloat16 class vectors, or with second_moment="row"'
            )
        for variable in self.variables:
            # A gather of another type would end the process.
            found = keras_internals.dtype_of_handle(variable)
            if found not in (None, self.dtype):
                raise InvalidInput(
                    "The variable and its slots must be "
                    f"{self.dtype.name}. Received: {found.name}"
                )
        self.wide = tf.float64 if self.dtype == tf.float64 else tf.float32
        self.shape, *of_slots = [
            tf.raw_ops.VariableShape(input=x, out_type=tf.int64)
            for x in self.variables
        ]
        require(
            tf.size(self.shape) > 0,
            "The variable must have rows, so rank 1 or more. Received: shape "
            "()",
        )
        for shape in of_slots:
            require(
                _is_same(shape, self.shape),
                "A slot must have the variable's shape, {}. Received: shape {}",
                self.shape,
                shape,
            )

    def count(self):
        return self.shape[0]

    def whole(self):
        return tf.raw_ops.ReadVariableOp(
            resource=self.variables[0], dtype=self.dtype
        )

    def step(self, rule, ids, grads):
        """Moves rows `ids`, none twice, by their gradients."""
        old = [
            tf.cast(
                tf.raw_ops.ResourceGather(
                    resource=variable, indices=ids, dtype=self.dtype
                ),
                self.wide,
            )
            for variable in self.variables
        ]
        new = rule(old, tf.cast(grads, self.wide))
        written = [
            tf.raw_ops.ResourceScatterUpdate(
                resource=variable,
                indices=ids,
                updates=tf.cast(values, self.dtype),
            )
            for variable, values in zip(self.variables, new, strict=True)
        ]
        return tf.group(*[x for x in written if x is not None])


def _sgd(number, nesterov):
    rate, momentum = number("learning_rate"), number("momentum")
    decay = number("decay")

    def rule(old, grads):
        w, step = old[0], grads * rate
        if len(old) == 1:
            return [w - w * decay - step]
        velocity = old[1] * momentum - step
        move = velocity * momentum - step if nesterov else velocity
        return [w + (move - w * decay), velocity]

    return rule


def _adagrad(number):
    rate, decay, offset = map(number, ("learning_rate", "decay", "offset"))

    def rule(old, grads):
        w, total = old[0], old[1] + grads * grads
        step = rate * grads / tf.sqrt(total + offset)
        return [w + (-w * decay - step), total]

    return rule


def _adam(number):
    alpha, decay, epsilon = map(number, ("alpha", "decay", "epsilon"))
    # The difference to 1 in float64, as the op takes it.
    rates = [number(x, lambda beta: 1 - beta) for x in ("beta_1", "beta_2")]

    def rule(old, grads):
        w, m, v, *largest = old
        m += (grads - m) * rates[0]
        v += (grads * grads - v) * rates[1]
        largest = [tf.maximum(v, x) for x in largest]
        divisor = largest[0] if largest else v
        step = m * alpha / (tf.sqrt(divisor) + epsilon)
        return [w + (-w * decay - step), m, v, *largest]

    return rule


def _rule(kind, wide, given):
    """A function of `[rows, *state]` and gradients that updates them."""

    def number(name: str, of: Callable[[Any], Any] = lambda x: x) -> Any:
        value = tf.convert_to_tensor(given[name], tf.float64)
        value = reshaped(name, value, [])
        return tf.cast(of(value), wide)

    if kind == "sgd":
        return _sgd(number, given["nesterov"])
    return _adam(number) if kind == "adam" else _adagrad(number)


def _lazy(kind, given):
    grads = tf.stop_gradient(given["grads"])
    rows = _Rows(kind, {**given, "S": grads.dtype})
    ids = tf.convert_to_tensor(given["ids"], tf.int64)
    check_shape("ids", ids, [None])
    check_ids("ids", ids, rows.count())
    expected = tf.concat([[tf.size(ids, tf.int64)], rows.shape[1:]], axis=0)
    require(
        _is_same(tf.shape(grads, tf.int64), expected),
        "`grads` must have a row of the variable's shape for each id, {}. "
        "Received: shape {}",
        expected,
        tf.shape(grads),
    )
    reshaped("step", tf.convert_to_tensor(given["step"], tf.int64), [])
    ids, grads = sum_duplicate_rows(ids, tf.cast(grads, rows.wide))
    return rows.step(_rule(kind, rows.wide, given), ids, grads)


def _of_classes(kind, given):
    """A step of all rows by a softmax gradient; returns the bias gradient."""
    rows = _Rows(kind, given)
    check_shape("ids", tf.convert_to_tensor(given["ids"], tf.int64), [None])
    reshaped("step", tf.convert_to_tensor(given["step"], tf.int64), [])
    of_kernel, of_bias = exact_softmax.exact_softmax_grad(
        kernel=rows.whole(),
        epsilon=given["epsilon_of_norm"],
        **{name: given[name] for name in _OF_SOFTMAX},
    )
    rule = _rule(kind, rows.wide, given)
    done = rows.step(rule, tf.range(rows.count()), of_kernel)
    with tf.control_dependencies([] if done is None else [done]):
        return tf.identity(of_bias)


_OF_SOFTMAX = (
    "queries",
    "bias",
    "targets",
    "target_grads",
    "logsumexp",
    "factor",
    "uniform",
)


def _register(name, run, kind):
    def call(**given: Any) -> Any:
        with tf.name_scope(name):
            return run(kind, given)

    register(name, call)


for _kind in ("sgd", "adagrad", "adam"):
    _register(f"lazy_{_kind}_update", _lazy, _kind)
    _register(f"class_{_kind}_update", _of_classes, _kind)
