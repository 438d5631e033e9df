"""Samplers by short names, as heads take them."""

import keras

from tfxclass.checks import check_positive_int
from tfxclass.growth.change import Change
from tfxclass.samplers.auto import AutoSampler
from tfxclass.samplers.batch import BatchSampler
from tfxclass.samplers.cluster import ClusterSampler
from tfxclass.samplers.hashing_forest import HashingForestSampler
from tfxclass.samplers.random import LogUniformSampler
from tfxclass.samplers.random import UniformSampler
from tfxclass.samplers.row_groups import KMeansSampler
from tfxclass.samplers.row_groups import PCAHashSampler
from tfxclass.samplers.sampler import Sampler
from tfxclass.samplers.top_k import TopKSampler
from tfxclass.types import Config

#: Those that need no more than `num_sampled`.
NAMES = {
    "uniform": UniformSampler,
    "log_uniform": LogUniformSampler,
    "top_k": TopKSampler,
    "pca_hash": PCAHashSampler,
    "kmeans": KMeansSampler,
    "hashing_forest": HashingForestSampler,
    "cluster": ClusterSampler,
    "auto": AutoSampler,
    "batch": BatchSampler,
}


def get(
    sampler: str | Sampler | Config,
    num_sampled: int | None = None,
    seed: int | None = None,
    num_classes: int | None = None,
) -> Sampler:
    """The sampler that an argument of a head means.

    Args:
        sampler: a `Sampler`, its serialised form, or one of `NAMES`.
        num_sampled: int, classes a step; with a name, or the sampler's own.
        seed: int, of a sampler by its name.
        num_classes: int, of which a sampler by its name takes no more.

    Raises:
        ValueError: none of these, or a `num_sampled` that is missing or not
            the sampler's own.
    """
    if isinstance(sampler, dict):
        sampler = keras.saving.deserialize_keras_object(sampler)
    if isinstance(sampler, Sampler):
        if num_sampled not in (None, sampler.num_sampled):
            raise ValueError(
                "`num_sampled` is the sampler's own. Received: "
                f"num_sampled={num_sampled} with a sampler of "
                f"{sampler.num_sampled}."
            )
        return sampler
    if not isinstance(sampler, str) or sampler not in NAMES:
        raise ValueError(
            f"`sampler` must be one of {tuple(NAMES)} or a "
            f"tfxclass.samplers.Sampler. Received: {sampler!r}"
        )
    if num_sampled is None:
        raise ValueError(f'`sampler="{sampler}"` needs `num_sampled`.')
    num_sampled = check_positive_int("num_sampled", num_sampled)
    if num_classes is not None:
        num_sampled = min(num_sampled, num_classes)
    return NAMES[sampler](num_sampled, seed=seed)


def changed(sampler: Sampler, change: Change) -> Sampler:
    """A sampler like this one, for a head after `change`; its index is new."""
    return type(sampler).from_config(sampler.changed_config(change))
