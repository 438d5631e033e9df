"""Code that the steps of all strategies share."""

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf


class Steps:
    """Base class: a model's metrics, and what happens when a process is lost.

    Args:
        model: built and compiled `keras.Model`.
    """

    #: What TensorFlow raises for a lost process, and what to say of it.
    lost_errors: tuple[type[tf.errors.OpError], ...] = ()
    lost_message = ""

    def __init__(self, model: keras.Model) -> None:
        self.model = model

    def reset(self) -> None:
        """Begins to count anew what `logs` tells."""
        self.model.reset_metrics()

    def logs(self) -> dict[str, Any]:
        """The metrics since `reset`: floats, or lists of them."""
        result = self.model.get_metrics_result()
        return {name: np.asarray(v).tolist() for name, v in result.items()}

    @contextlib.contextmanager
    def explained_failures(self) -> Iterator[None]:
        """A context in which a lost process is a RuntimeError."""
        try:
            yield
        except self.lost_errors as error:
            last_line = error.message.strip().splitlines()[-1]
            raise RuntimeError(
                f"{self.lost_message} Start all processes again: with "
                "`checkpoint`, training goes on from the last state. "
                f"TensorFlow says: {last_line}"
            ) from error
