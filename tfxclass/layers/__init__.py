"""Output layers ("heads") for very many classes."""

from tfxclass.layers.class_head import ClassHead
from tfxclass.layers.full_softmax import FullSoftmax
from tfxclass.layers.lsh_softmax import LSHSoftmax
from tfxclass.layers.output_head import OutputHead
from tfxclass.layers.sampled_head import SampledHead
from tfxclass.layers.sampled_softmax import SampledSoftmax
from tfxclass.layers.selective_softmax import SelectiveSoftmax

__all__ = [
    "ClassHead",
    "FullSoftmax",
    "LSHSoftmax",
    "OutputHead",
    "SampledHead",
    "SampledSoftmax",
    "SelectiveSoftmax",
]
