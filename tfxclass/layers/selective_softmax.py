"""Selective softmax: the classes nearest to the batch, by a hashing forest."""

from typing import Any

import keras

from tfxclass.checks import check_positive_int
from tfxclass.layers.sampled_softmax import SampledSoftmax
from tfxclass.samplers.allocation import AdaptiveAllocation
from tfxclass.samplers.hashing_forest import HashingForestSampler
from tfxclass.samplers.sample_size import check_num_sampled
from tfxclass.types import Config

# What the constructor hands to the sampler.
_OWN = (
    "num_trees",
    "leaf_size",
    "num_neighbors",
    "num_candidates",
    "rebuild_interval",
    "neighbor_fraction",
    "correct_fill",
    "allocation",
    "query_share",
)


@keras.saving.register_keras_serializable("tfxclass")
class SelectiveSoftmax(SampledSoftmax):
    """Softmax over the active classes that a hashing forest finds.

    The head for 10^5 classes and more. A step costs a product of [batch, dim]
    by [dim, num_sampled], `num_trees` walks of log2(num_classes / leaf_size)
    products for a sixteenth of the rows (`query_share`; the others have what
    was found for their labels, or came by with like features, before), and
    moves `num_sampled` rows; its share of a forest rebuilt in the background as
    it drifts (`rebuild_interval="auto"`), about a twentieth of the time of
    the steps at most, comes on top. It keeps a
    forest and its rows' directions beside the class matrix: about dim + 80 +
    num_trees (4 + 4 dim / leaf_size) bytes a class, 2 GB at most unless
    `num_trees` is given.

    All of it works under plain `fit`: the index refreshes itself, its state
    is saved with the model, and a resumed run goes on bit for bit.

    Args:
        num_classes: int, number of classes.
        num_sampled: int, classes a step, labels included. By default 1 % of
            the classes and at least twice the labels of each batch; see
            `SampledSoftmax` for batches with more labels.
        num_trees, leaf_size, num_neighbors, num_candidates,
            rebuild_interval, neighbor_fraction, correct_fill, allocation,
            query_share: of the `tfxclass.samplers.HashingForestSampler`. The
            paper's own method is `neighbor_fraction=1.0, correct_fill=False,
            num_candidates=None`; with `allocation=
            tfxclass.samplers.AdaptiveAllocation(...)` it is the paper's HF-A.
        seed: int, seed of all that the head draws.
        **kwargs: `ClassHead`'s arguments, as `similarity`, and `placement`.

    Example:

    >>> head = tfxclass.layers.SelectiveSoftmax(670_091, num_sampled=6_700)
    >>> model = keras.Sequential([encoder, head])
    >>> optimizer = tfxclass.optimizers.LazyAdam(1e-3)
    >>> model.compile(optimizer, loss=head.loss)

    References:
        Zhang et al., Accelerated Training for Massive Classification via
        Dynamic Class Selection, AAAI 2018.
    """

    def __init__(
        self,
        num_classes: int,
        num_sampled: int | None = None,
        num_trees: int | None = None,
        leaf_size: int = 100,
        num_neighbors: int | None = None,
        num_candidates: int | None = 64,
        rebuild_interval: int | str = "auto",
        neighbor_fraction: float = 0.5,
        correct_fill: bool = True,
        allocation: AdaptiveAllocation | None = None,
        query_share: float | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        num_classes = check_positive_int("num_classes", num_classes)
        sampler = HashingForestSampler(
            check_num_sampled(num_sampled, num_classes),
            num_trees=num_trees,
            leaf_size=leaf_size,
            num_neighbors=num_neighbors,
            num_candidates=num_candidates,
            rebuild_interval=rebuild_interval,
            neighbor_fraction=neighbor_fraction,
            correct_fill=correct_fill,
            allocation=allocation,
            query_share=query_share,
            seed=seed,
        )
        super().__init__(num_classes, sampler=sampler, seed=seed, **kwargs)

    def rebuild(self) -> None:
        """Builds a forest of the class rows as they are, now."""
        self.sampler.rebuild(self.kernel)

    def get_config(self) -> Config:
        return self.with_sampler_options(super().get_config(), _OWN)
