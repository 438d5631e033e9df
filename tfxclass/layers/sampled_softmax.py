"""Softmax over the classes that a sampler chooses."""

from typing import Any

import keras
import tensorflow as tf

from tfxclass.core.targets import Targets
from tfxclass.layers.sampled_head import SampledHead
from tfxclass.losses.objectives import ALL_OBJECTIVES
from tfxclass.samplers.sampler import Sample
from tfxclass.samplers.sampler import Sampler


@keras.saving.register_keras_serializable("tfxclass")
class SampledSoftmax(SampledHead):
    """Softmax whose training step computes `num_sampled` classes.

    A step costs a product of [batch, dim] by [dim, num_sampled] and moves
    `num_sampled` rows, whatever `num_classes` is. The classes are shared by
    the batch: its labels, then the sampler's choice; logits are corrected by
    the log expected count. With `num_sampled >= num_classes` the loss is the
    full softmax's.

    Args:
        num_classes: int, number of classes.
        num_sampled: int, classes a step, labels included; not with a
            `Sampler`, which has its own. By default 1 % of the classes and at
            least twice the labels of each batch. A batch with more distinct
            labels computes all of its labels and no other classes; the first
            such step prints a warning.
        sampler: a `tfxclass.samplers.Sampler`, or the name of one with its
            defaults: `"uniform"`, `"log_uniform"` (for classes numbered by
            falling frequency), `"top_k"`, `"pca_hash"`, `"kmeans"`,
            `"hashing_forest"`, `"lsh"`, `"cluster"`, `"batch"` (the batch's
            own labels, `BatchSampler`), or `"auto"` (uniform, plus similar
            classes when that helps, `AutoSampler`), the default.
        loss: `"softmax"`, `"sigmoid"` or `"squared_hinge"`, as in
            `OutputHead`. The binary losses of negatives are divided by their
            expected counts, so the sum and its gradient are unbiased, while
            the softmax's estimate is consistent. Not with a sampler whose
            counts are not corrected (`correct_fill=False`,
            `correction="none"`). `sampler="auto"` always measures the softmax
            of the logits.
        placement: None or `"host"`, as in `SampledHead`.
        **kwargs: `ClassHead`'s arguments.

    Example:

    >>> head = tfxclass.layers.SampledSoftmax(1_000_000, num_sampled=4096)
    >>> model = keras.Sequential([encoder, head])
    >>> optimizer = tfxclass.optimizers.HeadAdam()
    >>> model.compile(optimizer, loss=head.loss)

    References:
        Jean et al., On Using Very Large Target Vocabulary, ACL 2015.
    """

    loss_kinds = ALL_OBJECTIVES

    def __init__(
        self,
        num_classes: int,
        num_sampled: int | None = None,
        sampler: str | Sampler = "auto",
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, num_sampled, sampler, **kwargs)

    def sampled_loss(
        self, logits: tf.Tensor, sample: Sample, targets: Targets
    ) -> tuple[tf.Tensor, tf.Tensor]:
        targets, finish = self.apply_class_weights(targets)
        losses, ranked = self.objective.sampled(
            logits,
            sample,
            targets,
            self.target_margin(),
            self.loss_options,
            self.num_classes,
        )
        return finish(losses), ranked
