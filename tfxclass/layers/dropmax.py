"""DropMax: softmax over classes that are dropped with learned probabilities."""

import math
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from tfxclass.checks import check_choice
from tfxclass.checks import check_options
from tfxclass.checks import check_positive_int
from tfxclass.core import softmax
from tfxclass.core.forward import Ranking
from tfxclass.core.forward import Step
from tfxclass.core.forward import flatten
from tfxclass.core.forward import unflatten
from tfxclass.core.targets import Targets
from tfxclass.layers.head_weights import WeightSpec
from tfxclass.layers.output_head import do_not_convert
from tfxclass.layers.output_head import sorted_scores
from tfxclass.layers.retained import Retained
from tfxclass.layers.sampled_softmax import SampledSoftmax
from tfxclass.losses import dropmax
from tfxclass.losses.objectives import SOFTMAX_ALONE
from tfxclass.losses.options import LOSS_OPTIONS
from tfxclass.losses.options import LossOptions
from tfxclass.samplers.sampler import Sampler
from tfxclass.types import Array
from tfxclass.types import Config
from tfxclass.types import Margin

# The weights that a mode has, and their defaults.
_WEIGHTS = {
    "adaptive": {"kl_weight": 1.0, "entropy_weight": 1.0},
    "posterior": {
        "kl_weight": 1.0,
        "auxiliary_weight": 1.0,
        "entropy_weight": 3.0,
    },
    "random": {},
    "attention": {"kl_weight": 1.0, "entropy_weight": 1.0},
}
_MODES = tuple(_WEIGHTS)
MODE_OPTIONS = (
    "num_samples",
    "temperature",
    "kl_weight",
    "auxiliary_weight",
    "entropy_weight",
    "retain_probability",
    "predict_samples",
)
# Matrices [batch, classes] that a step holds (measured): logits of each class
# matrix and their gradients.
_MATRICES = {"adaptive": 5, "posterior": 7, "random": 3, "attention": 5}


