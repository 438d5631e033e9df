"""What tfxclass uses of the insides of Keras and TensorFlow: all of it, here.

Private names may go with any release. Each has one function or method in this
folder, under a name of ours; nothing else in the package spells it. Each has a
test, which `make test-versions` runs with all versions that are allowed.
"""

import warnings

import keras

from tfxclass.keras_internals.graphs import called_graphs as called_graphs
from tfxclass.keras_internals.graphs import collective_ops as collective_ops
from tfxclass.keras_internals.graphs import custom_gradient as custom_gradient
from tfxclass.keras_internals.graphs import dtype_of_handle as dtype_of_handle
from tfxclass.keras_internals.graphs import eager_mode as eager_mode
from tfxclass.keras_internals.graphs import is_for_xla as is_for_xla
from tfxclass.keras_internals.graphs import is_onednn_on as is_onednn_on
from tfxclass.keras_internals.graphs import is_recorded as is_recorded
from tfxclass.keras_internals.graphs import with_constants as with_constants
from tfxclass.keras_internals.layers import arguments_of as arguments_of
from tfxclass.keras_internals.layers import flat_layers as flat_layers
from tfxclass.keras_internals.layers import get_mask as get_mask
from tfxclass.keras_internals.layers import layers_before as layers_before
from tfxclass.keras_internals.layers import maker_of as maker_of
from tfxclass.keras_internals.layers import path_of as path_of
from tfxclass.keras_internals.layers import set_mask as set_mask
from tfxclass.keras_internals.layers import tensors_before as tensors_before
from tfxclass.keras_internals.layers import tf_variable as tf_variable
from tfxclass.keras_internals.layers import untrack as untrack
from tfxclass.keras_internals.layers import without_autocast as without_autocast
from tfxclass.keras_internals.optimizers import OptimizerHooks as OptimizerHooks
from tfxclass.keras_internals.optimizers import count_step as count_step
from tfxclass.keras_internals.optimizers import (
    eager_variables as eager_variables,
)
from tfxclass.keras_internals.optimizers import merge_call as merge_call
from tfxclass.keras_internals.optimizers import num_applied as num_applied
from tfxclass.keras_internals.training import (
    is_keras_building as is_keras_building,
)
from tfxclass.keras_internals.training import metrics_of as metrics_of

#: What the private names were tested with, as pip spells it.
TESTED = "keras>=3.12,<3.17"


def check_version() -> None:
    """Warns where Keras is of another version, whose names may differ."""
    minor = tuple(map(int, keras.__version__.split(".")[:2]))
    if not (3, 12) <= minor < (3, 17):
        warnings.warn(
            "tfxclass uses private names of Keras, and was tested with "
            f"{TESTED}. Fix: pip install '{TESTED}', or install a newer "
            f"tfxclass. Received: keras {keras.__version__}",
            stacklevel=2,
        )


def check_backend() -> None:
    """Raises ImportError where Keras computes with another backend."""
    if keras.backend.backend() != "tensorflow":
        raise ImportError(
            "tfxclass needs Keras with the backend TensorFlow. Fix: "
            "KERAS_BACKEND=tensorflow in the environment, before Keras is "
            f"imported. Received: {keras.backend.backend()!r}"
        )


check_backend()
check_version()
