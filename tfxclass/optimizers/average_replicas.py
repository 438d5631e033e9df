"""Callback that averages replicas before they are looked at."""

import keras

from tfxclass.types import Config


class AverageReplicas(keras.callbacks.Callback):
    """Averages a model under `LocalSGD` before evaluations and epochs' ends.

    Put it first in the list: callbacks after it see the mean, those that save
    or compare the model at the end of an epoch among them. The intervals of
    the optimizer go on as they would without it.

    Example:

    >>> saving = keras.callbacks.ModelCheckpoint("model.keras")
    >>> model.fit(
    ...     data, callbacks=[tfxclass.optimizers.AverageReplicas(), saving]
    ... )
    """

    def set_model(self, model: keras.Model) -> None:
        super().set_model(model)
        if not hasattr(model.optimizer, "average"):
            raise ValueError(
                "`AverageReplicas` needs a model compiled with `LocalSGD`. "
                f"Received: {model.optimizer}"
            )

    def on_test_begin(self, logs: Config | None = None) -> None:
        self.model.optimizer.average()

    def on_epoch_end(self, epoch: int, logs: Config | None = None) -> None:
        self.model.optimizer.average()
