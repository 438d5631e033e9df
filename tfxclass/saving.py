"""Saves that are whole, or that leave the old file as it was."""

import contextlib
import os
from collections.abc import Callable

import keras

from tfxclass.paths import local_path
from tfxclass.types import Path

#: Endings of the files that Keras writes.
MODEL, WEIGHTS = ".keras", ".weights.h5"


def save_model(model: keras.Model, path: Path) -> None:
    """`model.save(path)`, complete or not at all.

    Keras writes into the file itself: where the disk is full or the process is
    killed, the last good model is gone as well. Here the file is written beside
    `path` (`.<name>.unfinished...`), synchronised with the disk and renamed. A
    later save takes the place of what a killed one left.

    Args:
        model: `keras.Model`.
        path: str, ends in `.keras`. Missing folders are made.

    Raises:
        ValueError: another ending.
        OSError: it cannot be written; `path` is as it was.
    """
    _replace(path, MODEL, model.save)


def save_weights(model: keras.Model, path: Path) -> None:
    """`model.save_weights(path)`, complete or not at all; see `save_model`.

    Args:
        model: `keras.Model`.
        path: str, ends in `.weights.h5`. Missing folders are made.

    Raises:
        ValueError: another ending.
        OSError: it cannot be written; `path` is as it was.
    """
    _replace(path, WEIGHTS, model.save_weights)


def check_ending(name: str, path: str, wanted: str) -> None:
    """Raises ValueError unless `path`, the argument `name`, ends so."""
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
