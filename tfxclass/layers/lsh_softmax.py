"""LSH softmax: negatives from hash tables, looked up by features or labels."""

from collections.abc import Mapping
from typing import Any

import keras

from tfxclass.checks import check_positive_int
from tfxclass.layers import moved_arguments
from tfxclass.layers.sampled_softmax import SampledSoftmax
from tfxclass.samplers import by_name
from tfxclass.samplers import renamed_arguments
from tfxclass.samplers.lsh import LSHSampler
from tfxclass.samplers.sample_size import check_num_sampled
from tfxclass.types import Config


@keras.saving.register_keras_serializable("tfxclass")
class LSHSoftmax(SampledSoftmax):
    """Softmax over labels and the classes that hash tables find for them.

    `SampledSoftmax` with a `tfxclass.samplers.LSHSampler`. The negatives are
    the classes whose hash codes are near those of the features ("LSH
    Embedding") or of the labels ("LSH Label"): hard negatives, which change as
    the weights do. Sampling costs hash codes and bucket look-ups, whatever
    `num_classes` is. The rest of a step is a product of [batch, dim] by
    [dim, num_sampled], and `num_sampled` rows that move. The tables, refreshed
    in the background, take about 8 num_tables bytes a class, and a copy of the
    class vectors 4 dim.

    All of it works under plain `fit`: the tables refresh themselves, their
    state is saved with the model, and a resumed run goes on bit for bit.

    Args:
        num_classes: int, number of classes.
        num_sampled: int, classes a step, labels included. By default 1 % of
            the classes and at least twice the labels of each batch; see
            `SampledSoftmax` for batches with more labels.
        sampler_options: dict, other arguments of the
            `tfxclass.samplers.LSHSampler` by name, or None. The paper's own
            method is `{"neighbor_fraction": 1.0, "correction": "none"}`, with
            `"scheme": "label"` to look labels up instead of features.
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
        sampler_options: Mapping[str, Any] | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        num_classes = check_positive_int("num_classes", num_classes)
        renamed = LSHSampler.renamed
        arguments = renamed_arguments.translated(renamed, kwargs)
        options = moved_arguments.take_with_warning(
            "LSHSoftmax",
            "sampler_options",
            LSHSampler.option_names,
            renamed_arguments.translated(renamed, sampler_options),
            arguments,
        )
        sampler = LSHSampler(
            check_num_sampled(num_sampled, num_classes), seed=seed, **options
        )
        super().__init__(num_classes, sampler=sampler, seed=seed, **arguments)

    def rebuild(self) -> None:
        """Builds tables of the class rows as they are, now."""
        self.sampler.rebuild(self.kernel)

    @classmethod
    def from_config(cls, config: Config) -> "LSHSoftmax":
        renamed = LSHSampler.renamed
        config = renamed_arguments.translated(renamed, config)
        options = config.pop("sampler_options", None)
        config["sampler_options"] = moved_arguments.take(
            LSHSampler.option_names,
            renamed_arguments.translated(renamed, options),
            config,
        )
        return super().from_config(config)

    def get_config(self) -> Config:
        config = super().get_config()
        del config["sampler"]
        options = by_name.options_of(self.sampler)
        return {**config, "sampler_options": options}
