"""Samplers by short names, as heads take them."""

import keras

from tfxclass.samplers.auto import AutoSampler
from tfxclass.samplers.batch import BatchSampler
from tfxclass.samplers.forest import HashingForestSampler
from tfxclass.samplers.lsh import LSHSampler
from tfxclass.samplers.random import LogUniformSampler
from tfxclass.samplers.random import UniformSampler
from tfxclass.samplers.row_groups import KMeansSampler
from tfxclass.samplers.row_groups import PCAHashSampler
from tfxclass.samplers.sampler import Sampler
from tfxclass.samplers.top_k import TopKSampler
from tfxclass.types import Config

#: Those that need no more than `num_sampled`.
NAMES: dict[str, type[Sampler]] = {
    "uniform": UniformSampler,
    "log_uniform": LogUniformSampler,
    "top_k": TopKSampler,
    "pca_hash": PCAHashSampler,
    "kmeans": KMeansSampler,
    "hashing_forest": HashingForestSampler,
    "lsh": LSHSampler,
    "auto": AutoSampler,
    "batch": BatchSampler,
}


def get(
    sampler: str | Sampler | Config,
    num_sampled: int | None = None,
    seed: int | None = None,
    num_classes: int | None = None,
) -> Sampler:
    """Returns the sampler for an argument of a head.

    Args:
        sampler: a `Sampler`, its serialized form, or one of `NAMES`.
        num_sampled: as in `Sampler`, or the sampler's own.
        seed: int, for a sampler given by name.
        num_classes: int, upper limit of `num_sampled`.

    Raises:
        ValueError: if `sampler` is none of these, or `num_sampled` is not a
            size or not the sampler's own.
    """
    if isinstance(sampler, dict):
        sampler = keras.saving.deserialize_keras_object(sampler)
    if isinstance(sampler, str) and sampler in NAMES:
        sampler = NAMES[sampler](num_sampled, seed=seed)
    elif not isinstance(sampler, Sampler):
        raise ValueError(
            f"`sampler` must be one of {tuple(NAMES)} or a "
            f"tfxclass.samplers.Sampler. Received: {sampler!r}"
        )
    elif num_sampled not in (None, sampler.num_sampled):
        raise ValueError(
            "`num_sampled` is the sampler's own. Received: "
            f"num_sampled={num_sampled} with a sampler of "
            f"{sampler.num_sampled}."
        )
    if num_classes is not None:
        sampler.resolve_size(num_classes)
    return sampler


def check_kind(
    sampler: Sampler, kind: type[Sampler], head: keras.layers.Layer
) -> None:
    """Raises ValueError unless `sampler` is of the kind of a head."""
    if not isinstance(sampler, kind):
        raise ValueError(
            f"`sampler` of {type(head).__name__} must be of the class "
            f"{kind.__name__}; SampledSoftmax takes any. Received: a "
            f"{type(sampler).__name__}"
        )
