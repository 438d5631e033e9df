"""Options of a head's loss, and losses as functions."""

from tfxclass.core.softmax import softmax_cross_entropy
from tfxclass.core.targets import Targets
from tfxclass.core.targets import arcface
from tfxclass.core.targets import as_targets
from tfxclass.core.targets import cosface
from tfxclass.losses.objectives import HeadLoss
from tfxclass.losses.options import LossOptions
from tfxclass.losses.sparsemax import sparsemax
from tfxclass.losses.sparsemax import sparsemax_loss

__all__ = [
    "HeadLoss",
    "LossOptions",
    "Targets",
    "arcface",
    "as_targets",
    "cosface",
    "softmax_cross_entropy",
    "sparsemax",
    "sparsemax_loss",
]
__dir__ = __all__.copy  # For completion.
