"""What a pass of `recover` holds, before it is run."""

import keras

from tfxclass.layers.adaptive_projected_softmax import AdaptiveProjectedSoftmax
from tfxclass.layers.full_softmax import FullSoftmax
from tfxclass.layers.projected_softmax import ProjectedSoftmax
from tfxclass.recovery.feature_moments import block_ends
from tfxclass.recovery.step_recovery import rows_held_out
from tfxclass.rows import blocks

# Class matrices in full width: the sums, the result and that of the new head,
# two at a time, and a copy of the latter while it is written (measured).
_MATRICES = 3


def pass_bytes(head: keras.layers.Layer, dim: int, batch: int) -> int:
    """The most that recovery by a step holds beside the model, int.

    Args:
        head: any head; 0 where `recover` takes none of its kind.
        dim: int, width of the features.
        batch: int, rows of a batch.
    """
    heads = (ProjectedSoftmax, AdaptiveProjectedSoftmax, FullSoftmax)
    if not isinstance(head, heads):
        return 0
    if getattr(head, "similarity", "dot") != "dot":
        return 0
    ends = block_ends(dim)
    squares = sum((b - a) ** 2 for a, b in zip([0, *ends[:-1]], ends))
    # Sums in float64; inverses for three ridges, and one in the making.
    moments = (8 + 3 * 4 + 3 * 8) * squares
    held_out = 2 * 4 * rows_held_out(head.num_classes) * dim
    return (
        _MATRICES * 4 * head.num_classes * dim
        + moments
        + held_out
        + _block_bytes(head.num_classes, dim, batch)
    )


def _block_bytes(num_classes, dim, batch):
    """Rows of a block of classes, their sum's copy, and logits."""
    classes = max(blocks.BLOCK_LOGITS // batch, blocks.LEAST_BLOCK)
    return 4 * min(classes, num_classes) * (2 * dim + 3 * batch)
