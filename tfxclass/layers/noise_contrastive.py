"""Noise contrastive estimation."""

import math
from typing import Any

import keras
import tensorflow as tf

from tfxclass.core.targets import Targets
from tfxclass.layers.sampled_head import SampledHead
from tfxclass.losses.binary import noise_contrastive_loss
from tfxclass.losses.options import LABEL_OPTIONS
from tfxclass.samplers.sampler import Sample
from tfxclass.samplers.sampler import Sampler
from tfxclass.types import Config


@keras.saving.register_keras_serializable("tfxclass")
class NoiseContrastive(SampledHead):
    """Tells the label of a row from classes of noise: NCE.

    A baseline of `SampledSoftmax`, at the same cost: a step computes and
    moves `num_sampled` rows. The loss is a logistic regression on `s(c) - log
    Z - log k q(c)`, where s is the logit and k q(c) the expected count of
    class c among the k classes of noise: without ever being normalised, s(c) -
    log Z learns to be the log odds log p(c) / (1 - p(c)), which is log p(c)
    for all but the likeliest classes.

    The noise of a row is the sampler's set without the row's labels, which
    are no noise where they are drawn (accidental hits; with them in, NCE
    would learn log p(c) itself, and labels would pull both ways). A
    sampler of this library draws without replacement and puts the labels of
    the whole batch in, so k q(c) is the probability that c is in the set,
    given the labels of the other rows: 1 for those, for a class that was
    drawn the exp of the sampler's log expected count, and for the row's own
    label that of the same draw, were it no label. A sampler that searches an
    index does not know the last; it counts as 1, as if a label were always
    found. With `num_sampled >= num_classes` the loss is the binary
    cross-entropy over all classes.

    Training apart, the head is a softmax: `predict` gives softmax
    probabilities, and the loss of an evaluation is the exact cross-entropy.

    Args:
        num_classes: int, number of classes.
        num_sampled: int, classes a step, labels included; by default, and for
            batches with more labels, as in `SampledSoftmax`.
        sampler: as in `SampledSoftmax`, by default `"uniform"`.
        log_normalizer: float, log Z, fixed. By default log(num_classes), with
            which logits of 0 are the uniform distribution; 0 is Mnih & Teh's
            and `tf.nn.nce_loss`'s, where an untrained model takes each class
            for certain.
        **kwargs: `ClassHead`'s arguments.

    Example:

    >>> head = tfxclass.layers.NoiseContrastive(1_000_000, num_sampled=4096)
    >>> model = keras.Sequential([encoder, head])
    >>> model.compile(tfxclass.optimizers.HeadAdam(), loss=head.loss)

    References:
        Gutmann & Hyvarinen, Noise-contrastive estimation, AISTATS 2010.
        Mnih & Teh, A fast and simple algorithm for training neural
        probabilistic language models, ICML 2012.
    """

    supported_options = LABEL_OPTIONS

    def __init__(
        self,
        num_classes: int,
        num_sampled: int | None = None,
        sampler: str | Sampler = "uniform",
        log_normalizer: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, num_sampled, sampler, **kwargs)
        if log_normalizer is not None and not math.isfinite(log_normalizer):
            raise ValueError(
                "`log_normalizer` must be finite, or None for "
                f"log(num_classes). Received: {log_normalizer}"
            )
        self.log_normalizer = log_normalizer

    def sampled_loss(
        self, logits: tf.Tensor, sample: Sample, targets: Targets
    ) -> tuple[tf.Tensor, tf.Tensor]:
        targets, finish = self.apply_class_weights(targets)
        log_z = self.log_normalizer
        if log_z is None:
            log_z = math.log(self.num_classes)
        noise = logits - (sample.log_expected_count + log_z)
        of_targets = self.target_logits(logits, sample) - log_z
        if sample.target_log_expected_count is not None:
            of_targets -= sample.target_log_expected_count
        columns = Targets(sample.positions, targets.weights)
        losses = noise_contrastive_loss(noise, columns, of_targets)
        return finish(losses), logits

    def get_config(self) -> Config:
        return {**super().get_config(), "log_normalizer": self.log_normalizer}
