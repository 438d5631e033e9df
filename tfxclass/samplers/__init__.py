"""Samplers: which classes a training step computes."""

from tfxclass.samplers.auto import AutoSampler
from tfxclass.samplers.batch import BatchSampler
from tfxclass.samplers.by_name import get
from tfxclass.samplers.forest import HashingForestSampler
from tfxclass.samplers.lsh import LSHSampler
from tfxclass.samplers.lsh_tables import LSHTables
from tfxclass.samplers.random import FrequencySampler
from tfxclass.samplers.random import LogUniformSampler
from tfxclass.samplers.random import UniformSampler
from tfxclass.samplers.row_groups import KMeansSampler
from tfxclass.samplers.row_groups import PCAHashSampler
from tfxclass.samplers.sampler import Sample
from tfxclass.samplers.sampler import Sampler
from tfxclass.samplers.schedule import AdaptiveAllocation
from tfxclass.samplers.top_k import TopKSampler

__all__ = [
    "AdaptiveAllocation",
    "AutoSampler",
    "BatchSampler",
    "FrequencySampler",
    "HashingForestSampler",
    "KMeansSampler",
    "LSHSampler",
    "LSHTables",
    "LogUniformSampler",
    "PCAHashSampler",
    "Sample",
    "Sampler",
    "TopKSampler",
    "UniformSampler",
    "get",
]
__dir__ = __all__.copy  # For completion.
