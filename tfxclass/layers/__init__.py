"""Output layers ("heads") for very many classes."""

from tfxclass.layers.class_head import ClassHead
from tfxclass.layers.full_softmax import FullSoftmax
from tfxclass.layers.sampled_softmax import SampledSoftmax

__all__ = ["ClassHead", "FullSoftmax", "SampledSoftmax"]
