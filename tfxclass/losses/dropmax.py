"""DropMax's training loss and predictions, in the log domain.

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

from tfxclass.core.softmax import REMOVED_LOGIT
from tfxclass.core.softmax import first_order_gradients
from tfxclass.core.softmax import softmax_cross_entropy
from tfxclass.core.targets import Targets
from tfxclass.core.targets import places_of
from tfxclass.keras_internals import custom_gradient
from tfxclass.losses.options import finished
from tfxclass.ops import library
from tfxclass.types import Margin
from tfxclass.types import Scalar

#: Added to z exp(o), so that a row whose classes are all dropped has a softmax.
EPSILON = 1e-20
_LOG_EPSILON = float(np.log(EPSILON))
# Numbers of a matrix in a block of rows: half a MiB of float32, so that a dozen
# of them stay in a cache.
BLOCK_NUMBERS = 1 << 17
# The least number above 0: the log of a uniform draw is finite.
_TINY = float(np.finfo(np.float32).tiny)
# Where a bias begins at the least, and the most steps to it; some hundreds are
# the rule, a millisecond.
_LEAST_LOGIT = -10.0
_MOST_STEPS = 100_000


class Masking(NamedTuple):
    """How classes are dropped, and the weights of the mode's regularizers."""

    mode: str
    num_samples: int
    temperature: float
    weights: dict
    margin: Margin | None
    focal_gamma: float
    seed: tf.Tensor
    draw: Callable[..., tf.Tensor]


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
    """Cross-entropy of the masked softmax and the regularizers, `[batch]`.

    It is computed for a block of rows at a time. The forward pass keeps the
    losses alone, and the backward pass computes each block once more.

    The ids of `targets` are columns. `row_weights` are of the cross-entropies,
    float32 `[batch, 1]`. `class_weights` are of the regularizers of each class,
    float32 `[n]` or `[batch, n]`: ones, or a sample's inverse expected counts.
    """
    # Not what a mode has not, nor a given rho, which is a scalar.
    names = [
        name
        for name, x in rows._asdict().items()
        if x is not None and x.shape.rank == 2
    ]
    constants = targets.ids, targets.weights, row_weights, class_weights
    batch, width = tf.unstack(tf.shape(rows.logits, tf.int64))
    numbers = tf.constant(BLOCK_NUMBERS // masking.num_samples, tf.int64)
    size = tf.maximum(numbers // tf.maximum(width, 1), 1)

    def block_of(x, start):
        return x[start : start + size] if x.shape.rank == 2 else x

    def losses_at(start, matrices):
        block = rows._replace(**dict(zip(names, matrices)))
        return _block_loss(
            masking, start, block, *[block_of(x, start) for x in constants]
        )

    def fold(step, state):
        return tf.while_loop(
            lambda start, *_: start < batch,
            lambda start, *state: (start + size, *step(start, *state)),
            (tf.zeros([], tf.int64), *state),
            parallel_iterations=1,
        )[1:]

    @custom_gradient
    def losses_of(*matrices):
        # Out of sight of an eager tape, which would keep every block.
        unseen = [tf.stop_gradient(x) for x in matrices]

        def forward(start, losses):
            blocks = [block_of(x, start) for x in unseen]
            return [_write(losses, losses_at(start, blocks), start)]

        def grad(upstream):
            def backward(start, *grads):
                blocks = [block_of(x, start) for x in unseen]
                with tf.GradientTape() as tape:
                    tape.watch(blocks)
                    losses = losses_at(start, blocks)
                of_blocks = tape.gradient(
                    losses,
                    blocks,
                    upstream[start : start + size],
                    tf.UnconnectedGradients.ZERO,
                )
                return [_write(*x, start) for x in zip(grads, of_blocks)]

            empty = [library.ops.tfxclass_empty_like(x) for x in unseen]
            grads = fold(backward, empty)
            return first_order_gradients("DropMax's loss", grads, matrices)

        return fold(forward, [tf.zeros([batch])])[0], grad

    return losses_of(*[getattr(rows, name) for name in names])


def _write(matrix, rows, start):
    return library.ops.tfxclass_write_rows(matrix, rows, start)


def _block_loss(
    masking, start, rows, ids, label_weights, row_weights, class_weights
):
    targets = Targets(ids, label_weights)
    target = is_target(rows.logits, ids)
    is_posterior = rows.residual is not None
    # The logits of the probability that masks are sampled with.
    sampled = rows.retain
    if is_posterior:
        sampled = tf.stop_gradient(rows.retain) + rows.residual
    losses = masked_cross_entropy(
        rows.logits,
        _log_masks(masking, start, rows, sampled, target),
        targets,
        masking.margin,
    )
    losses = finished(losses, row_weights, masking.focal_gamma)

    def penalty(name):
        if name == "auxiliary_weight":
            return auxiliary_loss(rows.residual, target)
        if name == "entropy_weight":
            entropy = negative_entropy(rows.retain)
            return entropy if is_posterior else tf.where(target, 0.0, entropy)
        if is_posterior:
            return bernoulli_kl(sampled, rows.retain, target)
        return target_penalty(rows.retain, target)

    for name, weight in masking.weights.items():
        if weight:
            terms = class_weights * (weight * penalty(name))
            losses += tf.reduce_sum(terms, axis=1)
    return tf.where(targets.is_labelled > 0, losses, 0.0)


def _log_masks(masking, start, rows, sampled, target):
    """log z, float32 `[num_samples, rows, n]`; labels are always retained."""
    if masking.mode == "attention":
        # z is rho itself in equation 15, for labels, too.
        return tf.math.log_sigmoid(rows.retain)[tf.newaxis]
    shape = tf.concat([[masking.num_samples], tf.shape(rows.logits)], axis=0)
    draws = masking.draw(masking.seed, start, shape)
    if masking.mode == "random":
        log_masks = bernoulli_log_mask(rows.retain, draws)
    else:
        log_masks = concrete_log_mask(sampled, draws, masking.temperature)
    return tf.where(target, 0.0, log_masks)


def add_epsilon(masked: tf.Tensor) -> tf.Tensor:
    """log(z exp(o) + epsilon) of log z + o, as in equation 3."""
    top = tf.stop_gradient(tf.maximum(masked, _LOG_EPSILON))
    return top + tf.math.log(tf.exp(masked - top) + tf.exp(_LOG_EPSILON - top))


def uniform(
    shape: tf.Tensor | Sequence[Scalar], seed: tf.Tensor | Sequence[Scalar]
) -> tf.Tensor:
    """Draws in (0, 1), float32, the same for the same `seed`, ints `[2]`."""
    return tf.random.stateless_uniform(shape, seed, minval=_TINY, alg="philox")


def draws_of_block(
    seed: tf.Tensor, start: tf.Tensor, shape: tf.Tensor
) -> tf.Tensor:
    """Draws for the rows of a block, of which `start` is the first."""
    return uniform(shape, tf.random.experimental.stateless_fold_in(seed, start))


def concrete_log_mask(
    retain_logits: tf.Tensor, draws: tf.Tensor, temperature: float
) -> tf.Tensor:
    """log z of the concrete relaxation, differentiable by `retain_logits`.

    z = sigmoid((logit(rho) + logit(u)) / temperature), for samples u in (0, 1)
    (Maddison et al., The Concrete Distribution, ICLR 2017).
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
    _, at = places_of(columns)
    ones = tf.ones(tf.shape(at)[:1], tf.int32)
    return tf.scatter_nd(at, ones, shape) > 0


def masked_cross_entropy(
    logits: tf.Tensor,
    log_masks: tf.Tensor,
    targets: Targets,
    margin: Margin | None = None,
) -> tf.Tensor:
    """Cross-entropy of the masked softmax, the mean over samples of masks.

    The first term of equation 15, with p(c | z) of equation 5. `logits` are o
    `[batch, n]`, and `log_masks` are log z `[num_samples, batch, n]`.
    """
    num_samples, batch, width = tf.unstack(tf.shape(log_masks))
    masked = add_epsilon(logits + log_masks)
    masked = tf.reshape(masked, [num_samples * batch, width])
    repeated = targets.map(lambda x: tf.tile(x, [num_samples, 1]))
    losses = softmax_cross_entropy(masked, repeated, margin)
    return tf.reduce_mean(tf.reshape(losses, [num_samples, batch]), axis=0)


def target_penalty(retain_logits: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
    """-log rho of each target, 0 elsewhere: equation 10; `[batch, n]`."""
    return tf.where(target, tf.math.softplus(-retain_logits), 0.0)


def bernoulli_kl(
    posterior_logits: tf.Tensor, retain_logits: tf.Tensor, target: tf.Tensor
) -> tf.Tensor:
    """KL(q || rho) of each class, `[batch, n]`, where q of a target is 1."""
    kept, dropped = (
        tf.sigmoid(sign * posterior_logits)
        * (
            tf.math.log_sigmoid(sign * posterior_logits)
            - tf.math.log_sigmoid(sign * retain_logits)
        )
        for sign in (1.0, -1.0)
    )
    return tf.where(target, tf.math.softplus(-retain_logits), kept + dropped)


def auxiliary_loss(logits: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
    """Binary cross-entropy of each class: targets 1, others 0; `[batch, n]`."""
    return tf.math.softplus(tf.where(target, -logits, logits))


def negative_entropy(retain_logits: tf.Tensor) -> tf.Tensor:
    """rho log rho + (1 - rho) log(1 - rho), from -log 2 to 0."""
    signed = (sign * retain_logits for sign in (1.0, -1.0))
    return sum(tf.sigmoid(x) * tf.math.log_sigmoid(x) for x in signed)


def stationary_logits(
    kl_weight: float, auxiliary_weight: float, entropy_weight: float
) -> tuple[float, float]:
    """The logits at which the regularizers of a class are in balance.

    With rho = sigmoid(p) and q = sigmoid(p + r) their gradients are zero for

        kl_weight (rho - q) + entropy_weight rho (1 - rho) p = 0,
        auxiliary_weight sigmoid(r) + kl_weight q (1 - q) r = 0.

    Among several it is the one that gradient descent reaches from zeros, the
    greatest in p and in r. Returns `(p, r)`, from -10 to 0; -10 where there
    is no greater solution.
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


def expected_logits(
    logits: tf.Tensor, retain_logits: tf.Tensor | None = None
) -> tf.Tensor:
    """log(rho exp(o) + epsilon), whose softmax is equation 18; `[batch, n]`."""
    if retain_logits is None:
        return logits
    return _lifted(logits, tf.math.log_sigmoid(retain_logits))


def _lifted(logits, log_masks):
    """`add_epsilon` of masked logits; a class that was removed gets none."""
    lifted = add_epsilon(logits + log_masks)
    return tf.where(logits > REMOVED_LOGIT / 2, lifted, logits)


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
        return tf.nn.log_softmax(_lifted(logits, log_mask))

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
