"""Neighbours of classes that were found before, kept by label: compiled ops."""

import tensorflow as tf

from tfxclass.ops import library
from tfxclass.ops.placement import handle_of
from tfxclass.types import Scalar
from tfxclass.types import Variable

for _op in ("RankNeighbors", "RecallNeighbors"):
    tf.no_gradient(f"Tfxclass>{_op}")


def recall(
    memory: Variable,
    recent: Variable,
    centres: Variable,
    products: tf.Tensor,
    labels: tf.Tensor,
    num_asked: Scalar,
    step: Scalar,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Which rows of a batch to search for, and what is known of all.

    Labels of recent rows are in tables of buckets. A row's bucket is a code of
    signs: of its products less their running means, which the products of each
    step move (by 1 / (step + 1), a hundredth at least). After it is read, a new
    label takes the place of another one.

    Args:
        memory: int64 variable `[slots, 2 + width]`: a label, the step of its
            last search, its neighbours, best first; -1 is padding. Label l
            has row `l % slots`.
        recent: int32 variable `[tables, 2**bits, places]`, the labels of
            each bucket, -1 is none.
        centres: float32 variable `[tables * bits]`, the running means.
        products: float32 `[n, tables * bits]`, of rows with random vectors.
        labels: int64 `[n]`, a label of each row, -1 is none.
        num_asked: int, how many rows to search for, at most n.
        step: int, the number of this step.

    Returns:
        `(asked, known)`, int64: `[num_asked]` rows whose labels were searched
        for longest ago; `[n, 2 * width + tables * places]`: each label's
        neighbors, the neighbors of one of these (in each step another one), and
        the labels that the row's buckets held; -1 is padding.

    Raises:
        InvalidArgumentError: shapes that do not go together, labels of 2^31
            and more, products that are not finite, more rows asked than there
            are.

    References:
        Petrovic, Osborne and Lavrenko, Streaming First Story Detection with
        Application to Twitter, NAACL 2010.
    """
    return library.ops.tfxclass_recall_neighbors(
        handle_of(memory),
        handle_of(recent),
        handle_of(centres),
        products,
        labels,
        num_asked,
        step,
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
    count: Scalar,
    step: Scalar,
    normalize: bool,
) -> tuple[tf.Tensor, tf.Tensor]:
    """The best of what is known and was found for each row; it is kept, too.

    One of the neighbors kept for a label, in each step another one, gets the
    label as its own neighbor, in its last place if all are taken: what is near
    is so in both directions.

    Args:
        memory, labels, step: of `recall`.
        kernel: float32 or bfloat16 variable `[num_classes, dim]`.
        queries: float32 `[n, dim]`; logits are `queries . rows`.
        target_ids: int64 `[n, p]`, -1 is padding.
        known: int64 `[n, m]`, -1 is padding.
        asked: int64 `[a]`, rows that were searched for.
        found: int64 `[a, k]`, what was found, -1 is padding.
        count: int, how many to return for a row.
        normalize: whether class rows are.

    Returns:
        `(ids, shares)`, int64 and float32 `[n, count]`: classes that are no
        targets of the row, best first, then -1, and what a softmax over its
        targets and all that is known and was found gives each. The first
        `width` are kept.

    Raises:
        InvalidArgumentError: shapes that do not go together, ids that are no
            classes, queries that are not finite.

    References:
        Dong et al., Efficient K-Nearest Neighbor Graph Construction for
        Generic Similarity Measures, WWW 2011, section 2.3 (reverse neighbours).
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
        count,
        step,
        normalize=normalize,
    )
