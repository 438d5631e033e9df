"""Samplers: which classes a training step computes."""

from tfxclass.samplers.allocation import AdaptiveAllocation
from tfxclass.samplers.hashing_forest import HashingForestSampler
from tfxclass.samplers.random import FrequencySampler
from tfxclass.samplers.random import LogUniformSampler
from tfxclass.samplers.random import UniformSampler
from tfxclass.samplers.sampler import Sample
from tfxclass.samplers.sampler import Sampler

__all__ = [
    "AdaptiveAllocation",
    "FrequencySampler",
    "HashingForestSampler",
    "LogUniformSampler",
    "Sample",
    "Sampler",
    "UniformSampler",
]
