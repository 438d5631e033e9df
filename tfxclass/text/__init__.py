"""Text in, names out."""

from tfxclass.text.fields import Field
from tfxclass.text.kernel_scores import KernelScores
from tfxclass.text.linear_tree import train_linear
from tfxclass.text.mixed_scores import MixedScores
from tfxclass.text.neighbors import NeighborVotes
from tfxclass.text.readers import TextFile
from tfxclass.text.sparse_linear import SparseLinear
from tfxclass.text.sparse_rows import SparseRows
from tfxclass.text.tagger import Tagger
from tfxclass.text.tagger_classifier import TaggerClassifier
from tfxclass.text.text_features import TextFeatures

__all__ = [
    "Field",
    "KernelScores",
    "MixedScores",
    "NeighborVotes",
    "SparseLinear",
    "SparseRows",
    "Tagger",
    "TaggerClassifier",
    "TextFile",
    "TextFeatures",
    "train_linear",
]


def __dir__() -> list[str]:
    return __all__
