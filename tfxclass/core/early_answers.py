"""Answers for metrics, computed before the optimizer's update.

Keras updates metrics after the optimizer. By then the class vectors have
learned the batch, and rank its labels too high. So a metric is listed here, and
the loss computes its answers with the class vectors of before the update. In a
`tf.function`, answers that no metric reads are pruned.
"""

import weakref
from typing import Any

import tensorflow as tf

_metrics = {}


def ask(metric: Any) -> None:
    """Lists a metric with the attributes `head_name`, `train_rows` and `k`."""
    listed = _metrics.setdefault(metric.head_name, weakref.WeakSet())
    listed.add(metric)


def asked(head_name: str) -> dict[int | None, int]:
    """The greatest k by the number of examples, where None is all of them."""
    found = {}
    for metric in list(_metrics.get(head_name, ())):
        rows = metric.train_rows
        found[rows] = max(metric.k, found.get(rows, 0))
    # Workers of a head in shards must compute them in the same order.
    return dict(sorted(found.items(), key=lambda item: item[0] or 0))


def some_rows(is_labelled: tf.Tensor, count: int) -> tf.Tensor:
    """int32 `[min(count, rows)]`: labelled rows, evenly spread, come first.

    The number does not depend on the labels, as replicas of a head in shards
    must agree on it.

    Args:
        is_labelled: float32 `[rows]`, 1 for rows with a label.
        count: int.
    """
    rows = tf.size(is_labelled)
    count = tf.minimum(count, rows)
    order = tf.argsort(is_labelled, direction="DESCENDING", stable=True)
    labelled = tf.math.count_nonzero(is_labelled, dtype=tf.int32)
    places = tf.range(count)
    step = tf.maximum(labelled // tf.maximum(count, 1), 1)
    return tf.gather(order, places * step)
