"""DropMax's training loss: masks, cross-entropy and regularisers of a step.

A step has logits of classes, and of rho and r. All that follows is of the
shape [num_samples, batch, classes], several times; it is held for some rows at
a time.
"""

from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import tensorflow as tf

from tfxclass.core.targets import Targets
from tfxclass.losses import dropmax
from tfxclass.losses.options import finished
from tfxclass.losses.row_blocks import in_row_blocks
from tfxclass.types import Margin


class Masking(NamedTuple):
    """How classes are dropped, and what that costs: see `DropMax`.

    Attributes:
        mode: str.
        num_samples: int, masks of a row.
        temperature: float, of the concrete relaxation.
        weights: dict, the weights of the mode's regularisers by name.
        margin: function of the target logits, or None.
        draw: function of a block's first row, an int64 scalar, and a shape
            `[num_samples, rows, n]`; returns uniform draws, float32.
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
    """What a step computed of its classes.

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
    """Cross-entropy of the masked softmax and the regularisers.

    Holds no matrix of the shape of the logits but those of `rows` and their
    gradients.

    Args:
        masking: `Masking`.
        rows: `Rows`.
        targets: `Targets` whose ids are columns.
        row_weights: float32 `[batch, 1]`, of the rows' cross-entropies.
        class_weights: float32 `[n]` or `[batch, n]`, of the regularisers of
            each class: ones, or a sample's inverse expected counts.

    Returns:
        float32 `[batch]`, 0 for rows without labels.
    """
    names = [k for k, x in rows._asdict().items() if _is_matrix(x)]

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


def _is_matrix(x):
    return x is not None and x.shape.rank == 2


def _block_loss(masking, start, rows, targets, row_weights, class_weights):
    target = dropmax.is_target(rows.logits, targets.ids)
    drawn_by = rows.retain
    if rows.residual is not None:
        drawn_by = tf.stop_gradient(rows.retain) + rows.residual
    log_masks = _log_masks(masking, start, rows.logits, drawn_by, target)
    losses = dropmax.masked_cross_entropy(
        rows.logits, log_masks, targets, masking.margin
    )
    losses = finished(losses, row_weights, masking.focal_gamma)
    for penalty in _penalties(masking, rows, drawn_by, target):
        losses += tf.reduce_sum(class_weights * penalty, axis=1)
    return tf.where(targets.is_labelled > 0, losses, 0.0)


def _log_masks(masking, start, logits, drawn_by, target):
    """log z, float32 `[num_samples, rows, n]`; 1 sample of attention."""
    if masking.mode == "attention":
        return tf.math.log_sigmoid(drawn_by)[tf.newaxis]
    shape = tf.concat([[masking.num_samples], tf.shape(logits)], axis=0)
    draws = masking.draw(start, shape)
    if masking.mode == "random":
        log_masks = dropmax.bernoulli_log_mask(drawn_by, draws)
    else:
        log_masks = dropmax.concrete_log_mask(
            drawn_by, draws, masking.temperature
        )
    return tf.where(target, 0.0, log_masks)


def _penalties(masking, rows, drawn_by, target):
    """The regularisers of each class, a list of float32 `[rows, n]`."""
    terms = {
        "kl_weight": lambda: (
            dropmax.target_penalty(rows.retain, target)
            if masking.mode == "adaptive"
            else dropmax.bernoulli_kl(drawn_by, rows.retain, target)
        ),
        "auxiliary_weight": lambda: dropmax.auxiliary_loss(
            rows.residual, target
        ),
        "entropy_weight": lambda: _negative_entropy(masking, rows, target),
    }
    return [
        weight * terms[name]()
        for name, weight in masking.weights.items()
        if weight
    ]


def _negative_entropy(masking, rows, target):
    """Of the classes whose rho is free: a target's is 1 in "adaptive"."""
    entropy = dropmax.negative_entropy(rows.retain)
    return (
        tf.where(target, 0.0, entropy)
        if masking.mode == "adaptive"
        else entropy
    )
