"""Callbacks for `model.fit`."""

import time
from typing import Any

import keras

from tfxclass import keras_internals
from tfxclass import saving
from tfxclass.checks import check_positive_int
from tfxclass.paths import local_path
from tfxclass.types import Path

__all__ = ["AtomicModelCheckpoint", "ExactLast", "SamplerLog", "SecondsLog"]

Logs = dict[str, Any] | None
__dir__ = __all__.copy  # For completion.


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

    _begin = 0.0  # `evaluate` alone begins no training.

    def on_train_begin(self, logs: Logs = None) -> None:
        self._begin = time.perf_counter()

    def on_test_begin(self, logs: Logs = None) -> None:
        self._test_begin = time.perf_counter()

    def on_test_end(self, logs: Logs = None) -> None:
        self._begin += time.perf_counter() - self._test_begin

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        if logs is not None:
            logs["seconds"] = time.perf_counter() - self._begin


class ExactLast(keras.callbacks.Callback):
    """Trains the last epochs of `fit` with all classes instead of a sample.

    Use it where a sampled head is less accurate than an exact one, whose time
    you cannot afford. How much accuracy the last epochs bring back depends on
    the data: compare on validation samples. The step is traced anew once, so
    the first exact step takes seconds.

    It works with `fit`, and not with `tfxclass.distribute.fit`. Each head that
    samples its classes is switched. The loss that `fit` reports may jump: it is
    the loss on all classes. `NoiseContrastive` and `NegativeSampling` end with
    the cross-entropy of the softmax, which is also their loss of evaluations.

    Args:
        epochs: int >= 1, how many of the last epochs are exact.

    Raises:
        ValueError: if `epochs` is no such number, or, in `fit`, if the model
            has no sampled head, or one without an exact step
            (`TwoTowerSoftmax`, `placement="host"`).

    Example:

    ```python
    head = tfxclass.layers.SampledSoftmax(1000, num_sampled=100)
    model = keras.Sequential([keras.layers.Dense(16), head])
    model.compile(tfxclass.optimizers.HeadAdam(), loss=head.loss)
    x, y = np.ones([64, 20]), np.arange(64)
    last = tfxclass.callbacks.ExactLast(epochs=1)
    model.fit(x, y, epochs=4, callbacks=[last], verbose=0)
    ```

    References:
        You et al., LVFace: Progressive Cluster Optimization for Large Vision
        Models in Face Recognition, ICCV 2025, whose last stage has all classes.
    """

    def __init__(self, epochs: int) -> None:
        super().__init__()
        self.epochs = check_positive_int("epochs", epochs)
        self._heads: list[Any] = []

    def on_train_begin(self, logs: Logs = None) -> None:
        layers = keras_internals.flat_layers(self.model)
        self._heads = [x for x in layers if hasattr(x, "trains_on_all")]
        # A run that was interrupted left them as they were.
        self._train_on_all(False)
        self._heads = [x for x in self._heads if x.is_sampled]
        names = [x.name for x in self._heads if not x.can_train_on_all]
        if names or not self._heads:
            received = f"{names}, which has none" if names else "no such head"
            raise ValueError(
                "`ExactLast` needs a head that samples its classes and has an "
                "exact step, too, such as SampledSoftmax. Received: "
                f"{received}, in model {self.model.name!r}"
            )

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        if epoch >= self.params["epochs"] - self.epochs:
            self._train_on_all(True)

    def on_train_end(self, logs: Logs = None) -> None:
        self._train_on_all(False)

    def _train_on_all(self, value):
        changed = [x for x in self._heads if x.trains_on_all != value]
        for head in changed:
            head.trains_on_all = value
        if changed:
            self.model.make_train_function(force=True)


class SamplerLog(keras.callbacks.Callback):
    """Adds the measurements of the heads' samplers to the logs of each epoch.

    The logs get these names, if the sampler has them:

    - `overflow_steps`: number of steps whose batch had more distinct labels
      than `num_sampled`, and `overflow_labels`, the most labels of such a one.
    - `recall`: fraction of the ten greatest logits of a few examples that the
      index found in its last check.
    - `fill_rate`: fraction of the places reserved for similar classes that were
      filled in the last step.
    - `k_eff`, `v`, `noise` and `choice` of an `AutoSampler`.
    - `table_hit_rate` of an `LSHSampler`.

    With several heads that have samplers, a name begins with the name of the
    head, such as `"words/recall"`. Put it before `keras.callbacks.TensorBoard`.
    Values within an epoch are in `head.measured`. A sharded head has the means
    over the shards.

    Example:

    ```python
    callbacks = [
        tfxclass.callbacks.SamplerLog(),
        keras.callbacks.CSVLogger("log.csv"),
    ]
    ```
    """

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        if logs is None:
            return
        layers = keras_internals.flat_layers(self.model)
        heads = [x for x in layers if getattr(x, "sampler", None) is not None]
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
            `save_weights_only=True`. Others raise a ValueError.
        **options: as for `ModelCheckpoint`.

    Example:

    ```python
    callback = tfxclass.callbacks.AtomicModelCheckpoint("model.keras")
    ```
    """

    def __init__(self, filepath: Path, **options: Any) -> None:
        only_weights = options.get("save_weights_only")
        wanted = saving.WEIGHTS if only_weights else saving.MODEL
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
