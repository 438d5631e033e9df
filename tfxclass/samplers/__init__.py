"""Samplers: which classes a training step computes."""

from tfxclass.samplers.allocation import AdaptiveAllocation
from tfxclass.samplers.hashing_forest import HashingForestSampler
from tfxclass.samplers.lsh import LSHSampler
from tfxclass.samplers.random import LogUniformSampler
from tfxclass.samplers.random import UniformSampler
from tfxclass.samplers.sampler import Sample
from tfxclass.samplers.sampler import Sampler

__all__ = [
    "AdaptiveAllocation",
    "HashingForestSampler",
    "LSHSampler",
    "LogUniformSampler",
    "Sample",
    "Sampler",
    "UniformSampler",
]
