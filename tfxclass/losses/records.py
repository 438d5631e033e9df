"""What a head's forward pass leaves behind for its loss and its metrics.

Keras hands a loss `y_pred` alone. A head never wants `y_pred`, the full
[batch, num_classes] output, but the features that it came from. So `call`
leaves them here, keyed by the head's name and by the thread (each replica of a
`tf.distribute` strategy traces in a thread of its own), as `add_loss` leaves
tensors on a layer.
"""

import threading
from typing import Any
from typing import NamedTuple

import tensorflow as tf


class Forward(NamedTuple):
    """A forward pass: `features` float `[batch, dim]`."""

    head: Any
    features: Any
    training: Any


class Scored(NamedTuple):
    """A forward pass whose loss has been computed; left for metrics."""

    head: Any
    features: Any
    training: Any


class Ranking(NamedTuple):
    """Logits `[batch, n]` of the classes a training step computed, and the
    columns `[batch, p]` of the labels, -1 for padding; left for metrics."""

    logits: Any
    positions: Any


_local = threading.local()


def _table(kind):
    tables = _local.__dict__.setdefault("tables", {})
    return tables.setdefault(kind, {})


def leave(head_name, record):
    """Keeps `record` until the next one of its type for that head."""
    _table(type(record))[head_name] = record


def find(head_name, kind):
    """The record left last, or None."""
    return _table(kind).get(head_name)


def take(head_name, kind):
    """The record left last, which is forgotten, or None."""
    return _table(kind).pop(head_name, None)


def is_keras_building():
    """Whether Keras calls the loss and the metrics on placeholders.

    Under a `tf.distribute` strategy it does so ahead of training, metrics
    before the loss and with labels that it has averaged over the replicas:
    floats. Ours have nothing to build.
    """
    if tf.executing_eagerly():
        return False
    return tf.compat.v1.get_default_graph().name.startswith("scratch_graph")
