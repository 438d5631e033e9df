"""Trees whose leaves are the classes, for `layers.HierarchicalSoftmax`."""

from tfxclass.trees.balanced import balanced
from tfxclass.trees.clustered import clustered
from tfxclass.trees.hierarchy import hierarchy
from tfxclass.trees.huffman import huffman
from tfxclass.trees.tree import Tree

__all__ = ["Tree", "balanced", "clustered", "hierarchy", "huffman"]
