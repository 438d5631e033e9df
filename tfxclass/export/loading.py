"""The model that is exported: its parts, and what an export needs of them."""

import os
import re

import keras

from tfxclass.inference.graph import encoder_of
from tfxclass.layers.output_head import OutputHead
from tfxclass.paths import local_path
from tfxclass.types import Path

# Names that Keras gives to inputs without one.
_NAMES_OF_KERAS = re.compile(r"(keras_tensor|input_layer)(_\d+)?")


def parts_of(
    model: keras.Model | Path,
) -> tuple[list[keras.KerasTensor], keras.KerasTensor, OutputHead]:
    """`(inputs, features, head)` of a model, or of one in a `.keras` file."""
    if isinstance(model, (str, os.PathLike)):
        model = keras.models.load_model(local_path(model, "model"))
    return encoder_of(model)


def served_encoder(
    inputs: list[keras.KerasTensor], features: keras.KerasTensor
) -> keras.Model:
    """Model from inputs with names for a client to `features`.

    An input that nobody named is called `text` if it has strings, and
    `features` otherwise; several of a kind `features_1`, `features_2`.
    """
    encoder, kinds = keras.Model(inputs, features), []
    for x in inputs:
        is_unnamed = _NAMES_OF_KERAS.fullmatch(x.name)
        kind = "text" if x.dtype == "string" else "features"
        kinds.append(kind if is_unnamed else x.name)
    names = [
        kind
        if kinds.count(kind) == 1
        else f"{kind}_{kinds[: i + 1].count(kind)}"
        for i, kind in enumerate(kinds)
    ]
    if names == [x.name for x in inputs]:
        return encoder
    named = [
        keras.Input(batch_shape=x.shape, dtype=x.dtype, name=name)
        for x, name in zip(inputs, names)
    ]
    return keras.Model(named, encoder(named))


def new_path(path: Path) -> str:
    """An absolute path; ValueError where it exists."""
    path = os.path.abspath(local_path(path))
    if os.path.exists(path):
        what = "folder" if os.path.isdir(path) else "file"
        raise ValueError(
            "`path` must not exist yet, since this export overwrites nothing. "
            f"Received: {path!r}, which is a {what}. Fix: give another path, "
            "or delete this one first."
        )
    return path
