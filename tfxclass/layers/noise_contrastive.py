"""Noise contrastive estimation."""

import math
from typing import Any

import keras
import tensorflow as tf

from tfxclass.core.targets import Targets
from tfxclass.layers.sampled_softmax import SampledSoftmax
from tfxclass.losses.binary import noise_contrastive_loss
from tfxclass.losses.objectives import SOFTMAX_ALONE
from tfxclass.losses.options import LABEL_OPTIONS
from tfxclass.samplers.sampler import Sample
from tfxclass.samplers.sampler import Sampler
from tfxclass.types import Config


@keras.saving.register_keras_serializable("tfxclass")
class NoiseContrastive(SampledSoftmax):
    """Noise-contrastive estimation (NCE): tells the label from noise classes.

    Use it to reproduce models that were trained with NCE. In most cases
    `SampledSoftmax` is more accurate at the same cost. Each training step
    computes and updates `num_sampled` class vectors.

    The loss is a logistic regression on `s(c) - log Z - log k q(c)`. Here s is
    the logit, Z the normalizer, and k q(c) the expected number of times that
    class c is among the k noise classes. Without ever being normalized, s(c) -
    log Z learns the log odds log p(c) / (1 - p(c)). This is close to log p(c),
    except for the most likely classes.

    The noise of an example is the sampled set without the example's labels. (If
    accidental hits stayed in, labels would be pulled both ways.) The samplers
    of this library sample without replacement and include the labels of the
    whole batch. So k q(c) is the probability that c is in the set: 1 for labels
    of other examples, and exp(log expected count) for sampled classes. For the
    example's own label it is the probability to be sampled if it were not a
    label. A sampler that searches an index does not know this probability, and
    1 is used. With `num_sampled >= num_classes` the loss is the binary
    cross-entropy over all classes.

    Outside of training the head is a softmax. `predict` gives softmax
    probabilities, and the loss of an evaluation is the exact cross-entropy.

    Args:
        num_classes: int, number of classes.
        num_sampled: int, number of classes in a training step, labels included.
            The default is described in `SampledSoftmax`.
        sampler: a sampler as in `SampledSoftmax`. Defaults to `"uniform"`.
        log_normalizer: float, log Z, which is fixed. Defaults to
            log(num_classes), so logits of 0 are the uniform distribution. 0 is
            the value of Mnih & Teh and of `tf.nn.nce_loss`. With 0, an
            untrained model is certain of every class.
        **kwargs: arguments of `ClassHead` (`similarity`, `use_bias`, `tied_to`)
            and of `OutputHead` (`loss_options`, `class_names`, `activation`,
            `kernel_initializer`, `kernel_dtype`, `num_negatives`, `seed`).

    Example:

    ```python
    head = tfxclass.layers.NoiseContrastive(1_000_000, num_sampled=4096)
    model = keras.Sequential([keras.layers.Dense(128), head])
    model.compile(tfxclass.optimizers.HeadAdam(), loss=head.loss)
    ```

    References:
        Gutmann & Hyvarinen, Noise-contrastive estimation, AISTATS 2010.
        Mnih & Teh, A fast and simple algorithm for training neural
        probabilistic language models, ICML 2012.
    """

    loss_kinds = SOFTMAX_ALONE
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
        targets, finish = self.weighted_targets(targets)
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
