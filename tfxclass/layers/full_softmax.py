"""The exact softmax, without its memory."""

import keras

from tfxclass.layers.class_head import ClassHead
from tfxclass.losses.objectives import ALL_OBJECTIVES


@keras.saving.register_keras_serializable("tfxclass")
class FullSoftmax(ClassHead):
    """Exact softmax that never holds the [batch, num_classes] matrix.

    Or, with `loss="sigmoid"` or `"squared_hinge"`, exact independent labels.

    The honest baseline, and the right head up to some ten thousand classes. A
    step costs four products of [batch, dim] by [dim, num_classes] and moves
    every row. On a CPU a training step with an optimizer of
    `tfxclass.optimizers` holds neither logits nor the gradient of `kernel`:
    rows move as soon as their part of it is there. Where the gradient has to be
    whole (clipping, accumulation, constraints, a loss scale, a strategy,
    `run_eagerly`; options of the loss that change logits) and with Keras'
    optimizers it is one tensor, with the same numbers but for rounding.
    Products are float32 under every policy: see `docs/exact.md`.
    Other losses hold a block of logits (8 MiB, and from 2,048 rows on 4 KiB a
    row) beside the gradient.

    Args:
        num_classes: int, number of classes.
        **kwargs: `ClassHead`'s arguments.

    Example:

    >>> head = tfxclass.layers.FullSoftmax(num_classes=10_000)
    >>> model = keras.Sequential([encoder, head])
    >>> model.compile("adam", loss=head.loss)

    References:
        Wijmans et al., Cut Your Losses in Large-Vocabulary Language Models,
        2024 (blocks in both passes).
    """

    loss_kinds = ALL_OBJECTIVES

    @property
    def steps_by_class(self) -> bool:
        return self.is_exact_softmax
