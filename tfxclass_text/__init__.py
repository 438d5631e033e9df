"""Text in, names out: a package on top of `tfxclass`, which has heads.

`tfxclass.text` has the same names.
"""

from tfxclass_text.fields import Field
from tfxclass_text.linear_tree import train_linear
from tfxclass_text.neighbors import NeighborVotes
from tfxclass_text.readers import TextFile
from tfxclass_text.sparse_linear import SparseLinear
from tfxclass_text.sparse_rows import SparseRows
from tfxclass_text.tagger import Tagger
from tfxclass_text.tagger_classifier import TaggerClassifier
from tfxclass_text.tagger_model import MixedScores
from tfxclass_text.text_features import TextFeatures

__all__ = [
    "Field",
    "MixedScores",
    "NeighborVotes",
    "SparseLinear",
    "SparseRows",
    "Tagger",
    "TaggerClassifier",
    "TextFeatures",
    "TextFile",
    "train_linear",
]


def __dir__() -> list[str]:
    return __all__
