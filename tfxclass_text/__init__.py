"""Text in, names out: a package on top of `tfxclass`, which has heads.

`tfxclass.text` has the same names.
"""

# First, before TensorFlow: it turns on oneDNN.
import tfxclass  # noqa: F401
from tfxclass_text.fields import Field
from tfxclass_text.readers import TextFile
from tfxclass_text.tagger import Tagger
from tfxclass_text.tagger_classifier import TaggerClassifier
from tfxclass_text.text_features import TextFeatures

__all__ = ["Field", "Tagger", "TaggerClassifier", "TextFeatures", "TextFile"]
__dir__ = __all__.copy  # For completion.
