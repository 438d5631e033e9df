"""Callbacks for `fit`."""

import os
from typing import Any

import keras

from tfxclass import saving
from tfxclass.types import Path


class AtomicModelCheckpoint(keras.callbacks.ModelCheckpoint):
    """`keras.callbacks.ModelCheckpoint` whose files are always complete.

    Each save is `save_model` or `save_weights`: a run that is killed while it
    saves leaves the checkpoint before.

    Args:
        filepath: str, ends in `.keras`, or in `.weights.h5` with
            `save_weights_only=True`.
        **options: those of `ModelCheckpoint`.

    Raises:
        ValueError: another ending.
    """

    def __init__(self, filepath: Path, **options: Any) -> None:
        wanted = (
            saving.WEIGHTS if options.get("save_weights_only") else saving.MODEL
        )
        saving.check_ending("filepath", os.fspath(filepath), wanted)
        super().__init__(filepath, **options)

    def set_model(self, model: keras.Model) -> None:
        super().set_model(_SavedAtomically(model))


class _SavedAtomically:
    """A model, to a callback, but for how it is saved."""

    def __init__(self, model):
        vars(self)["_model"] = model

    def __getattr__(self, name):
        return getattr(self._model, name)

    def __setattr__(self, name, value):
        setattr(self._model, name, value)

    def save(self, path, overwrite=True):
        saving.save_model(self._model, path)

    def save_weights(self, path, overwrite=True):
        saving.save_weights(self._model, path)
