"""Keras optimizers that update only the rows that occur in a batch."""

from tfxclass.optimizers.adagrad import LazyAdagrad
from tfxclass.optimizers.adam import LazyAdam
from tfxclass.optimizers.adam import LazyAdamW
from tfxclass.optimizers.average_replicas import AverageReplicas
from tfxclass.optimizers.head_adam import HeadAdam
from tfxclass.optimizers.local_sgd import LocalSGD
from tfxclass.optimizers.multi_optimizer import MultiOptimizer
from tfxclass.optimizers.sgd import LazySGD
from tfxclass.optimizers.stages import Stage
from tfxclass.optimizers.stages import growing_stages

__all__ = [
    "AverageReplicas",
    "HeadAdam",
    "LazyAdagrad",
    "LazyAdam",
    "LazyAdamW",
    "LazySGD",
    "LocalSGD",
    "MultiOptimizer",
    "Stage",
    "growing_stages",
]


def __dir__() -> list[str]:
    return __all__
