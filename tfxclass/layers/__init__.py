"""Output layers ("heads") for very many classes, and one for inputs."""

from tfxclass.layers.class_head import ClassHead
from tfxclass.layers.full_softmax import FullSoftmax
from tfxclass.layers.output_head import OutputHead
from tfxclass.layers.sampled_head import SampledHead
from tfxclass.layers.sampled_softmax import SampledSoftmax
from tfxclass.layers.selective_softmax import SelectiveSoftmax
from tfxclass.layers.sparse_dense import SparseDense

__all__ = [
    "ClassHead",
    "FullSoftmax",
    "OutputHead",
    "SampledHead",
    "SampledSoftmax",
    "SelectiveSoftmax",
    "SparseDense",
]