@keras.saving.register_keras_serializable("tfxclass")
class DropMax(SampledSoftmax):
    """Softmax that randomly drops classes in training, as a regularizer.

    Use it with up to some thousand classes and few examples for each. A second
    class matrix predicts, for each example, the probability rho with which each
    class is retained. Training samples masks of classes with these
    probabilities and never drops the label. Classes that an example is easily
    confused with are retained more often; at the default weights the
    differences are small (docs/papers/dropmax.md).

    Each training step computes three matrix products of [batch, dim] by [dim,
    num_classes] for each class matrix, and updates all class vectors. There is
    one class matrix in mode `"random"`, three in `"posterior"` and two
    otherwise. The step holds all [batch, num_classes] logits and their
    gradients. With a `sampler`, everything is computed over `num_sampled`
    classes. The sum of exponentials and the regularizers are then unbiased
    estimates of the sums over all classes.

    The modes, where z is the mask of a class (1 for labels):

    * `"adaptive"`: z is sampled with probability rho (concrete relaxation). The
      loss is cross-entropy, plus `kl_weight` times -log rho of the label, minus
      `entropy_weight` times the entropy of the other classes' rho (equation 15
      of the first version).
    * `"posterior"`: z is sampled with a probability q. The logit of q is the
      logit of rho, without gradient, plus a learned logit r. The loss is
      cross-entropy, plus `kl_weight` times KL(q || rho), plus
      `auxiliary_weight` times the binary cross-entropy of sigmoid(r) with the
      labels, minus `entropy_weight` times the entropy of rho (NeurIPS 2018).
    * `"random"`: rho is the number `retain_probability`.
    * `"attention"`: z is rho itself, for labels too, and nothing is sampled.
      The loss has the terms of `"adaptive"`: the paper's deterministic
      attention. With `kl_weight` and `entropy_weight` 0 it is cross-entropy
      alone.

    The regularizers are sums over classes. They grow with `num_classes`, and
    cross-entropy does not. In mode `"posterior"` the biases start where the
    three regularizers are in balance for a class that is not a label. With
    weights 1, 1 and 3, this is rho = 0.40 and q = 0.12. With weights 1, 1 and
    1, it is rho = 0.23 and q = 0.01. This q is the fraction of the other
    classes that a step keeps. Raise `entropy_weight` if too few classes are
    left to learn from. The other modes start at rho = 1/2.

    Prediction is deterministic. It puts rho in place of z (equation 18). With
    `predict_samples` it is the mean softmax over that many masks (equation 17),
    which needs [batch, num_classes] numbers of memory. The masks are the same
    for all examples and calls. `predict_samples` may be set on a trained head.
    `tfxclass.retain_probabilities(model)` returns rho together with the output.

    Args:
        num_classes: int, number of classes.
        mode: `"adaptive"`, `"posterior"`, `"random"` or `"attention"`.
        num_sampled: int, number of classes in a training step. Only with the
            name of a sampler. Defaults, and the rule for batches with more
            labels, are described in `SampledSoftmax`.
        sampler: None for all classes (the default), or a sampler as in
            `SampledSoftmax`.
        mode_options: dict of the options of the mode, or None for their
            defaults. See the list below.
        **kwargs: arguments of `ClassHead` (`similarity`, `use_bias`, `tied_to`)
            and of `OutputHead` (`loss_options`, `class_names`, `activation`,
            `kernel_initializer`, `kernel_dtype`, `num_negatives`, `seed`).

    Keys of `mode_options`:

    * `"num_samples"`: int, number of masks in a training step. Defaults to 1.
    * `"temperature"`: float > 0, of the concrete relaxation. Defaults to 0.1.
    * `"kl_weight"`: float >= 0, for all modes but `"random"`. Defaults to 1.
    * `"auxiliary_weight"`: float >= 0, for `"posterior"`. Defaults to 1.
    * `"entropy_weight"`: float >= 0, for all modes but `"random"`. Defaults to
      3 for `"posterior"`, and 1 for `"adaptive"` and `"attention"`.
    * `"retain_probability"`: float in (0, 1], the rho of every class. Required
      for `"random"`.
    * `"predict_samples"`: int, number of masks in a prediction. Defaults to
      None, which is equation 18.

    Raises:
        ValueError: if an argument is out of range, or the mode does not have an
            option.

    Example:

    ```python
    head = tfxclass.layers.DropMax(1_000, mode="posterior")
    model = keras.Sequential([keras.layers.Dense(256), head])
    model.compile("adam", loss=head.loss)
    ```

    References:
        Lee et al., DropMax: Adaptive Variational Softmax, NeurIPS 2018, and its
        first version, DropMax: Adaptive Stochastic Softmax.
    """

    loss_kinds = SOFTMAX_ALONE
    sampler_is_optional = True
    has_plain_logits = False
    supported_options = (*LOSS_OPTIONS, "class_counts", "temperature")

    def __init__(
        self,
        num_classes: int,
        mode: str = "adaptive",
        num_sampled: int | None = None,
        sampler: str | Sampler | None = None,
        mode_options: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        options = check_options(
            "DropMax", "mode_options", MODE_OPTIONS, mode_options, kwargs
        )
        super().__init__(
            num_classes, num_sampled=num_sampled, sampler=sampler, **kwargs
        )
        check_choice("mode", mode, _MODES)
        temperature = options.get("temperature", 0.1)
        if not 0 < temperature < float("inf"):
            raise ValueError(
                f"`temperature` must be > 0. Received: {temperature}"
            )
        self.mode = mode
        self.num_samples = check_positive_int(
            "num_samples", options.get("num_samples", 1)
        )
        self.temperature = temperature
        self.kl_weight = self._weight("kl_weight", options)
        self.auxiliary_weight = self._weight("auxiliary_weight", options)
        self.entropy_weight = self._weight("entropy_weight", options)
        self.retain_probability = options.get("retain_probability")
        self.predict_samples = options.get("predict_samples")
        self._check()
        self.random = keras.random.SeedGenerator(self.seed)

    def _weight(self, name, options):
        """The weight of a regularizer; None for a mode without it."""
        defaults, given = _WEIGHTS[self.mode], options.get(name)
        if given is None:
            return defaults.get(name)
        if name not in defaults:
            raise ValueError(
                f"`{name}` must be None with mode={self.mode!r}, whose loss "
                f"has no such term. Received: {given}"
            )
        if not 0 <= given < float("inf"):
            raise ValueError(f"`{name}` must be >= 0. Received: {given}")
        return given

    def _check(self):
        p = self.retain_probability
        if p is not None and not 0 < p <= 1:
            raise ValueError(
                f"`retain_probability` must be in (0, 1]. Received: {p}"
            )
        if self.predict_samples is not None:
            check_positive_int("predict_samples", self.predict_samples)
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

    def weight_specs(self, dim: int) -> list[WeightSpec]:
        specs = super().weight_specs(dim)
        for name, bias in self._first_biases().items():
            shape = (self.num_classes, dim)
            constant = keras.initializers.Constant(bias)
            specs.append(
                WeightSpec(
                    f"{name}_kernel",
                    shape,
                    "zeros",
                    self.kernel_dtype,
                    bias=f"{name}_bias",
                )
            )
            specs.append(WeightSpec(f"{name}_bias", shape[:1], constant))
        return specs

    def _first_biases(self):
        """Initial biases of the other class matrices, which begin as zeros."""
        if self.mode == "random":
            return {}
        if self.mode != "posterior":
            return {"retain": 0.0}
        retain, residual = dropmax.stationary_logits(
            self.kl_weight, self.auxiliary_weight, self.entropy_weight
        )
        return {"retain": retain, "posterior": residual}

    def take_weights(self, weights_by_name: dict[str, keras.Variable]) -> None:
        super().take_weights(weights_by_name)
        self.retain, self.posterior = (
            self.class_matrices.get(f"{name}_kernel")
            for name in ("retain", "posterior")
        )

    @property
    def retained(self) -> Retained:
        """The `tfxclass.layers.retained.Retained` that predictions use."""
        p, logit = self.retain_probability, None
        if p is not None:
            logit = math.log(p) - math.log1p(-p) if p < 1 else 1e4
        return Retained(
            self.rows,
            self.retain and self.retain.rows,
            logit,
            self.predict_samples,
            self.seed or 0,
        )

    @do_not_convert
    def retain_probabilities(self, features: Array) -> tf.Tensor:
        """The retain probabilities rho, float32 `[..., num_classes]`."""
        features = self.as_features(features)
        queries = self.queries(flatten(features))
        logits = self.retained.all_retain_logits(queries)
        shape = [tf.shape(queries)[0], self.num_classes]
        rho = tf.broadcast_to(tf.sigmoid(logits), shape)
        return unflatten(rho, features)

    def all_logits(
        self, features: tf.Tensor, weights: Retained | None = None
    ) -> tf.Tensor:
        retained = self.retained if weights is None else weights
        return retained.all_logits(self.queries(features))

    def all_scores(
        self, features: tf.Tensor, weights: Retained | None = None
    ) -> tf.Tensor:
        return sorted_scores(self, features, weights)

    def logits_of(
        self,
        features: tf.Tensor,
        ids: tf.Tensor,
        weights: Retained | None = None,
    ) -> tf.Tensor:
        retained = self.retained if weights is None else weights
        return retained.logits_of(self.queries(features), ids)

    def best(
        self,
        features: tf.Tensor,
        k: int,
        weights: Retained | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        retained = self.retained if weights is None else weights
        found = retained.best(self.queries(features), k, self.needs_logsumexp)
        return self.as_answers([found], k)

    def exact_loss(
        self,
        features: tf.Tensor,
        targets: Targets,
        margin: Margin | None = None,
    ) -> tf.Tensor:
        """Cross-entropy of the prediction, float32 `[rows]`.

        With a sampler it is computed in blocks and has no gradient.
        """
        if self.sampler is None or self.predict_samples is not None:
            logits = self.all_logits(features)
            return softmax.softmax_cross_entropy(logits, targets)
        losses = self.retained.losses(self.queries(features), targets)
        return softmax.refuse_gradient(
            losses,
            f"The loss of {self.name!r} has a gradient with training=True, or "
            "without a sampler. Received: training=False.",
        )

    def export_weights(self) -> Retained:
        """`Retained` of variables that need no further normalization."""
        return self.retained._replace(
            rows=self.class_matrix.servable(),
            retain=self.retain and self.retain.servable(),
        )

    def training_step(self, features: tf.Tensor, targets: Targets) -> Step:
        queries = self.queries(features)
        if self.sampler is None:
            logits = self.rows.products(queries)
            return Step(self._loss(queries, logits, targets)[0])
        sample = self.sample(queries, targets)
        rows = self.sampled_rows(sample)
        logits = self.sampled_logits(queries, sample, rows)
        losses, ranked = self._loss(queries, logits, targets, sample)
        ranking = Ranking(tf.stop_gradient(ranked), sample.positions)
        return Step(losses, ranking)

    def activation_bytes(self, batch: int, dim: int) -> int:
        classes = self.step_rows(batch) or self.num_classes
        return 4 * batch * classes * _MATRICES[self.mode]

    def _loss(self, queries, logits, targets, sample=None):
        """`(losses, ranked)`, given the logits of all classes or a sample."""
        options = self.loss_options or LossOptions()
        targets, row_weights = options.normalized_targets(
            targets, self.num_classes
        )
        ids, class_weights = None, tf.ones([1])
        if sample is not None:
            ids, class_weights = sample.ids, sample.inverse_counts
            targets = Targets(sample.positions, targets.weights)
        if self.retain is None:
            retain = tf.constant(self.retained.retain_logit)
        else:
            retain = self._affine(queries, self.retain, ids)
        ranked = self.retained.expected(logits, retain)
        residual = None
        if self.mode == "posterior":
            residual = self._affine(queries, self.posterior, ids)
        logits = options.adjust_logits(logits, ids, self.num_classes)
        if sample is not None:
            logits -= sample.log_expected_count
        losses = dropmax.training_loss(
            self._masking(self.next_seed()),
            dropmax.Rows(logits, retain, residual),
            targets,
            row_weights,
            class_weights,
        )
        return losses, ranked

    def _affine(self, queries, matrix, ids):
        """Logits of the classes `ids`, or of all."""
        if ids is None:
            return matrix.rows.products(queries)
        kernel, bias = matrix.gather(ids)
        return tf.matmul(queries, kernel, transpose_b=True) + bias

    def _masking(self, seed):
        """`Masking`, which TensorFlow keeps for ever: nothing of the head's."""
        options, draws = self.loss_options, self._draws
        return dropmax.Masking(
            self.mode,
            self.num_samples,
            self.temperature,
            {name: getattr(self, name) for name in _WEIGHTS[self.mode]},
            self.target_margin(),
            lambda start, shape: draws(seed, start, shape),
            0.0 if options is None else options.focal_gamma,
        )

    @staticmethod
    def _draws(seed, start, shape):
        """Uniform random numbers for the rows from `start`, float32."""
        seed = tf.random.experimental.stateless_fold_in(seed, start)
        return dropmax.uniform(shape, seed)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "mode": self.mode,
            "mode_options": {
                name: getattr(self, name) for name in MODE_OPTIONS
            },
        }
