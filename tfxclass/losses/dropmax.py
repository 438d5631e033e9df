"""DropMax's training loss, one for each mode, in the log domain.

A step has logits of classes, of rho and of r. Masks and losses have the shape
[num_samples, batch, classes] several times; they are held for some rows at a
time.

`rho` are retain probabilities, given by their logits; a mask z multiplies the
exponential of a class's logit. Equations have the numbers of the first version
of the paper (Lee et al., "DropMax: Adaptive Stochastic Softmax").
"""

import math
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfxclass.core import targets as targets_lib
from tfxclass.core.softmax import softmax_cross_entropy
from tfxclass.core.targets import Targets
from tfxclass.losses.options import finished
from tfxclass.losses.row_blocks import in_row_blocks
from tfxclass.types import Margin
from tfxclass.types import Scalar

#: Added to z exp(o), so that a row whose classes are all dropped has a softmax.
EPSILON = 1e-20
_LOG_EPSILON = float(np.log(EPSILON))
# The least number above 0: the log of a uniform draw is finite.
_TINY = float(np.finfo(np.float32).tiny)
# Where a bias begins at the least, and the most steps to it; some hundreds are
# the rule, a millisecond.
_LEAST_LOGIT = -10.0
_MOST_STEPS = 100_000


class Masking(NamedTuple):
    """How classes are dropped, and what that costs: see `DropMax`.

    Attributes:
        mode, num_samples, temperature: of `DropMax`.
        weights: dict, the weights of the mode's regularizers by name.
        margin: function of the target logits, or None.
        draw: function of a block's first row, an int64 scalar, and a shape
            `[num_samples, rows, n]`; returns uniform samples, float32.
        focal_gamma: float, of `LossOptions`.
    """

    mode: str
    num_samples: int
    temperature: float
    weights: dict
    margin: Margin | None
    draw: Callable[..., tf.Tensor]
    focal_gamma: float


class Rows(NamedTuple):
    """What a step computed for its classes.

    Attributes:
        logits: float32 `[batch, n]`, o, corrected for a sample's expected
            counts.
        retain: float32 `[batch, n]`, logits of rho; a scalar where rho is
            given.
        residual: float32 `[batch, n]`, r of "posterior", or None.
    """

    logits: Any
    retain: Any
    residual: Any = None


def training_loss(
    masking: Masking,
    rows: Rows,
    targets: Targets,
    row_weights: tf.Tensor,
    class_weights: tf.Tensor,
) -> tf.Tensor:
    """Cross-entropy of the masked softmax and the regularizers.

    It holds no matrix of the shape of the logits but the matrices of `rows` and
    their gradients.

    Args:
        masking, rows: as their classes say.
        targets: `Targets` whose ids are columns.
        row_weights: float32 `[batch, 1]`, of the rows' cross-entropies.
        class_weights: float32 `[n]` or `[batch, n]`, of the regularisers of
            each class: ones, or a sample's inverse expected counts.

    Returns:
        float32 `[batch]`, 0 for rows without labels.
    """
    # Not what a mode has not, nor a given rho, which is a scalar.
    names = [
        name
        for name, x in rows._asdict().items()
        if x is not None and x.shape.rank == 2
    ]

    def loss_of(start, *given):
        matrices, given = given[: len(names)], given[len(names) :]
        block = rows._replace(**dict(zip(names, matrices)))
        ids, masses, *weights = given
        return _block_loss(
            masking, start, block, Targets(ids, masses), *weights
        )

    return in_row_blocks(
        "DropMax's loss",
        loss_of,
        [getattr(rows, name) for name in names],
        [targets.ids, targets.weights, row_weights, class_weights],
        masking.num_samples,
    )


def _block_loss(masking, start, rows, targets, row_weights, class_weights):
    target = is_target(rows.logits, targets.ids)
    log_masks, penalties = _TERMS[masking.mode](masking, start, rows, target)
    losses = masked_cross_entropy(
        rows.logits, log_masks, targets, masking.margin
    )
    losses = finished(losses, row_weights, masking.focal_gamma)
    for name, penalty in penalties.items():
        weight = masking.weights[name]
        if weight:
            losses += tf.reduce_sum(
                class_weights * (weight * penalty()), axis=1
            )
    return tf.where(targets.is_labelled > 0, losses, 0.0)


# The terms of each mode. Each function returns `(log_masks, penalties)`: log z,
# float32 `[num_samples, rows, n]`, and by the name of its weight a function
# that gives the regularizer of each class, float32 `[rows, n]`.


def _adaptive_terms(masking, start, rows, target):
    """z follows rho: equation 15."""
    log_masks = _concrete_masks(masking, start, rows.retain, target)
    return log_masks, _penalties_of_rho(rows, target)


