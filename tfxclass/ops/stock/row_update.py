"""Twins of the optimizers' steps on touched rows.

After them TensorFlow copies a matrix at each full read of it, as after its own
scatters. Rows that are rounded by chance draw other numbers than the ops do.
"""

from typing import Any

import tensorflow as tf

from tfxclass.ops.stock import exact_softmax
from tfxclass.ops.stock import row_rules
from tfxclass.ops.stock.kept_rows import KeptRows
from tfxclass.ops.stock.twin import TWINS
from tfxclass.ops.stock.twin import Ids
from tfxclass.ops.stock.twin import check_ids
from tfxclass.ops.stock.twin import require
from tfxclass.ops.stock.twin import twin


@twin
def sum_duplicate_rows(ids: Ids, grads: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """Distinct ids, rising, and the sums of their rows in order."""
    grads = tf.stop_gradient(grads)
    ids.shape.assert_has_rank(1)
    require(
        tf.shape(ids)[0] == tf.shape(grads)[0],
        "`grads` must have a row for each of `ids`. Received: shapes {} and {}",
        tf.shape(ids),
        tf.shape(grads),
    )
    check_ids("ids", ids, tf.int64.max)
    order = tf.argsort(ids, stable=True)
    distinct, place = tf.unique(tf.gather(ids, order))
    return distinct, tf.math.segment_sum(tf.gather(grads, order), place)


class _Step:
    """The matrix and the slots of an op."""

    num_moments = {"sgd": 1, "adagrad": 0, "adam": 1}

    def __init__(self, kind, common):
        self.kept = KeptRows(
            common["variable"],
            list(common["slots"]),
            common["T"],
            common["S"] if "S" in common else _type_of_grads(common),
            common["row_moments"],
            common["bfloat16_moments"],
            common["seed"],
            self.num_moments[kind],
        )

    def update(self, rule, ids, grads, step):
        """One step of rows with these gradients, none twice."""
        kept = self.kept
        check_ids("ids", ids, kept.num_rows())
        rows, slots = kept.read(ids)
        grads = tf.cast(grads, kept.wide)
        square = grads * grads
        if kept.row_moments:
            axes = tf.range(1, tf.rank(square))
            square = tf.reduce_mean(square, axes, keepdims=True)
        rows, slots = rule.step(rows, grads, square, slots)
        return _done(kept.write(ids, rows, slots, step))


def _type_of_grads(given):
    return given["grads"].dtype if "grads" in given else tf.float32


def _present(written):
    return [x for x in written if x is not None]


def _done(written):
    return tf.group(*_present(written))


def _rule(kind, wide, numbers):
    """A rule, its numbers in what rows are computed in."""
    as_wide = {
        name: tf.cast(numbers[name], wide)
        for name in ("learning_rate", "alpha", "decay")
        if name in numbers
    }
    if kind == "sgd":
        return row_rules.Sgd(
            **as_wide,
            momentum=tf.cast(numbers["momentum"], wide),
            nesterov=numbers["nesterov"],
        )
    epsilon = tf.cast(numbers["epsilon"], wide)
    if kind == "adagrad":
        return row_rules.Adagrad(**as_wide, epsilon=epsilon)
    betas = [tf.cast(numbers[x], tf.float64) for x in ("beta_1", "beta_2")]
    rates = [tf.cast(1 - beta, wide) for beta in betas]
    return row_rules.Adam(**as_wide, rates=rates, epsilon=epsilon)


def _lazy(kind, given):
    grads = tf.stop_gradient(given["grads"])
    step = _Step(kind, {**given, "grads": grads})
    ids = given["ids"]
    wide = step.kept.wide
    check_ids("ids", ids, step.kept.num_rows())
    ids, grads = sum_duplicate_rows(ids, tf.cast(grads, wide))
    rule = _rule(kind, wide, given)
    return step.update(rule, ids, grads, given["step"])


def _of_classes(kind, given):
    """A step of all rows with the gradient of a softmax; that of the bias."""
    step = _Step(kind, given)
    of_kernel, of_bias = exact_softmax.exact_softmax_grad(
        kernel=step.kept.whole(),
        epsilon=given["epsilon_of_norm"],
        **{name: given[name] for name in _OF_SOFTMAX},
    )
    rule = _rule(kind, step.kept.wide, given)
    every = tf.range(step.kept.num_rows())
    done = step.update(rule, every, of_kernel, given["step"])
    with tf.control_dependencies(_present([done])):
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
_DEFAULTS = {
    "row_moments": False,
    "bfloat16_moments": False,
    "seed": 0,
}
_TYPES = {
    **dict.fromkeys(("ids", "step"), tf.int64),
    **dict.fromkeys(
        ("learning_rate", "alpha", "decay", "beta_1", "beta_2"), tf.float64
    ),
}


def _register(name, run, kind):
    def call(**given: Any) -> Any:
        for key, dtype in _TYPES.items():
            if key in given:
                given[key] = tf.convert_to_tensor(given[key], dtype)
        with tf.name_scope(name):
            return run(kind, {**_DEFAULTS, **given})

    TWINS[f"tfxclass_{name}"] = call


for _kind in ("sgd", "adagrad", "adam"):
    _register(f"lazy_{_kind}_update", _lazy, _kind)
    _register(f"class_{_kind}_update", _of_classes, _kind)
