"""Callback that averages replicas before they are looked at."""

import keras

from tfxclass.types import Config


class AverageReplicas(keras.callbacks.Callback):
    """Averages the replicas of a `LocalSGD` model before each evaluation.

    It also averages at the end of each epoch. Put it first in the list of
    callbacks, so that later callbacks save and compare the mean. The
    optimizer's own averages are not shifted by it.

    Example:

    ```python
    callbacks = [
        tfxclass.optimizers.AverageReplicas(),
        keras.callbacks.ModelCheckpoint("model.keras"),
    ]
    ```
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