def _posterior_terms(masking, start, rows, target):
    """z follows q, whose logit is rho's plus r: NeurIPS 2018."""
    posterior = tf.stop_gradient(rows.retain) + rows.residual
    return _concrete_masks(masking, start, posterior, target), {
        "kl_weight": lambda: bernoulli_kl(posterior, rows.retain, target),
        "auxiliary_weight": lambda: auxiliary_loss(rows.residual, target),
        "entropy_weight": lambda: negative_entropy(rows.retain),
    }


def _random_terms(masking, start, rows, target):
    """z follows a given rho, the same for all classes."""
    samples = masking.draw(start, _mask_shape(masking, rows.logits))
    log_masks = bernoulli_log_mask(rows.retain, samples)
    return tf.where(target, 0.0, log_masks), {}


def _attention_terms(masking, start, rows, target):
    """z is rho itself in equation 15, for targets, too: nothing is random."""
    log_masks = tf.math.log_sigmoid(rows.retain)[tf.newaxis]
    return log_masks, _penalties_of_rho(rows, target)


def _penalties_of_rho(rows, target):
    """-log rho of the targets, and the entropy of the other classes."""
    return {
        "kl_weight": lambda: target_penalty(rows.retain, target),
        "entropy_weight": lambda: tf.where(
            target, 0.0, negative_entropy(rows.retain)
        ),
    }


_TERMS = {
    "adaptive": _adaptive_terms,
    "posterior": _posterior_terms,
    "random": _random_terms,
    "attention": _attention_terms,
}


def _concrete_masks(masking, start, logits, target):
    """log z of the concrete relaxation; a target is always retained."""
    samples = masking.draw(start, _mask_shape(masking, logits))
    log_masks = concrete_log_mask(logits, samples, masking.temperature)
    return tf.where(target, 0.0, log_masks)


def _mask_shape(masking, logits):
    return tf.concat([[masking.num_samples], tf.shape(logits)], axis=0)


def add_epsilon(masked: tf.Tensor) -> tf.Tensor:
    """log(z exp(o) + epsilon) of log z + o, as in equation 3."""
    top = tf.stop_gradient(tf.maximum(masked, _LOG_EPSILON))
    return top + tf.math.log(tf.exp(masked - top) + tf.exp(_LOG_EPSILON - top))


def uniform(
    shape: tf.Tensor | Sequence[Scalar], seed: tf.Tensor | Sequence[Scalar]
) -> tf.Tensor:
    """Draws in (0, 1), float32, the same for the same `seed`, ints `[2]`."""
    return tf.random.stateless_uniform(shape, seed, minval=_TINY, alg="philox")


def concrete_log_mask(
    retain_logits: tf.Tensor, draws: tf.Tensor, temperature: float
) -> tf.Tensor:
    """log z of the concrete relaxation, differentiable by `retain_logits`.

    z = sigmoid((logit(rho) + logit(u)) / temperature), for samples u in (0, 1):
    above a half with probability rho, and nearly 0 or 1 at a low temperature.

    References:
        Maddison et al., The Concrete Distribution, ICLR 2017.
    """
    noise = tf.math.log(draws) - tf.math.log1p(-draws)
    return tf.math.log_sigmoid((retain_logits + noise) / temperature)


