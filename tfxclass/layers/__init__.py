"""Output layers ("heads") for very many classes, and `SparseDense`."""

from tfxclass.layers.adaptive_softmax import AdaptiveSoftmax
from tfxclass.layers.block_heads import AdaptiveProjectedSoftmax
from tfxclass.layers.block_heads import BlockHead
from tfxclass.layers.block_heads import DifferentiatedSoftmax
from tfxclass.layers.class_head import ClassHead
from tfxclass.layers.class_head import FullSoftmax
from tfxclass.layers.class_tower import ClassTower
from tfxclass.layers.cosine import Cosine
from tfxclass.layers.dropmax import DropMax
from tfxclass.layers.hierarchical_softmax import HierarchicalSoftmax
from tfxclass.layers.index_heads import LSHSoftmax
from tfxclass.layers.index_heads import SelectiveSoftmax
from tfxclass.layers.noise_losses import NegativeSampling
from tfxclass.layers.noise_losses import NoiseContrastive
from tfxclass.layers.output_head import OutputHead
from tfxclass.layers.projected_softmax import ProjectedSoftmax
from tfxclass.layers.sampled_softmax import SampledSoftmax
from tfxclass.layers.sharded_softmax import ShardedSoftmax
from tfxclass.layers.sparse_dense import SparseDense
from tfxclass.layers.sparsemax import Sparsemax
from tfxclass.layers.two_tower_softmax import TwoTowerSoftmax
from tfxclass.trees.counts import split_by_frequency

__all__ = [
    "AdaptiveProjectedSoftmax",
    "AdaptiveSoftmax",
    "BlockHead",
    "ClassHead",
    "ClassTower",
    "Cosine",
    "DifferentiatedSoftmax",
    "DropMax",
    "FullSoftmax",
    "HierarchicalSoftmax",
    "LSHSoftmax",
    "NegativeSampling",
    "NoiseContrastive",
    "OutputHead",
    "ProjectedSoftmax",
    "SampledSoftmax",
    "SelectiveSoftmax",
    "ShardedSoftmax",
    "SparseDense",
    "Sparsemax",
    "TwoTowerSoftmax",
    "split_by_frequency",
]
__dir__ = __all__.copy  # For completion.
