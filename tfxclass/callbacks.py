"""Callbacks for `model.fit`."""

import time
from typing import Any

import keras

from tfxclass import keras_internals
from tfxclass import saving
from tfxclass.paths import local_path
from tfxclass.types import Path

__all__ = [
    "AtomicModelCheckpoint",
    "SamplerLog",
    "SecondsLog",
]


def __dir__() -> list[str]:
    return __all__


class SecondsLog(keras.callbacks.Callback):
    """Adds `seconds` of training to the logs, without evaluation.

    Use it to compare heads by their accuracy after equally many seconds.

    Example:

    ```python
    seconds = tfxclass.callbacks.SecondsLog()
    head = tfxclass.layers.FullSoftmax(100)
    model = keras.Sequential([keras.layers.Dense(16), head])
    model.compile("adam", loss=head.loss)
    x, y = np.ones([64, 20]), np.arange(64)
    history = model.fit(x, y, callbacks=[seconds], verbose=0)
    print(history.history["seconds"])
    ```
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
    """Adds the measurements of the heads' samplers to the logs of each epoch.

    The logs get these names, if the sampler has them:

    - `recall`: fraction of the ten greatest logits of a few examples that the
      index found in its last check.
    - `fill_rate`: fraction of the places reserved for similar classes that were
      filled in the last step.
    - `k_eff`, `v`, `noise` and `choice` of an `AutoSampler`.
    - `tables_probed` and `table_hit_rate` of an `LSHSampler`.

    With several heads that have samplers, a name begins with the name of the
    head, such as `"words/recall"`. Put it before `keras.callbacks.TensorBoard`,
    which then writes each value as a scalar (`epoch_recall`). For values within
    an epoch use `tfxclass.metrics.SamplerState`.

    Example:

    ```python
    callbacks = [
        tfxclass.callbacks.SamplerLog(),
        keras.callbacks.CSVLogger("log.csv"),
    ]
    ```
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
            for name, value in head.measured.items():
                logs[prefix + name] = float(value)


class AtomicModelCheckpoint(keras.callbacks.ModelCheckpoint):
    """`keras.callbacks.ModelCheckpoint` whose files are always complete.

    Use it if a run may be killed while it saves: the previous checkpoint stays.
    It saves with `tfxclass.save_model` or `tfxclass.save_weights`.

    Args:
        filepath: str, ends in `.keras`, or in `.weights.h5` with
            `save_weights_only=True`.
        **options: as for `ModelCheckpoint`.

    Raises:
        ValueError: if `filepath` has another ending.

    Example:

    ```python
    callback = tfxclass.callbacks.AtomicModelCheckpoint("model.keras")
    ```
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
