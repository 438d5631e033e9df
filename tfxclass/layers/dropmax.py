"""DropMax: softmax over classes that are dropped with learned probabilities."""

import keras
import tensorflow as tf

from tfxclass.checks import check_choice
from tfxclass.checks import check_positive_int
from tfxclass.layers.retained_head import RetainedHead
from tfxclass.losses import dropmax
from tfxclass.losses.targets import Targets
from tfxclass.saved_random import SavedRandom

# Matrices [batch, classes] that a step holds (measured): once, for each mask.
_MATRICES = {
    "adaptive": (11, 7),
    "posterior": (25, 7),
    "random": (1, 4),
    "attention": (7, 0),
}
_MODES = tuple(_MATRICES)


@keras.saving.register_keras_serializable("tfxclass")
class DropMax(SavedRandom, RetainedHead):
    """Softmax that drops each class but the label with its own probability.

    A regulariser for some thousand classes and few rows: a second class
    matrix gives each class a probability rho of being retained, for each row
    of features; training draws masks of classes by it, so that a row is told
    from the classes it is confused with rather than from all. A step costs
    three products of [batch, dim] by [dim, num_classes] for each class matrix
    (two; three for "posterior"; one for "random"), holds [batch, num_classes]
    masks for each of `num_samples`, and moves every row. With a `sampler` all
    of it is over `num_sampled` classes, at a cost that does not depend on
    `num_classes`: the sum of exponentials and the regularisers are then
    unbiased estimates of those over all.

    The modes, where z is the mask of a class, 1 for labels:

    * `"adaptive"`: z is drawn by rho (concrete relaxation). The loss is
      cross-entropy + `kl_weight` (-log rho of the label) - `entropy_weight`
      (entropy of the other classes' rho): equation 15 of the first version.
    * `"posterior"`: z is drawn by q, whose logit is that of rho (taken for
      constant) plus one of its own, r. The loss is cross-entropy + `kl_weight`
      KL(q || rho) + `auxiliary_weight` (binary cross-entropy of sigmoid(r)
      with the labels) - `entropy_weight` (entropy of rho): NeurIPS 2018.
    * `"random"`: rho is the number `retain_probability`.
    * `"attention"`: z is rho itself, for labels too; nothing is drawn.

    The regularisers are sums over classes, so they grow with `num_classes`
    while cross-entropy does not: tune their weights. With too little weight
    on its KL divergence, q drops all but the label and nothing is learned; 1,
    1 and, for entropy, 3 did best on 1,000 images of ten digits.

    Prediction is deterministic: with rho in place of z (equation 18), or with
    `predict_samples` the mean softmax over that many masks (equation 17),
    whose draws are the same for all rows and calls and which holds
    [batch, num_classes] numbers; `predict_samples` may be set on a trained
    head. `tfxclass.retain_probabilities(model)` gives rho beside the output.

    Args:
        num_classes: int, number of classes.
        mode: `"adaptive"`, `"posterior"`, `"random"` or `"attention"`.
        num_sampled: int, classes a step; only with a sampler's name.
        sampler: None for all classes, or as in `SampledSoftmax`.
        num_samples: int, masks a step.
        temperature: float > 0, of the concrete relaxation.
        kl_weight, auxiliary_weight, entropy_weight: floats >= 0.
        **kwargs: `retain_probability`, a float in (0, 1], for `"random"`
            alone; `predict_samples`, int, None for equation 18; and
            `ClassHead`'s arguments.

    Example:

    >>> head = tfxclass.layers.DropMax(1_000, mode="posterior")
    >>> model = keras.Sequential([encoder, head])
    >>> model.compile("adam", loss=head.loss)

    References:
        Lee et al., DropMax: Adaptive Variational Softmax, NeurIPS 2018, and
        its first version, DropMax: Adaptive Stochastic Softmax.
    """

    def __init__(
        self,
        num_classes,
        mode="adaptive",
        num_sampled=None,
        sampler=None,
        num_samples=1,
        temperature=0.1,
        kl_weight=1.0,
        auxiliary_weight=1.0,
        entropy_weight=1.0,
        **kwargs,
    ):
        super().__init__(
            num_classes, num_sampled=num_sampled, sampler=sampler, **kwargs
        )
        check_choice("mode", mode, _MODES)
        check_positive_int("num_samples", num_samples)
        if not 0 < temperature < float("inf"):
            raise ValueError(
                f"`temperature` must be > 0. Received: {temperature}"
            )
        self.mode = mode
        self.num_samples = int(num_samples)
        self.temperature = temperature
        self.kl_weight = kl_weight
        self.auxiliary_weight = auxiliary_weight
        self.entropy_weight = entropy_weight
        self._check()
        self.make_random(self.seed)

    def _check(self):
        for name in ("kl_weight", "auxiliary_weight", "entropy_weight"):
            weight = getattr(self, name)
            if not 0 <= weight < float("inf"):
                raise ValueError(f"`{name}` must be >= 0. Received: {weight}")
        if (self.mode == "random") == (self.retain_probability is None):
            raise ValueError(
                '`retain_probability` is for mode="random", which needs it. '
                f"Received: retain_probability={self.retain_probability} with "
                f"mode={self.mode!r}."
            )
        if self.mode == "attention" and self.predict_samples is not None:
            raise ValueError(
                '`predict_samples` must be None with mode="attention", whose '
                f"masks are not drawn. Received: {self.predict_samples}"
            )

    def build(self, input_shape):
        super().build(input_shape)
        self.posterior = None
        if self.mode == "posterior":
            self.posterior = self.add_affine("posterior", input_shape[-1])

    def compute_training_loss(self, queries, targets):
        if self.sampler is None:
            logits = self.raw_logits(queries)
            return self._loss(queries, logits, targets)
        sample, logits = self.sampled_logits(queries, targets)
        columns = Targets(sample.positions, targets.weights)
        return self._loss(queries, logits, columns, sample)

    def activation_bytes(self, batch):
        classes = self.step_rows(batch) or self.num_classes
        once, each = _MATRICES[self.mode]
        return 4 * batch * classes * (once + each * self.num_samples)

    def _loss(self, queries, logits, targets, sample=None):
        """Loss of each row, given the logits of all classes or of a sample."""
        ids = None if sample is None else sample.ids
        retain = self.retain_logits(queries, ids)
        target = dropmax.is_target(logits, targets.ids)
        drawn_by, residual = retain, None
        if self.mode == "posterior":
            residual = self.affine(queries, self.posterior, ids)
            drawn_by = tf.stop_gradient(retain) + residual
        log_masks = self._log_masks(logits, drawn_by, target)
        penalties = self._penalties(retain, drawn_by, residual, target)
        if sample is not None:
            self.leave_ranking(self.expected_logits(logits, retain), sample)
            logits -= sample.log_expected_count
            penalties *= _inverse_counts(sample)
        losses = dropmax.masked_cross_entropy(
            logits, log_masks, targets, self.target_margin()
        )
        losses += tf.reduce_sum(penalties, axis=1)
        return tf.where(targets.is_labelled > 0, losses, 0.0)

    def _log_masks(self, logits, drawn_by, target):
        """log z, float32 `[num_samples, batch, n]`; 1 sample of attention."""
        if self.mode == "attention":
            return tf.math.log_sigmoid(drawn_by)[tf.newaxis]
        draws = self._draws(logits)
        if self.mode == "random":
            log_masks = dropmax.bernoulli_log_mask(drawn_by, draws)
        else:
            log_masks = dropmax.concrete_log_mask(
                drawn_by, draws, self.temperature
            )
        return tf.where(target, 0.0, log_masks)

    def _draws(self, logits):
        """Uniform draws, float32 `[num_samples, batch, n]`."""
        shape = tf.concat([[self.num_samples], tf.shape(logits)], axis=0)
        return dropmax.uniform(shape, self.next_seed())

    def _penalties(self, retain, posterior, residual, target):
        """Regularisers of each class, float32 `[batch, n]`."""
        if self.mode in ("random", "attention"):
            return tf.zeros_like(target, tf.float32)
        entropy = dropmax.negative_entropy(retain)
        if self.mode == "adaptive":
            kl = dropmax.target_penalty(retain, target)
            entropy = tf.where(target, 0.0, entropy)
            return self.kl_weight * kl + self.entropy_weight * entropy
        kl = dropmax.bernoulli_kl(posterior, retain, target)
        auxiliary = dropmax.auxiliary_loss(residual, target)
        return (
            self.kl_weight * kl
            + self.auxiliary_weight * auxiliary
            + self.entropy_weight * entropy
        )

    def get_config(self):
        names = (
            "mode",
            "num_samples",
            "temperature",
            "kl_weight",
            "auxiliary_weight",
            "entropy_weight",
        )
        own = {name: getattr(self, name) for name in names}
        return {**super().get_config(), **own}


def _inverse_counts(sample):
    """Weights of a sample's classes, 1 / expected count; 0 for masked ones."""
    inverse = tf.exp(-sample.log_expected_count)
    if sample.mask is None:
        return inverse
    return tf.where(sample.mask, inverse, 0.0)
