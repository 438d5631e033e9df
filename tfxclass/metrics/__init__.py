"""Metrics that never compute the [batch, num_classes] output.

They read the forward pass behind `y_pred`: in training the classes of the
step, and in evaluation all classes, in blocks.
"""

from tfxclass.metrics.f1 import F1Score
from tfxclass.metrics.head_metric import HeadMetric
from tfxclass.metrics.propensity import PropensityScoredPrecisionAtK
from tfxclass.metrics.propensity import propensities
from tfxclass.metrics.ranking import CumulativeProbability
from tfxclass.metrics.ranking import MeanReciprocalRank
from tfxclass.metrics.ranking import NDCGAtK
from tfxclass.metrics.ranking import NormalizedCumulativeGradient
from tfxclass.metrics.ranking import PrecisionAtK
from tfxclass.metrics.ranking import RecallAtK
from tfxclass.metrics.ranking import RPrecisionAtK
from tfxclass.metrics.ranking import TopKAccuracy
from tfxclass.metrics.tagging import f1_scores as f1_scores
from tfxclass.metrics.tagging import ranking_scores as ranking_scores
from tfxclass.metrics.verification import hit_rate
from tfxclass.metrics.verification import true_positive_rate
from tfxclass.metrics.verification import verification_accuracy

__all__ = [
    "CumulativeProbability",
    "F1Score",
    "HeadMetric",
    "MeanReciprocalRank",
    "NDCGAtK",
    "NormalizedCumulativeGradient",
    "PrecisionAtK",
    "PropensityScoredPrecisionAtK",
    "RPrecisionAtK",
    "RecallAtK",
    "TopKAccuracy",
    "hit_rate",
    "propensities",
    "true_positive_rate",
    "verification_accuracy",
]
__dir__ = __all__.copy  # For completion.
