"""DropMax: softmax over classes that are dropped with learned probabilities."""

import math
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from tfxclass.checks import check_choice
from tfxclass.checks import check_fraction
from tfxclass.checks import check_nonnegative
from tfxclass.checks import check_optional_int
from tfxclass.checks import check_options
from tfxclass.checks import check_positive
from tfxclass.checks import check_positive_int
from tfxclass.checks import check_value
from tfxclass.core import softmax
from tfxclass.core.forward import Ranking
from tfxclass.core.forward import Step
from tfxclass.core.forward import unflatten
from tfxclass.core.targets import Targets
from tfxclass.core.targets import take_columns
from tfxclass.layers.head_weights import WeightSpec
from tfxclass.layers.output_head import do_not_convert
from tfxclass.layers.sampled_softmax import SampledSoftmax
from tfxclass.losses import dropmax
from tfxclass.losses.objectives import SOFTMAX_ALONE
from tfxclass.losses.options import LOSS_OPTIONS
from tfxclass.ops import placement
from tfxclass.rows import search
from tfxclass.rows import stock_search
from tfxclass.rows.blocks import Blocks
from tfxclass.rows.class_matrix import ClassRows
from tfxclass.samplers.sampler import Sampler
from tfxclass.types import Answers
from tfxclass.types import Array
from tfxclass.types import Config
from tfxclass.types import Shape

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
    num_classes] for each class matrix, holds all logits and their gradients,
    and updates all class vectors. Mode `"random"` has one class matrix,
    `"posterior"` three, and the others two. With a `sampler`, a step computes
    `num_sampled` classes, and unbiased estimates of the sum of exponentials and
    of the regularizers.

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
      The loss has the terms of `"adaptive"`.

    The regularizers are sums over classes, and grow with `num_classes`. In mode
    `"posterior"` the biases start where they are in balance for a class that is
    not a label: at the default weights rho = 0.40 and q = 0.12. Raise
    `entropy_weight` if a step keeps too few of the other classes. The other
    modes start at rho = 1/2.

    Prediction puts rho in place of z (equation 18). With `predict_samples`,
    which may be set on a trained head, it is the mean softmax over that many
    masks (equation 17), the same for all examples and calls, and needs [batch,
    num_classes] numbers of memory. `tfxclass.retain_probabilities(model)`
    returns rho together with the output.

    Args:
        mode: `"adaptive"`, `"posterior"`, `"random"` or `"attention"`.
        sampler: as in `SampledSoftmax`. Defaults to None: all classes.
        mode_options: dict of the options listed below. Defaults to None.
        **kwargs: other arguments of `SampledSoftmax`, without `loss`.

    Keys of `mode_options`:

    * `"num_samples"`: int, number of masks in a training step. Defaults to 1.
    * `"temperature"`: float > 0, of the concrete relaxation. Defaults to 0.1.
    * `"kl_weight"`, `"auxiliary_weight"`, `"entropy_weight"`: float >= 0, for
      modes with these terms. They default to 1; `"entropy_weight"` to 3 for
      `"posterior"`.
    * `"retain_probability"`: float in (0, 1], the rho of every class. Required
      for `"random"`.
    * `"predict_samples"`: int, number of masks in a prediction. Defaults to
      None, which is equation 18.

    Example:

    ```python
    head = tfxclass.layers.DropMax(1_000, mode="posterior")
    ```

    References:
        Lee et al., DropMax: Adaptive Variational Softmax, NeurIPS 2018, and its
        first version, DropMax: Adaptive Stochastic Softmax.
    """

    loss_kinds = SOFTMAX_ALONE
    default_sampler = None
    _draws = staticmethod(dropmax.draws_of_block)
    has_plain_logits = False
    supported_options = (*LOSS_OPTIONS, "class_counts")

    def __init__(
        self,
        num_classes: int,
        mode: str = "adaptive",
        num_sampled: int | None = None,
        sampler: str | Sampler | None = None,
        mode_options: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        given = check_options(
            "DropMax", "mode_options", MODE_OPTIONS, mode_options, kwargs
        )
        super().__init__(num_classes, num_sampled, sampler, **kwargs)
        check_choice("mode", mode, tuple(_WEIGHTS))
        self.mode = mode
        self.num_samples = given.get("num_samples", 1)
        self.temperature = given.get("temperature", 0.1)
        self.retain_probability = given.get("retain_probability")
        self.predict_samples = given.get("predict_samples")
        self.kl_weight = self._weight("kl_weight", given)
        self.auxiliary_weight = self._weight("auxiliary_weight", given)
        self.entropy_weight = self._weight("entropy_weight", given)
        self._check()
        self.random = keras.random.SeedGenerator(self.seed)

    def _weight(self, name, options):
        """The weight of a regularizer; None for a mode without it."""
        defaults, given = _WEIGHTS[self.mode], options.get(name)
        if given is None:
            return defaults.get(name)
        wanted = f"None with mode={self.mode!r}, whose loss has no such term"
        check_value(name, given, name in defaults, wanted)
        check_nonnegative(name, given)
        return given

    def _check(self):
        self.num_samples = check_positive_int("num_samples", self.num_samples)
        check_positive("temperature", self.temperature)
        p = self.retain_probability
        if p is not None:
            check_fraction("retain_probability", p)
        check_optional_int("predict_samples", self.predict_samples)
        if (self.mode == "random") == (p is None):
            raise ValueError(
                '`retain_probability` is for mode="random", which needs it. '
                f"Received: retain_probability={p} with mode={self.mode!r}."
            )
        if self.mode == "attention":
            given = self.predict_samples
            wanted = 'None with mode="attention", whose masks are not drawn'
            check_value("predict_samples", given, given is None, wanted)

    def weight_specs(self, dim: int) -> list[WeightSpec]:
        specs = super().weight_specs(dim)
        for name, bias in self._first_biases().items():
            kernel = WeightSpec(
                f"{name}_kernel",
                (self.num_classes, dim),
                "zeros",
                self.kernel_dtype,
                bias=f"{name}_bias",
            )
            first = keras.initializers.Constant(bias)
            specs += [kernel, WeightSpec(kernel.bias, kernel.shape[:1], first)]
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

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        self.retain = self.class_matrices.get("retain_kernel")
        self.posterior = self.class_matrices.get("posterior_kernel")

    # Prediction reads the logits o, and the logits of rho unless rho is given.

    def class_rows(self) -> list[ClassRows]:
        retain = [] if self.retain is None else [self.retain.rows]
        return [self.rows, *retain]

    def _retain_logits(self, queries, ids=None):
        """Logits of rho of the classes `ids`, or of all; or a scalar."""
        if self.retain is not None:
            return _affine(queries, self.retain, ids)
        p = self.retain_probability
        return tf.constant(math.log(p) - math.log1p(-p) if p < 1 else 1e4)

    @do_not_convert
    def retain_probabilities(self, features: Array) -> tf.Tensor:
        """The retain probabilities rho, float32 `[..., num_classes]`."""
        features = self.as_features(features)
        queries = self.queries(features)
        shape = [tf.shape(queries)[0], self.num_classes]
        rho = tf.sigmoid(self._retain_logits(queries))
        return unflatten(tf.broadcast_to(rho, shape), features)

    def all_logits(self, features: tf.Tensor, weights: Any = None) -> tf.Tensor:
        logits, *retain = search.logits(self.parts(features, weights))
        if self.predict_samples is None:
            return dropmax.expected_logits(logits, *retain)
        return dropmax.mixture_log_probabilities(
            logits,
            retain[0] if retain else self._retain_logits(features),
            self.predict_samples,
            self.seed or 0,
        )

    def logits_of(
        self, features: tf.Tensor, ids: tf.Tensor, weights: Any = None
    ) -> tf.Tensor:
        if self.predict_samples is not None:
            # Samples of masks are taken from the logits of all classes.
            return take_columns(self.all_logits(features, weights), ids)
        parts = self.parts(features, weights)
        logits = [search.logits_of([part], ids) for part in parts]
        return dropmax.expected_logits(*logits)

    def best(self, features: tf.Tensor, k: int, weights: Any = None) -> Answers:
        found = self._best(features, k, weights, self.needs_logsumexp)
        return self.as_answers([found], k)

    def _best(self, features, k, weights=None, with_logsumexp=True):
        parts = self.parts(features, weights)
        if self.predict_samples is None:
            if self.retain is None:
                return search.best(parts, k, with_logsumexp)[0]
            return _best_of_expected(parts, k, with_logsumexp)
        logits = self.all_logits(features, weights)
        lib = stock_search if parts[0][1].is_stock else search
        # They are log-probabilities already.
        none = tf.zeros_like(logits[:, :1])
        return lib.best_of_logits(logits, k)._replace(logsumexp=none)

    def exact_loss(self, features: tf.Tensor, targets: Targets) -> tf.Tensor:
        """Cross-entropy of the prediction; with a sampler, without gradient."""
        if self.sampler is None or self.predict_samples is not None:
            logits = self.all_logits(features)
            return softmax.softmax_cross_entropy(logits, targets)
        logits = self.logits_of(features, targets.ids)
        logsumexp = self._best(features, 1).logsumexp[:, 0]
        target = softmax.TargetTerms(logits, targets, None).weighted()
        losses = softmax.log_ratio(logsumexp, target)
        return softmax.refuse_gradient(
            tf.where(targets.is_labelled > 0, losses, 0.0),
            f"The loss of {self.name!r} has a gradient with training=True, or "
            "without a sampler. Received: training=False.",
        )

    def training_step(self, features: tf.Tensor, targets: Targets) -> Step:
        queries = self.queries(features)
        if not self.is_sampled:
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
        options = self.options
        targets, row_weights = options.normalized_targets(
            targets, self.num_classes
        )
        ids, class_weights = None, tf.ones([1])
        if sample is not None:
            ids, class_weights = sample.ids, sample.inverse_counts
            targets = Targets(sample.positions, targets.weights)
        retain = self._retain_logits(queries, ids)
        ranked = logits
        if self.retain is not None:
            ranked = dropmax.expected_logits(logits, retain)
        residual = self.posterior and _affine(queries, self.posterior, ids)
        logits = options.adjust_logits(logits, ids, self.num_classes)
        if sample is not None:
            logits -= sample.log_expected_count
        # TensorFlow keeps it for ever: nothing of the head's.
        masking = dropmax.Masking(
            self.mode,
            self.num_samples,
            self.temperature,
            {name: getattr(self, name) for name in _WEIGHTS[self.mode]},
            self.target_margin(),
            options.focal_gamma,
            self.next_seed(),
            self._draws,
        )
        losses = dropmax.training_loss(
            masking,
            dropmax.Rows(logits, retain, residual),
            targets,
            row_weights,
            class_weights,
        )
        return losses, ranked

    def get_config(self) -> Config:
        options = {name: getattr(self, name) for name in MODE_OPTIONS}
        config = {**super().get_config(), "mode": self.mode}
        return {**config, "mode_options": options}


def _affine(queries, matrix, ids):
    """Logits of the classes `ids` of a `ClassMatrix`, or of all."""
    if ids is None:
        return matrix.rows.products(queries)
    kernel, bias = matrix.rows.gather(ids)
    return tf.matmul(queries, kernel, transpose_b=True) + bias


def _best_of_expected(parts, k, with_logsumexp):
    """`Best` of the expected mask, given the parts of o and of rho."""
    (queries, rows), (_, retain) = [(x, rows.whole()) for x, rows in parts]

    def logits_of(start, size):
        return dropmax.expected_logits(
            stock_search.block_logits(queries, rows, start, size),
            stock_search.block_logits(queries, retain, start, size),
        )

    if rows.is_stock:
        return stock_search.best_of_blocks(
            logits_of,
            tf.shape(queries)[0],
            rows.num_classes,
            k,
            with_logsumexp,
            stock_search.block_of(rows),
        )
    with placement.on(rows.device):
        blocks = _ExpectedBlocks(queries, rows, retain)
        return search.best_of_blocks(blocks, k, with_logsumexp)


class _ExpectedBlocks(Blocks):
    """Blocks of logits with the expected mask."""

    def __init__(self, queries, rows, retain):
        super().__init__(queries, rows)
        self.retain = Blocks(queries, retain)

    def logits(self, start, rows=None):
        logits = super().logits(start, rows)
        return dropmax.expected_logits(logits, self.retain.logits(start))
