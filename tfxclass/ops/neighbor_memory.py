"""Neighbours of classes that were found before, kept by label: compiled ops."""

import tensorflow as tf

from tfxclass.ops import library
from tfxclass.ops.index import handle_of
from tfxclass.types import Scalar
from tfxclass.types import Variable

tf.no_gradient("Tfxclass>RankNeighbors")


def recall(
    memory: Variable, labels: tf.Tensor, num_asked: Scalar, step: Scalar
) -> tuple[tf.Tensor, tf.Tensor]:
    """Which rows of a batch to search for, and what is known of all.

    Args:
        memory: int64 variable `[slots, 2 + width]`: a label, the step of its
            last search, its neighbours, best first; -1 is padding. Label l
            has row `l % slots`.
        labels: int64 `[n]`, -1 is none.
        num_asked: int, how many rows to search for, at most n.
        step: int, the number of this step.

    Returns:
        `(asked, known)`, int64: `[num_asked]` rows whose labels were searched
        for longest ago; `[n, 2 * width]` each label's neighbours and those of
        one of them, each step another one's, padded with -1.

    Raises:
        InvalidArgumentError: another memory, or more rows asked than there are.
    """
    return library.ops.tfxclass_recall_neighbors(
        handle_of(memory), labels, num_asked, step
    )


def rank(
    memory: Variable,
    kernel: Variable,
    queries: tf.Tensor,
    target_ids: tf.Tensor,
    labels: tf.Tensor,
    known: tf.Tensor,
    asked: tf.Tensor,
    found: tf.Tensor,
    step: Scalar,
    normalize: bool,
) -> tuple[tf.Tensor, tf.Tensor]:
    """The best of what is known and was found for each row; it is kept, too.

    Args:
        memory, labels, step: of `recall`.
        kernel: float32 or bfloat16 variable `[num_classes, dim]`.
        queries: float32 `[n, dim]`; logits are `queries . rows`.
        target_ids: int64 `[n, p]`, -1 is padding.
        known: int64 `[n, m]`, -1 is padding.
        asked: int64 `[a]`, rows that were searched for.
        found: int64 `[a, k]`, what was found, -1 is padding.
        normalize: whether class rows are.

    Returns:
        `(ids, shares)`, int64 and float32 `[n, max(k, width)]`: classes that
        are no targets of the row, best first, then -1, and what a softmax
        over its targets and all that is known and was found gives each.

    Raises:
        InvalidArgumentError: shapes that do not go together, ids that are no
            classes, queries that are not finite.
    """
    return library.ops.tfxclass_rank_neighbors(
        handle_of(memory),
        handle_of(kernel),
        queries,
        target_ids,
        labels,
        known,
        asked,
        found,
        step,
        normalize=normalize,
    )
