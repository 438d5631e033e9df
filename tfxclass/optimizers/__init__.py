"""Keras optimizers that update only the rows that occur in a batch."""

from tfxclass.optimizers.head_adam import HeadAdam
from tfxclass.optimizers.lazy import LazyAdagrad
from tfxclass.optimizers.lazy import LazyAdam
from tfxclass.optimizers.lazy import LazyAdamW
from tfxclass.optimizers.lazy import LazySGD
from tfxclass.optimizers.local_sgd import AverageReplicas
from tfxclass.optimizers.local_sgd import LocalSGD
from tfxclass.optimizers.multi_optimizer import MultiOptimizer
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
__dir__ = __all__.copy  # For completion.
