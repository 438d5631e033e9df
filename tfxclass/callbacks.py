"""Callbacks for `fit`."""

import time
from typing import Any

import keras

from tfxclass import keras_internals
from tfxclass import saving
from tfxclass.paths import local_path
from tfxclass.types import Path


class SecondsLog(keras.callbacks.Callback):
    """Adds `seconds` to the epochs' logs: of training, evaluation left out.

    With it `tfxclass.plot.plot_accuracy` draws accuracy against time.
    """

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._begin = time.perf_counter()

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._test_begin = time.perf_counter()

    def on_test_end(self, logs: dict[str, Any] | None = None) -> None:
        self._begin += time.perf_counter() - self._test_begin

    def on_epoch_end(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        if logs is not None:
            logs["seconds"] = time.perf_counter() - self._begin


class SamplerLog(keras.callbacks.Callback):
    """Adds what the heads' samplers measure of themselves to the epochs' logs.

    Names and values, as the sampler has them:

    - `recall`: of the ten greatest logits of a few rows, the share that the
      index found at its last probe; `rebuilds`, how many indexes were built
      since the program began, and `rebuild_seconds`, the time of the last;
    - `fill_rate`: the fraction of the sample reserved for similar classes that
      such classes filled at the last step;
    - `k_eff`, `v`, `noise` and `choice` of an `AutoSampler`;
    - `tables_probed` and `table_hit_rate` of an `LSHSampler`.

    With several heads that have samplers a name begins with the head's,
    `"words/recall"`. Callbacks after it have them in `logs`, and so has
    `History`: put it before `keras.callbacks.TensorBoard`, which writes each as
    a scalar (`epoch_recall`). Within an epoch: `tfxclass.metrics.SamplerState`.

    Example:

    >>> callbacks = [
    ...     tfxclass.callbacks.SamplerLog(),
    ...     keras.callbacks.TensorBoard("logs"),
    ... ]
    >>> model.fit(x, y, callbacks=callbacks)
    """

    def on_epoch_end(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        if logs is None:
            return
        heads = [
            layer
            for layer in keras_internals.flat_layers(self.model)
            if getattr(layer, "sampler", None) is not None
        ]
        for head in heads:
            prefix = f"{head.name}/" if len(heads) > 1 else ""
            for name, value in head.sampler_figures().items():
                logs[prefix + name] = value


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
        filepath = local_path(filepath, "filepath")
        saving.check_ending("filepath", filepath, wanted)
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
