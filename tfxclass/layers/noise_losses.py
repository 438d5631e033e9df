"""Heads that tell labels from noise: NCE, and word2vec's negative sampling."""

import math
from typing import Any

import keras
import tensorflow as tf

from tfxclass.checks import check_number
from tfxclass.core.one_vs_rest import BINARY
from tfxclass.core.one_vs_rest import negatives
from tfxclass.core.one_vs_rest import one_vs_rest_loss
from tfxclass.core.targets import Targets
from tfxclass.core.targets import take_columns
from tfxclass.core.targets import with_margin
from tfxclass.layers.sampled_softmax import SampledSoftmax
from tfxclass.losses.objectives import SOFTMAX_ALONE
from tfxclass.losses.options import LABEL_OPTIONS
from tfxclass.samplers.sampler import Sample
from tfxclass.samplers.sampler import Sampler
from tfxclass.types import Config


@keras.saving.register_keras_serializable("tfxclass")
class NoiseContrastive(SampledSoftmax):
    """Noise-contrastive estimation (NCE): tells the label from noise classes.

    Use it to reproduce models that were trained with NCE. In most cases
    `SampledSoftmax` is more accurate at the same cost.

    The loss is a logistic regression on `s(c) - log Z - log k q(c)`. Here s is
    the logit, Z the normalizer, and k q(c) the expected number of times that
    class c is among the k noise classes. s(c) - log Z learns the log odds
    log p(c) / (1 - p(c)), close to log p(c) for all but the most likely
    classes.

    The noise of an example is the sampled set without the example's labels. It
    is sampled without replacement and includes the labels of the batch. So k
    q(c) is the probability that c is in the set: 1 for labels of other
    examples. For the example's own label it is the probability to be sampled if
    it were not a label, and 1 if the sampler does not know it. With
    `num_sampled >= num_classes` the loss is the binary cross-entropy over all
    classes. Evaluations and answers are as with a softmax.

    Args:
        sampler: as in `SampledSoftmax`. Defaults to `"uniform"`.
        log_normalizer: float, log Z, which is fixed. Defaults to
            log(num_classes), so logits of 0 are the uniform distribution. With
            0, the value of Mnih & Teh and of `tf.nn.nce_loss`, an untrained
            model is certain of every class.
        **kwargs: other arguments of `SampledSoftmax`, without `loss`.

    Example:

    ```python
    head = tfxclass.layers.NoiseContrastive(1_000_000, num_sampled=4096)
    ```

    References:
        Gutmann & Hyvarinen, Noise-contrastive estimation, AISTATS 2010.
        Mnih & Teh, A fast and simple algorithm for training neural
        probabilistic language models, ICML 2012.
    """

    default_sampler = "uniform"
    loss_kinds = SOFTMAX_ALONE
    supported_options = LABEL_OPTIONS

    def __init__(
        self,
        num_classes: int,
        num_sampled: int | None = None,
        sampler: str | Sampler | None = None,
        log_normalizer: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, num_sampled, sampler, **kwargs)
        if log_normalizer is not None:
            name = "log_normalizer"
            check_number(name, log_normalizer, math.isfinite, "finite or None")
        self.log_normalizer = log_normalizer

    def sampled_loss(
        self, logits: tf.Tensor, sample: Sample, targets: Targets
    ) -> tf.Tensor:
        targets, finish = self.objective.weighted_targets(self, targets)
        log_z = self.log_normalizer
        if log_z is None:
            log_z = math.log(self.num_classes)
        noise = logits - (sample.log_expected_count + log_z)
        of_targets = take_columns(logits, sample.positions)
        of_targets = with_margin(of_targets, self.target_margin())[0] - log_z
        if sample.target_log_expected_count is not None:
            of_targets -= sample.target_log_expected_count
        columns = Targets(sample.positions, targets.weights)
        return finish(noise_contrastive_loss(noise, columns, of_targets))

    def get_config(self) -> Config:
        return {**super().get_config(), "log_normalizer": self.log_normalizer}


