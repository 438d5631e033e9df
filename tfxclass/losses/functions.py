"""Losses as functions: NCE, negative sampling, and cross-entropy in blocks."""

import tensorflow as tf

from tfxclass.core import one_vs_rest
from tfxclass.core.targets import Targets
from tfxclass.core.targets import take_columns
from tfxclass.rows import loss
from tfxclass.rows.class_matrix import ClassRows
from tfxclass.types import Margin
from tfxclass.types import Scalar


def noise_contrastive_loss(
    logits: tf.Tensor, targets: Targets, target_logits: tf.Tensor | None = None
) -> tf.Tensor:
    """Noise-contrastive estimation: tells labels from noise classes.

    The loss is `-log sigmoid(s_label) - sum log sigmoid(-s_noise)`. The logits
    `s` have the log of the expected count of their class in the noise
    subtracted. A label that is sampled for its own example is not noise. With
    several labels the loss is the mean over them. The other labels then count
    as targets with weight 1 / labels, and as noise with the rest, as in
    `tf.nn.nce_loss`.

    Args:
        logits: float32 `[batch, n]`, of the classes as noise.
        targets: `Targets` whose ids are columns of `logits`.
        target_logits: float32 `[batch, p]`, of the labels as targets. Defaults
            to their columns of `logits`.

    Returns:
        float32 `[batch]`, 0 for examples without labels.

    References:
        Gutmann & Hyvarinen, Noise-contrastive estimation, AISTATS 2010.
        Mnih & Teh, A fast and simple algorithm for training neural
        probabilistic language models, ICML 2012.
    """
    target_logits = _target_logits(logits, targets, target_logits)
    of_targets = tf.nn.softplus(target_logits) - targets.weights * target_logits
    return _loss(logits, targets, of_targets)


def negative_sampling_loss(
    logits: tf.Tensor,
    targets: Targets,
    target_logits: tf.Tensor | None = None,
    label_power: Scalar = 1.0,
) -> tf.Tensor:
    """The loss of word2vec, with a sigmoid for label and negatives.

    The loss is `-log sigmoid(s_label) - sum log sigmoid(-s_negative)`.
    Negatives are all columns except the labels of the example. With several
    labels, the first term is their mean.

    Args:
        logits: float32 `[batch, n]`.
        targets: `Targets` whose ids are columns of `logits`.
        target_logits: float32 `[batch, p]`, of the labels. Defaults to their
            columns of `logits`.
        label_power: float or float32 scalar, beta of gBCE, a factor of the
            labels' terms.

    Returns:
        float32 `[batch]`, 0 for examples without labels.

    References:
        Mikolov et al., Distributed Representations of Words and Phrases and
        their Compositionality, NeurIPS 2013.
    """
    target_logits = _target_logits(logits, targets, target_logits)
    return _loss(
        logits,
        targets,
        label_power * targets.weights * tf.nn.softplus(-target_logits),
    )


def _target_logits(logits, targets, given):
    if given is None:
        given = take_columns(logits, targets.ids)
    # Not a product with the weights: padding may be infinite.
    return tf.where(targets.ids >= 0, given, 0.0)


def _loss(logits, targets, of_targets):
    of_targets = tf.where(targets.ids >= 0, of_targets, 0.0)
    of_others = one_vs_rest.negatives(
        one_vs_rest.BINARY["sigmoid"], logits, targets.ids
    )
    losses = tf.reduce_sum(of_targets, 1) + tf.reduce_sum(of_others, 1)
    return tf.where(targets.is_labelled > 0, losses, 0.0)


def linear_cross_entropy(
    queries: tf.Tensor,
    kernel: tf.Tensor,
    targets: Targets,
    bias: tf.Tensor | None = None,
    normalize: bool = False,
    margin: Margin | None = None,
) -> tf.Tensor:
    """Cross-entropy over all classes in O(batch x block) memory.

    Args:
        queries: float32 `[batch, dim]`.
        kernel: float32 tensor `[num_classes, dim]`.
        targets: `Targets`.
        bias: float32 `[num_classes]` or None.
        normalize: bool, whether rows of `kernel` are normalized (cosine).
        margin: function of the target logits, or None.

    Returns:
        float32 `[batch]`, 0 for examples without labels. It has first-order
        gradients only.
    """
    rows = ClassRows(kernel, bias, normalize)
    return loss.cross_entropy([(queries, rows)], targets, margin=margin)
