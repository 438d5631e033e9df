"""Samplers: which classes a training step computes."""

from tfxclass.samplers.random import LogUniformSampler
from tfxclass.samplers.random import UniformSampler
from tfxclass.samplers.sampler import Sample
from tfxclass.samplers.sampler import Sampler

__all__ = ["LogUniformSampler", "Sample", "Sampler", "UniformSampler"]