@keras.saving.register_keras_serializable("tfxclass")
class NegativeSampling(SampledSoftmax):
    """The loss of word2vec and gSASRec: a sigmoid for label and negatives.

    Use it to reproduce these models. In most cases `SampledSoftmax` is more
    accurate at the same cost.

    The loss is `-log sigmoid(s(label)) - sum log sigmoid(-s(c))`, where s are
    logits and the sum is over the sampled classes c that are not labels of the
    example. With several labels, the first term is their mean. Logits are not
    corrected for the sampler's distribution q. They learn log p(c) - log k q(c)
    for k negatives, which ranks as p does only for a uniform sampler.

    With few negatives out of many classes, the plain loss is overconfident.
    `calibration` corrects this (gBCE, the loss of gSASRec). It raises the
    probability of the label to the power 1 - calibration * (1 - alpha), where
    alpha is the fraction of the classes in a training step. At 1, the sigmoid
    of a logit is a probability. Evaluations and answers are as with a softmax,
    whose probabilities are right for a uniform sampler.

    Args:
        sampler: as in `SampledSoftmax`. Defaults to `"uniform"`.
            word2vec's is `tfxclass.samplers.FrequencySampler(..., power=0.75)`.
        calibration: float in [0, 1], t in the gSASRec paper, for a uniform
            sampler. Defaults to 0, the plain loss. The paper recommends 0.75.
        **kwargs: other arguments of `SampledSoftmax`, without `loss`.

    Example:

    ```python
    head = tfxclass.layers.NegativeSampling(1_000_000, num_sampled=4096)
    ```

    References:
        Mikolov et al., Distributed Representations of Words and Phrases and
        their Compositionality, NeurIPS 2013.
        Levy & Goldberg, Neural Word Embedding as Implicit Matrix Factorization,
        NeurIPS 2014 (what the logits learn).
        Petrov & Macdonald, gSASRec: Reducing Overconfidence in Sequential
        Recommendation Trained with Negative Sampling, RecSys 2023 (gBCE).
    """

    default_sampler = "uniform"
    loss_kinds = SOFTMAX_ALONE
    supported_options = LABEL_OPTIONS

    def __init__(
        self,
        num_classes: int,
        num_sampled: int | None = None,
        sampler: str | Sampler | None = None,
        calibration: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, num_sampled, sampler, **kwargs)
        check_number(
            "calibration", calibration, lambda x: 0 <= x <= 1, "in [0, 1]"
        )
        self.calibration = calibration

    def sampled_loss(
        self, logits: tf.Tensor, sample: Sample, targets: Targets
    ) -> tf.Tensor:
        targets, finish = self.objective.weighted_targets(self, targets)
        weights = targets.weights
        if self.calibration:
            # Negatives of a row over all classes but its label.
            count = tf.cast(tf.shape(logits)[1] - 1, tf.float32)
            alpha = count / max(self.num_classes - 1, 1)
            weights *= 1 - self.calibration * (1 - alpha)
        columns = Targets(sample.positions, weights)
        margin = self.target_margin()
        return finish(one_vs_rest_loss(logits, columns, margin=margin))

    def get_config(self) -> Config:
        return {**super().get_config(), "calibration": self.calibration}


def noise_contrastive_loss(
    logits: tf.Tensor, targets: Targets, label_logits: tf.Tensor
) -> tf.Tensor:
    """Logistic losses of labels and noise, float32 `[rows]`.

    Each of several labels counts as target with weight 1 / labels, and as noise
    with the rest, as in `tf.nn.nce_loss`. `targets` are columns of `logits`, of
    the classes as noise. `label_logits` are of the labels, `[rows, p]`.
    """
    is_label = targets.ids >= 0
    # Not a product with the weights: padding may be infinite.
    label_logits = tf.where(is_label, label_logits, 0.0)
    of_labels = tf.nn.softplus(label_logits) - targets.weights * label_logits
    of_labels = tf.where(is_label, of_labels, 0.0)
    of_others = negatives(BINARY["sigmoid"], logits, targets.ids)
    losses = tf.reduce_sum(of_labels, 1) + tf.reduce_sum(of_others, 1)
    return tf.where(targets.is_labelled > 0, losses, 0.0)
