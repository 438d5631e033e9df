"""word2vec's negative sampling."""

import keras
import tensorflow as tf

from tfxclass.core.targets import Targets
from tfxclass.layers.sampled_head import SampledHead
from tfxclass.losses.binary import negative_sampling_loss
from tfxclass.losses.options import LABEL_OPTIONS
from tfxclass.samplers.sampler import Sample


@keras.saving.register_keras_serializable("tfxclass")
class NegativeSampling(SampledHead):
    """word2vec's loss: the label up, the sampled classes down.

    `-log sigmoid(s(label)) - sum log sigmoid(-s(c))` over the classes c of the
    sampler's set that are no labels of the row; with several labels the first
    term is the mean over them. A baseline of `SampledSoftmax`, at the same
    cost. Nothing is corrected for the sampler's law: logits learn log p(c) -
    log k q(c), p times a constant for a uniform sampler, and a mere score for
    others.

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
    """

    supported_options = LABEL_OPTIONS

    def sampled_loss(
        self, logits: tf.Tensor, sample: Sample, targets: Targets
    ) -> tuple[tf.Tensor, tf.Tensor]:
        targets, finish = self.apply_class_weights(targets)
        columns = Targets(sample.positions, targets.weights)
        of_targets = self.target_logits(logits, sample)
        losses = negative_sampling_loss(logits, columns, of_targets)
        return finish(losses), logits
