"""Weights of a tagger's layers: trained elsewhere, and read by stock ops."""

from typing import Any

import keras


def add_weight(
    layer: keras.layers.Layer,
    name: str,
    shape: tuple[int, ...],
    dtype: str = "float32",
    initializer: Any = "zeros",
) -> keras.Variable:
    """A weight that Keras neither trains nor casts."""
    return layer.add_weight(
        name=name,
        shape=shape,
        initializer=initializer,
        dtype=dtype,
        autocast=False,
        trainable=False,
    )
