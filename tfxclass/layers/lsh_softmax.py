"""LSH softmax: negatives from hash tables, looked up by features or labels."""

from typing import Any

import keras

from tfxclass.checks import check_positive_int
from tfxclass.layers.sampled_softmax import SampledSoftmax
from tfxclass.samplers.lsh import LSHSampler
from tfxclass.samplers.sample_size import check_num_sampled
from tfxclass.types import Config

# What the constructor hands to the sampler.
_OWN = (
    "scheme",
    "hash",
    "num_hashes",
    "num_tables",
    "bucket_size",
    "rebuild_interval",
    "negatives",
    "neighbor_fraction",
    "correction",
)


@keras.saving.register_keras_serializable("tfxclass")
class LSHSoftmax(SampledSoftmax):
    """Softmax over labels and the classes that hash tables find for them.

    The negatives are the classes that the features ("LSH Embedding") or the
    labels ("LSH Label") take for near: hard ones, that change as the weights
    do. Sampling costs hash codes and bucket look-ups, whatever `num_classes`
    is; a step's other cost is a product of [batch, dim] by [dim, num_sampled],
    and `num_sampled` rows that move. The tables, refreshed in the background,
    take about 8 num_tables bytes a class, and the rows' copy 4 dim.

    All of it works under plain `fit`: the tables refresh themselves, their
    state is saved with the model, and a resumed run goes on bit for bit.

    Args:
        num_classes: int, number of classes.
        num_sampled: int, classes a step, labels included. By default 1 % of
            the classes and at least twice the labels of each batch; see
            `SampledSoftmax` for batches with more labels.
        scheme, hash, num_hashes, num_tables, bucket_size, rebuild_interval,
            negatives, neighbor_fraction, correction: of the
            `tfxclass.samplers.LSHSampler`, which says what happens when the
            negatives do not fit or do not suffice. The paper's own method is
            `neighbor_fraction=1.0, correction="none"`. For its other options,
            `SampledSoftmax(num_classes, sampler=LSHSampler(...))`.
        seed: int, seed of all that the head draws.
        **kwargs: `ClassHead`'s arguments, as `similarity`, and `placement`.

    Example:

    >>> head = tfxclass.layers.LSHSoftmax(670_091, num_sampled=6_700)
    >>> model = keras.Sequential([encoder, head])
    >>> optimizer = tfxclass.optimizers.LazyAdam(1e-3)
    >>> model.compile(optimizer, loss=head.loss)

    References:
        Daghaghi et al., A Tale of Two Efficient and Informative Negative
        Sampling Distributions, ICML 2021.
    """

    def __init__(
        self,
        num_classes: int,
        num_sampled: int | None = None,
        scheme: str = "embedding",
        hash: str = "simhash",
        num_hashes: int | None = None,
        num_tables: int | None = None,
        bucket_size: int | None = 128,
        rebuild_interval: int | str = "auto",
        negatives: str = "batch",
        neighbor_fraction: float = 0.5,
        correction: str = "fill",
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        num_classes = check_positive_int("num_classes", num_classes)
        for name in kwargs.keys() & set(LSHSampler.option_names):
            raise ValueError(
                f"`{name}` is an argument of the sampler. Use SampledSoftmax("
                f"num_classes, sampler=LSHSampler(num_sampled, {name}=...)). "
                f"Received: {name}={kwargs[name]!r}"
            )
        sampler = LSHSampler(
            check_num_sampled(num_sampled, num_classes),
            scheme=scheme,
            hash=hash,
            num_hashes=num_hashes,
            num_tables=num_tables,
            bucket_size=bucket_size,
            rebuild_interval=rebuild_interval,
            negatives=negatives,
            neighbor_fraction=neighbor_fraction,
            correction=correction,
            seed=seed,
        )
        super().__init__(num_classes, sampler=sampler, seed=seed, **kwargs)

    def rebuild(self) -> None:
        """Builds tables of the class rows as they are, now."""
        self.sampler.rebuild(self.kernel)

    def get_config(self) -> Config:
        return self.with_sampler_options(super().get_config(), _OWN)
