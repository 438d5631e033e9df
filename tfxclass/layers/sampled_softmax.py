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
    """Softmax that computes `num_sampled` classes in a training step.

    Use it from some ten thousand classes on. A training step costs a product of
    [batch, dim] by [dim, num_sampled] and updates `num_sampled` class vectors,
    whatever `num_classes` is. The sampled classes are shared by the batch. They
    are the labels of the batch, and classes chosen by the sampler. The log
    expected count of each class is subtracted from its logit, so the loss
    estimates the full softmax. With `num_sampled >= num_classes` it is the full
    softmax.

    Args:
        num_classes: int, number of classes.
        num_sampled: int, number of classes in a training step, labels included.
            With a `Sampler` object leave it out, since the sampler has its own.
            Defaults to 1 % of the classes, and at least twice the labels of
            each batch. A batch with more distinct labels computes all of its
            labels and no other classes, and the first such step prints a
            warning.
        sampler: a `tfxclass.samplers.Sampler`, or the name of one with default
            arguments: `"uniform"`, `"log_uniform"` (for classes numbered by
            falling frequency), `"top_k"`, `"pca_hash"`, `"kmeans"`,
            `"hashing_forest"`, `"lsh"`, `"batch"` (the labels of
            the batch, see `BatchSampler`), or `"auto"` (uniform, plus similar
            classes when that helps, see `AutoSampler`). Defaults to `"auto"`.
        loss: `"softmax"`, `"sigmoid"` or `"squared_hinge"`, as in `OutputHead`.
            The binary losses of negatives are divided by their expected counts,
            so their sum and its gradient are unbiased. The estimate of the
            softmax is consistent. Binary losses do not work with a sampler
            whose counts are not corrected (`correct_fill=False`,
            `correction="none"`). `sampler="auto"` always measures the softmax
            of the logits.
        placement: None or `"host"`, as in `SampledHead`.
        **kwargs: arguments of `ClassHead` (`similarity`, `use_bias`, `tied_to`,
            `bias_initializer`) and of `OutputHead` (`loss`, `loss_options`,
            `class_names`, `activation`, `kernel_initializer`, `kernel_dtype`,
            `num_negatives`, `seed`). `placement="host"` keeps class vectors in
            host memory.

    Example:

    ```python
    head = tfxclass.layers.SampledSoftmax(100_000, num_sampled=1024)
    model = keras.Sequential([keras.layers.Dense(32), head])
    model.compile(tfxclass.optimizers.HeadAdam(), loss=head.loss)
    model.fit(np.ones([32, 20]), np.arange(32), verbose=0)
    ```

    References:
        Jean et al., On Using Very Large Target Vocabulary for Neural Machine
        Translation, ACL 2015.
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
