"""Options of a head's loss, and losses as functions."""

from tfxclass.core.softmax import softmax_cross_entropy
from tfxclass.core.targets import Targets
from tfxclass.core.targets import arcface
from tfxclass.core.targets import as_targets
from tfxclass.core.targets import cosface
from tfxclass.losses.functions import linear_cross_entropy
from tfxclass.losses.functions import negative_sampling_loss
from tfxclass.losses.functions import noise_contrastive_loss
from tfxclass.losses.objectives import HeadLoss
from tfxclass.losses.options import LossOptions
from tfxclass.losses.sparsemax import sparsemax
from tfxclass.losses.sparsemax import sparsemax_loss
from tfxclass.losses.teacher import with_teacher

__all__ = [
    "HeadLoss",
    "LossOptions",
    "Targets",
    "arcface",
    "as_targets",
    "cosface",
    "linear_cross_entropy",
    "negative_sampling_loss",
    "noise_contrastive_loss",
    "softmax_cross_entropy",
    "sparsemax",
    "sparsemax_loss",
    "with_teacher",
]


def __dir__() -> list[str]:
    return __all__
