"""Selective softmax: the classes nearest to the batch, by a hashing forest."""

from collections.abc import Mapping
from typing import Any

import keras

from tfxclass.checks import check_positive_int
from tfxclass.layers import moved_arguments
from tfxclass.layers.sampled_softmax import SampledSoftmax
from tfxclass.samplers import by_name
from tfxclass.samplers import renamed_arguments
from tfxclass.samplers.hashing_forest import HashingForestSampler
from tfxclass.samplers.sample_size import check_num_sampled
from tfxclass.types import Config


@keras.saving.register_keras_serializable("tfxclass")
class SelectiveSoftmax(SampledSoftmax):
    """Softmax over the active classes that a hashing forest finds.

    The head for 10^5 classes and more: `SampledSoftmax` with a
    `tfxclass.samplers.HashingForestSampler`. A step costs a product of
    [batch, dim] by [dim, num_sampled] and moves `num_sampled` rows. For a
    sixteenth of the rows it also costs `num_trees` walks of
    log2(num_classes / leaf_size) products; the other rows take their neighbors
    from a cache. A drifted forest is rebuilt in the background, which takes
    about a twentieth of the time of the steps at most. Besides the class
    matrix there is a forest and a rounded copy of the class vectors: about
    dim + 80 + num_trees (4 + 4 dim / leaf_size) bytes a class, 2 GB at most
    unless `num_trees` is given.

    All of it works under plain `fit`: the index refreshes itself, its state
    is saved with the model, and a resumed run goes on bit for bit.

    Args:
        num_classes: int, number of classes.
        num_sampled: int, classes a step, labels included. By default 1 % of
            the classes and at least twice the labels of each batch; see
            `SampledSoftmax` for batches with more labels.
        sampler_options: dict, other arguments of the
            `tfxclass.samplers.HashingForestSampler` by name, or None. The
            paper's own method is `{"neighbor_fraction": 1.0, "correct_fill":
            False, "num_candidates": None}`; with `"allocation":
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
        sampler_options: Mapping[str, Any] | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        num_classes = check_positive_int("num_classes", num_classes)
        renamed = HashingForestSampler.renamed
        arguments = renamed_arguments.translated(renamed, kwargs)
        options = moved_arguments.take_with_warning(
            "SelectiveSoftmax",
            "sampler_options",
            HashingForestSampler.option_names,
            renamed_arguments.translated(renamed, sampler_options),
            arguments,
        )
        sampler = HashingForestSampler(
            check_num_sampled(num_sampled, num_classes), seed=seed, **options
        )
        super().__init__(num_classes, sampler=sampler, seed=seed, **arguments)

    def rebuild(self) -> None:
        """Builds a forest of the class rows as they are, now."""
        self.sampler.rebuild(self.kernel)

    @classmethod
    def from_config(cls, config: Config) -> "SelectiveSoftmax":
        renamed = HashingForestSampler.renamed
        config = renamed_arguments.translated(renamed, config)
        options = config.pop("sampler_options", None)
        config["sampler_options"] = moved_arguments.take(
            HashingForestSampler.option_names,
            renamed_arguments.translated(renamed, options),
            config,
        )
        return super().from_config(config)

    def get_config(self) -> Config:
        config = super().get_config()
        del config["sampler"]
        options = by_name.options_of(self.sampler)
        return {**config, "sampler_options": options}
