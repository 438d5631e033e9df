"""Which of the classes that an index found are the hard ones."""

import tensorflow as tf

from tfxclass.ops import placement
from tfxclass.rows import products
from tfxclass.types import Variable

# Times the room that an index may give, and classes whose logits decide: at
# 670,091 classes and 6,700 places eight times these took 102 ms a step, the
# votes of hash tables alone 46.
_MOST_TIMES = 8
_MOST_RESCORED = 4096


def times_the_room(num_sampled: int) -> int:
    """How many times the room an index gives, of which logits decide."""
    return max(1, min(_MOST_TIMES, _MOST_RESCORED // num_sampled))


def log_masses(
    queries: tf.Tensor,
    target_ids: tf.Tensor,
    candidates: tf.Tensor,
    kernel: Variable,
    normalize: bool,
) -> tf.Tensor:
    """The logs of the probability that a batch gives each candidate, summed.

    Of a softmax over a row's labels and the candidates. The gradient of a
    class is as large as what its rows give it, so a class counts as it moves:
    a row that is sure of its labels gives little, however near the class, and
    one without labels nothing.

    Args:
        queries: float32 `[batch, dim]`, logits are `queries . rows`.
        target_ids: int64 `[batch, p]`, -1 is padding.
        candidates: int64 `[n]`, none of them a label of the batch.
        kernel: the class matrix.
        normalize: whether class rows are.

    Returns:
        float32 `[n]`.
    """

    def rows_of(ids):
        rows = placement.gather(kernel, ids)
        return products.normalize(rows) if normalize else rows

    logits = tf.matmul(queries, rows_of(candidates), transpose_b=True)
    labels = tf.einsum(
        "bd,bpd->bp", queries, rows_of(tf.maximum(target_ids, 0))
    )
    labels = tf.where(target_ids >= 0, labels, logits.dtype.min)
    # Two sums of exponentials about one shift, without [batch, p + n].
    shift = tf.maximum(
        tf.reduce_max(logits, axis=1), tf.reduce_max(labels, axis=1)
    )[:, tf.newaxis]
    masses = tf.exp(logits - shift)
    whole = tf.reduce_sum(masses, axis=1, keepdims=True)
    whole += tf.reduce_sum(tf.exp(labels - shift), axis=1, keepdims=True)
    # A row without labels has no loss.
    counts = tf.reduce_any(target_ids >= 0, axis=1, keepdims=True)
    shares = tf.where(counts, masses / whole, 0.0)
    return tf.math.log(tf.reduce_sum(shares, axis=0))
