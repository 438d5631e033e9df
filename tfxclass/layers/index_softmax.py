"""The base of the heads that are a sampled softmax with one kind of index."""

from collections.abc import Mapping
from typing import Any

from tfxclass.checks import check_options
from tfxclass.checks import check_positive_int
from tfxclass.layers.sampled_softmax import SampledSoftmax
from tfxclass.samplers import by_name
from tfxclass.samplers.indexed import IndexedSampler
from tfxclass.samplers.sample_size import check_num_sampled
from tfxclass.types import Config


class IndexSoftmax(SampledSoftmax):
    """Base class of `SampledSoftmax` with a sampler of one class.

    A subclass sets `sampler_class`.

    Args:
        num_classes: int, number of classes.
        num_sampled: int, classes a step, labels included; or None, as in
            `SampledSoftmax`.
        sampler_options: dict, other arguments of the sampler by name, or None.
        seed: int, seed of all that the head draws.
        **kwargs: arguments of `ClassHead` (`similarity`, `use_bias`, `tied_to`,
            `bias_initializer`) and of `OutputHead` (`loss`, `loss_options`,
            `class_names`, `activation`, `kernel_initializer`, `kernel_dtype`,
            `num_negatives`). `placement="host"` keeps class vectors in host
            memory.
    """

    sampler_class: type[IndexedSampler]

    def __init__(
        self,
        num_classes: int,
        num_sampled: int | None = None,
        sampler_options: Mapping[str, Any] | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        num_classes = check_positive_int("num_classes", num_classes)
        options = check_options(
            type(self).__name__,
            "sampler_options",
            self.sampler_class.option_names,
            sampler_options,
            kwargs,
        )
        sampler = self.sampler_class(
            check_num_sampled(num_sampled, num_classes), seed=seed, **options
        )
        super().__init__(num_classes, sampler=sampler, seed=seed, **kwargs)

    def rebuild(self) -> None:
        """Builds the index of the class vectors as they are, now."""
        self.sampler.rebuild(self.kernel)

    def get_config(self) -> Config:
        config = super().get_config()
        del config["sampler"]
        options = by_name.options_of(self.sampler)
        return {**config, "sampler_options": options}
