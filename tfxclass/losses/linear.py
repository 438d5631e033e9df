"""Cross-entropy of features and class matrices, without their logits."""

from collections.abc import Sequence

import tensorflow as tf

from tfxclass.core.targets import Targets
from tfxclass.rows import loss
from tfxclass.rows.class_matrix import ClassRows
from tfxclass.rows.class_matrix import in_blocks
from tfxclass.types import Margin


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


def block_cross_entropy(
    queries: Sequence[tf.Tensor], kernels: Sequence[tf.Tensor], targets: Targets
) -> tf.Tensor:
    """Cross-entropy of one softmax over the classes of all `kernels`.

    Classes are numbered consecutively, so the classes of the second matrix
    follow those in the first.

    Args:
        queries: list of float32 `[batch, width_i]`. The logits of matrix i are
            `queries[i] . rows`.
        kernels: list of float32 tensors `[size_i, width_i]` of known sizes.
        targets: `Targets`.

    Returns:
        float32 `[batch]`, as `linear_cross_entropy`.
    """
    return loss.cross_entropy(list(zip(queries, in_blocks(kernels))), targets)
