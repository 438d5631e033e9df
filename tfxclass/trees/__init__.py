"""Trees with the classes as leaves, for `layers.HierarchicalSoftmax`."""

from tfxclass.trees.class_vectors import class_vectors
from tfxclass.trees.counts import huffman
from tfxclass.trees.hierarchy import hierarchy
from tfxclass.trees.least_depth import balanced
from tfxclass.trees.least_depth import clustered
from tfxclass.trees.tree import Tree

__all__ = [
    "Tree",
    "balanced",
    "class_vectors",
    "clustered",
    "hierarchy",
    "huffman",
]
__dir__ = __all__.copy  # For completion.