def bernoulli_log_mask(retain_logits: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
    """log z of Bernoulli masks: 0, or -inf for a dropped class."""
    is_kept = draws < tf.sigmoid(retain_logits)
    return tf.where(is_kept, 0.0, float("-inf"))


def is_target(logits: tf.Tensor, columns: tf.Tensor) -> tf.Tensor:
    """bool, shape of `logits`: which `columns` are targets of their row."""
    shape = tf.shape(logits, tf.int64)
    _, at = targets_lib.places_of(columns)
    ones = tf.ones(tf.shape(at)[:1], tf.int32)
    return tf.scatter_nd(at, ones, shape) > 0


def masked_cross_entropy(
    logits: tf.Tensor,
    log_masks: tf.Tensor,
    targets: targets_lib.Targets,
    margin: Margin | None = None,
) -> tf.Tensor:
    """Cross-entropy of the masked softmax, the mean over samples of masks.

    The first term of equation 15: p(c | z) is z_c exp(o_c) + epsilon, over the
    sum of these numbers of all classes (equation 5). `logits` are o `[batch,
    n]`, and `log_masks` are log z `[num_samples, batch, n]`.
    """
    num_samples, batch, width = tf.unstack(tf.shape(log_masks))
    masked = add_epsilon(logits + log_masks)
    masked = tf.reshape(masked, [num_samples * batch, width])
    repeated = targets_lib.Targets(
        tf.tile(targets.ids, [num_samples, 1]),
        tf.tile(targets.weights, [num_samples, 1]),
    )
    losses = softmax_cross_entropy(masked, repeated, margin)
    return tf.reduce_mean(tf.reshape(losses, [num_samples, batch]), axis=0)


def target_penalty(retain_logits: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
    """-log rho of each target, 0 elsewhere: equation 10.

    It is the KL divergence of a posterior that keeps the target for certain
    and is the prior elsewhere. All tensors have the shape `[batch, n]`.
    """
    return tf.where(target, tf.math.softplus(-retain_logits), 0.0)


def bernoulli_kl(
    posterior_logits: tf.Tensor, retain_logits: tf.Tensor, target: tf.Tensor
) -> tf.Tensor:
    """KL(q || rho) of each class, where q of a target is 1.

    All tensors have the shape `[batch, n]`. Where q is rho, the result is
    `target_penalty`.
    """
    kept, dropped = (
        tf.sigmoid(sign * posterior_logits)
        * (
            tf.math.log_sigmoid(sign * posterior_logits)
            - tf.math.log_sigmoid(sign * retain_logits)
        )
        for sign in (1.0, -1.0)
    )
    of_targets = tf.math.softplus(-retain_logits)
    return tf.where(target, of_targets, kept + dropped)


def auxiliary_loss(logits: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
    """Binary cross-entropy of each class: targets 1, others 0; `[batch, n]`."""
    return tf.math.softplus(tf.where(target, -logits, logits))


def negative_entropy(retain_logits: tf.Tensor) -> tf.Tensor:
    """rho log rho + (1 - rho) log(1 - rho), from -log 2 to 0."""
    return sum(
        tf.sigmoid(sign * retain_logits)
        * tf.math.log_sigmoid(sign * retain_logits)
        for sign in (1.0, -1.0)
    )


def stationary_logits(
    kl_weight: float, auxiliary_weight: float, entropy_weight: float
) -> tuple[float, float]:
    """The logits at which the regularizers of a class are in balance.

    With rho = sigmoid(p) and q = sigmoid(p + r) their gradients are zero for

        kl_weight (rho - q) + entropy_weight rho (1 - rho) p = 0,
        auxiliary_weight sigmoid(r) + kl_weight q (1 - q) r = 0.

    If there are several solutions, it is the one that gradient descent reaches
    from zeros, the greatest in p and in r: with p and r on the left sides,
    either right side rises with the other unknown, and short steps only fall.

    Returns:
        `(p, r)`, floats from -10 to 0; -10 where the weights have no greater
        solution.
    """
    of_retain = kl_weight / max(entropy_weight, 1e-6)
    of_residual = auxiliary_weight / max(kl_weight, 1e-6)
    p = r = 0.0
    for _ in range(_MOST_STEPS):
        x, c = math.exp(p), math.exp(r)
        next_p = -of_retain * (1 - c) * (1 + x) / (1 + x * c)
        next_r = -of_residual * (1 + x * c) ** 2 / (x * (1 + c))
        before = p, r
        p = max(p + (next_p - p) / (1 + of_retain), _LEAST_LOGIT)
        r = max(r + (next_r - r) / (1 + of_residual), _LEAST_LOGIT)
        if math.dist(before, (p, r)) < 1e-10:
            break
    return p, r


def expected_logits(logits: tf.Tensor, retain_logits: tf.Tensor) -> tf.Tensor:
    """log(rho exp(o) + epsilon), `[batch, n]`; its softmax is equation 18."""
    return add_epsilon(logits + tf.math.log_sigmoid(retain_logits))


def mixture_log_probabilities(
    logits: tf.Tensor, retain_logits: tf.Tensor, num_samples: int, seed: int
) -> tf.Tensor:
    """Equation 17: log of the mean softmax over samples of Bernoulli masks.

    All rows share the samples, so that the answer for one does not depend on
    its batch. Ops are TensorFlow's own. `logits` are o `[batch, n]`, and
    `retain_logits` of rho, `[batch, n]` or a scalar.
    """
    width = tf.shape(logits)[1]

    def sample(i):
        draws = uniform([width], [seed, i])
        log_mask = bernoulli_log_mask(retain_logits, draws)
        return tf.nn.log_softmax(add_epsilon(logits + log_mask))

    def step(i, total):
        both = tf.stack([total, sample(i)])
        return i + 1, tf.reduce_logsumexp(both, axis=0)

    _, total = tf.while_loop(
        lambda i, _: i < num_samples,
        step,
        (tf.constant(1, tf.int64), sample(tf.constant(0, tf.int64))),
        parallel_iterations=1,
    )
    return total - tf.math.log(float(num_samples))
