"""What tfxclass uses of the insides of Keras and TensorFlow: all of it, here.

Private names may go with any release. Each has one function or method in this
folder, under a name of ours; nothing else in the package spells it. `names.py`
lists them, each with a check.
"""

import keras

from tfxclass.keras_internals.graphs import called_graphs
from tfxclass.keras_internals.graphs import collective_ops
from tfxclass.keras_internals.graphs import custom_gradient
from tfxclass.keras_internals.graphs import dtype_of_handle
from tfxclass.keras_internals.graphs import eager_mode
from tfxclass.keras_internals.graphs import is_for_xla
from tfxclass.keras_internals.graphs import is_onednn_on
from tfxclass.keras_internals.graphs import is_recorded
from tfxclass.keras_internals.graphs import with_constants
from tfxclass.keras_internals.layers import arguments_of
from tfxclass.keras_internals.layers import flat_layers
from tfxclass.keras_internals.layers import get_mask
from tfxclass.keras_internals.layers import layers_before
from tfxclass.keras_internals.layers import maker_of
from tfxclass.keras_internals.layers import path_of
from tfxclass.keras_internals.layers import set_mask
from tfxclass.keras_internals.layers import tensors_before
from tfxclass.keras_internals.layers import tf_variable
from tfxclass.keras_internals.layers import untrack
from tfxclass.keras_internals.layers import without_autocast
from tfxclass.keras_internals.names import missing
from tfxclass.keras_internals.names import need
from tfxclass.keras_internals.optimizers import OptimizerHooks
from tfxclass.keras_internals.optimizers import count_step
from tfxclass.keras_internals.optimizers import eager_variables
from tfxclass.keras_internals.optimizers import merge_call
from tfxclass.keras_internals.optimizers import num_applied
from tfxclass.keras_internals.training import is_keras_building
from tfxclass.keras_internals.training import metrics_of

__all__ = [
    "OptimizerHooks",
    "arguments_of",
    "called_graphs",
    "check_backend",
    "collective_ops",
    "count_step",
    "custom_gradient",
    "dtype_of_handle",
    "eager_mode",
    "eager_variables",
    "flat_layers",
    "get_mask",
    "is_for_xla",
    "is_keras_building",
    "is_onednn_on",
    "is_recorded",
    "layers_before",
    "maker_of",
    "merge_call",
    "metrics_of",
    "missing",
    "need",
    "num_applied",
    "path_of",
    "set_mask",
    "tensors_before",
    "tf_variable",
    "untrack",
    "with_constants",
    "without_autocast",
]


def check_backend() -> None:
    """Raises ImportError where Keras computes with another backend."""
    if keras.backend.backend() != "tensorflow":
        raise ImportError(
            "tfxclass needs Keras with the backend TensorFlow. Fix: "
            "KERAS_BACKEND=tensorflow in the environment, before Keras is "
            f"imported. Received: {keras.backend.backend()!r}"
        )


check_backend()
