"""Metrics as Keras' callbacks take them."""

from typing import Any

import keras
import numpy as np


def logs_of(model: keras.Model) -> dict[str, Any]:
    """The metrics of `model` since their reset: floats, or lists of them."""
    result = model.get_metrics_result()
    return {name: np.asarray(v).tolist() for name, v in result.items()}
