"""The model that is exported: its parts, and what an export needs of them."""

import os

import keras

from tfxclass.inference.graph import encoder_of
from tfxclass.layers.output_head import OutputHead
from tfxclass.paths import local_path
from tfxclass.types import Path


def parts_of(
    model: keras.Model | Path,
) -> tuple[list[keras.KerasTensor], keras.KerasTensor, OutputHead]:
    """`(inputs, features, head)` of a model.

    Args:
        model: `keras.Model`, or the path of one in a `.keras` file.
    """
    if isinstance(model, (str, os.PathLike)):
        model = keras.models.load_model(local_path(model, "model"))
    return encoder_of(model)


def check_plain_logits(what: str, head: OutputHead, instead: str) -> None:
    """Raises ValueError unless each class has one class vector.

    Args:
        what: str, what needs it.
        head: the head.
        instead: str, a sentence that says what to do with other heads.
    """
    if not getattr(head, "has_plain_logits", False):
        raise ValueError(
            f"{what} needs a head with one row a class, and of its logits "
            f"softmax, sigmoid or nothing. Received: {type(head).__name__}. "
            f"{instead}"
        )


def new_path(path: Path) -> str:
    """An absolute path; ValueError where it exists."""
    path = os.path.abspath(local_path(path))
    if os.path.exists(path):
        raise ValueError(f"`path` must not exist yet. Received: {path!r}")
    return path
