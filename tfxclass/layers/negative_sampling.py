"""word2vec's negative sampling, and gBCE."""

import numbers
from typing import Any

import keras
import tensorflow as tf

from tfxclass.core.targets import Targets
from tfxclass.layers.sampled_head import SampledHead
from tfxclass.losses.binary import negative_sampling_loss
from tfxclass.losses.options import LABEL_OPTIONS
from tfxclass.samplers.sampler import Sample
from tfxclass.samplers.sampler import Sampler
from tfxclass.types import Config


@keras.saving.register_keras_serializable("tfxclass")
class NegativeSampling(SampledHead):
    """word2vec's loss: the label up, the sampled classes down.

    `-log sigmoid(s(label)) - sum log sigmoid(-s(c))` over the classes c of the
    sampler's set that are no labels of the row; with several labels the first
    term is the mean over them. A baseline of `SampledSoftmax`, at the same
    cost. Nothing is corrected for the sampler's law: logits learn log p(c) -
    log k q(c), p times a constant for a uniform sampler, and a mere score for
    others.

    With `calibration` it is gBCE, the loss of gSASRec: with few negatives of
    many classes, the plain loss is overconfident. There the probability of the
    label is raised to the power

        beta = 1 - calibration (1 - alpha)

    where alpha is the fraction of the classes that a step computes. At 0 it is
    the plain loss. At 1 a sigmoid of the logits is a probability.

    Training apart, the head is a softmax: `predict` gives softmax
    probabilities, the right ones for a uniform sampler, and the loss of an
    evaluation is the exact cross-entropy, on the scale of the other heads'.

    Args:
        num_classes: int, number of classes.
        num_sampled: int, classes a step, labels included, shared by the batch,
            where word2vec has 5 to 20 a row; by default, and for batches with
            more labels, as in `SampledSoftmax`.
        sampler: as in `SampledSoftmax`, by default `"uniform"`. word2vec's is
            `tfxclass.samplers.FrequencySampler(..., power=0.75)`.
        calibration: float in [0, 1], t of gBCE, for a uniform sampler.
            Defaults to 0; Petrov and Macdonald recommend 0.75.
        **kwargs: `ClassHead`'s arguments.

    Example:

    >>> head = tfxclass.layers.NegativeSampling(1_000_000, num_sampled=4096)
    >>> model = keras.Sequential([encoder, head])
    >>> model.compile(tfxclass.optimizers.HeadAdam(), loss=head.loss)

    References:
        Mikolov et al., Distributed Representations of Words and Phrases and
        their Compositionality, NeurIPS 2013.
        Levy & Goldberg, Neural Word Embedding as Implicit Matrix
        Factorization, NeurIPS 2014 (what the logits learn).
        Petrov & Macdonald, gSASRec: Reducing Overconfidence in Sequential
        Recommendation Trained with Negative Sampling, RecSys 2023 (gBCE).
    """

    supported_options = LABEL_OPTIONS

    def __init__(
        self,
        num_classes: int,
        num_sampled: int | None = None,
        sampler: str | Sampler = "uniform",
        calibration: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, num_sampled, sampler, **kwargs)
        is_number = isinstance(calibration, numbers.Real)
        if not is_number or not 0 <= calibration <= 1:
            raise ValueError(
                "`calibration` must be a number in [0, 1]. Received: "
                f"{calibration!r}"
            )
        self.calibration = calibration

    def sampled_loss(
        self, logits: tf.Tensor, sample: Sample, targets: Targets
    ) -> tuple[tf.Tensor, tf.Tensor]:
        targets, finish = self.apply_class_weights(targets)
        columns = Targets(sample.positions, targets.weights)
        of_targets = self.target_logits(logits, sample)
        power = 1.0
        if self.calibration:
            # Negatives of a row over all classes but its label.
            negatives = tf.cast(tf.shape(logits)[1] - 1, tf.float32)
            alpha = negatives / max(self.num_classes - 1, 1)
            power = 1 - self.calibration * (1 - alpha)
        losses = negative_sampling_loss(logits, columns, of_targets, power)
        return finish(losses), logits

    def get_config(self) -> Config:
        return {**super().get_config(), "calibration": self.calibration}
