"""Whether variables were made within the scope of one strategy."""

from collections.abc import Iterable

import tensorflow as tf

from tfxclass.keras_internals import path_of
from tfxclass.keras_internals import tf_variable
from tfxclass.types import Variable


def check_made_within(
    strategy: tf.distribute.Strategy, variables: Iterable[Variable]
) -> None:
    """Raises ValueError if variables were made outside of a strategy's scope.

    TensorFlow's own error names no fix. The default strategy means no scope.
    """
    extended = strategy.extended
    others = [
        path_of(v)
        for v in variables
        if not extended.variable_created_in_scope(tf_variable(v))
    ]
    if others:
        name = type(strategy).__name__
        scope = "no strategy" if name.startswith("_Default") else name
        raise ValueError(
            "A model, its head and its optimizer must be made within one "
            f"`strategy.scope()`. Received: {scope}, but made elsewhere: "
            f"{', '.join(others[:3])}. Fix: under one `with "
            "strategy.scope():`, build or load the model, make the head, "
            "call tfxclass.replace_head, and compile"
        )
