"""Saving models completely or not at all."""

import contextlib
import os
from collections.abc import Callable

import keras

from tfxclass.paths import local_path
from tfxclass.types import Path

#: Endings of the files that Keras writes.
MODEL, WEIGHTS = ".keras", ".weights.h5"


def save_model(model: keras.Model, path: Path) -> None:
    """Saves a model to a `.keras` file, completely or not at all.

    Use it instead of `model.save(path)`, which overwrites the last good file
    while it writes. If the disk is full or the process is killed, `path` stays
    as it was, and the next save removes the file `.<name>.unfinished...`.

    Args:
        model: `keras.Model`.
        path: str, ends in `.keras`. Missing folders are made.

    Raises:
        ValueError: if `path` has another ending.
        OSError: if it cannot be written. `path` is then as it was.

    Example:

    ```python
    head = tfxclass.layers.FullSoftmax(100)
    model = keras.Sequential([keras.Input([20]), head])
    tfxclass.save_model(model, "model.keras")
    model = keras.saving.load_model("model.keras")
    ```
    """
    _replace(path, MODEL, model.save)


def save_weights(model: keras.Model, path: Path) -> None:
    """Saves weights to a `.weights.h5` file, completely or not at all.

    As `save_model`, except that `path` ends in `.weights.h5`.

    Example:

    ```python
    head = tfxclass.layers.FullSoftmax(100)
    model = keras.Sequential([keras.Input([20]), head])
    tfxclass.save_weights(model, "model.weights.h5")
    ```
    """
    _replace(path, WEIGHTS, model.save_weights)


def check_ending(name: str, path: str, wanted: str) -> None:
    """Raises ValueError unless `path` (argument `name`) has this ending."""
    if not path.endswith(wanted):
        raise ValueError(f"`{name}` must end in {wanted}. Received: {path!r}")


def _replace(path: Path, ending: str, write: Callable[[str], None]) -> None:
    path = os.path.abspath(local_path(path))
    check_ending("path", path, ending)
    folder, name = os.path.split(path)
    os.makedirs(folder, exist_ok=True)
    unfinished = os.path.join(folder, f".{name}.unfinished{ending}")
    try:
        write(unfinished)
        synchronise(unfinished)
        os.replace(unfinished, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(unfinished)
        raise
    synchronise(folder)


def synchronise(path: str) -> None:
    """Waits until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
