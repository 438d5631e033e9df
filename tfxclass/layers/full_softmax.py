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
    every row; its memory is one block of logits (8 MiB, and from 2,048 rows on
    4 KiB a row) beside the gradient of `kernel`.

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

    kernel_dtypes = ("float32", "bfloat16")

    loss_kinds = ALL_OBJECTIVES
