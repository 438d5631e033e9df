"""Passes over the class matrix in blocks, for inference."""

import tensorflow as tf

from tfxclass.losses import softmax
from tfxclass.ops import library


def inverse_norms(kernel):
    """1 / norm of each row (0 for a zero row), float32 `[num_classes]`."""
    return tf.math.divide_no_nan(1.0, tf.norm(kernel, axis=1))


def top_k(queries, kernel, k, bias=None, normalize=False, probabilities=False):
    """The k best classes of each query: exact, never [batch, num_classes].

    Args:
        queries: float32 `[batch, dim]`.
        kernel: float32 `[num_classes, dim]`.
        k: int, at most `num_classes`.
        bias: float32 `[num_classes]`, or None.
        normalize: whether rows are normalised.
        probabilities: scores are softmax probabilities, else logits.

    Returns:
        `(ids, scores)`: int64 and float32 `[batch, k]`, best first, equal
        scores by rising id. NaN logits are never among them; ids are -1
        where fewer than k are left.
    """
    ids, scores, logsumexp = top_k_and_logsumexp(
        queries, kernel, k, bias, normalize, probabilities
    )
    if probabilities:
        scores = tf.exp(scores - logsumexp)
    return ids, scores


def top_k_and_logsumexp(
    queries, kernel, k, bias=None, normalize=False, with_logsumexp=True
):
    """`(ids, logits, logsumexp)`: as `top_k`, and float32 `[batch, 1]`."""
    blocks = softmax.Blocks(kernel, bias, normalize, tf.shape(queries)[0])
    return best_of_blocks(blocks, queries, k, with_logsumexp)


def best_of_blocks(blocks, queries, k, with_logsumexp=True):
    """As `top_k_and_logsumexp`, for a `softmax.Blocks`."""
    batch = tf.shape(queries)[0]
    nothing = tf.fill([batch, 1], tf.constant(-1, tf.int64))
    no_delta = tf.zeros([batch, 1])

    def step(start, scores, ids, top, total):
        logits = blocks.logits(queries, start, blocks.rows(start))
        scores, ids = library.ops.tfxclass_top_k_block(
            logits, start, scores, ids
        )
        if with_logsumexp:
            top, total = library.ops.tfxclass_softmax_block_stats(
                logits, nothing, no_delta, start, top, total
            )
        return scores, ids, top, total

    scores, ids, top, total = blocks.fold(
        step,
        (
            tf.fill([batch, k], float("-inf")),
            tf.fill([batch, k], tf.constant(-1, tf.int64)),
            *softmax.empty_stats(batch),
        ),
    )
    return ids, scores, (top + tf.math.log(total))[:, tf.newaxis]


def best_of_logits(logits, k):
    """`(ids, scores)` as `top_k`, of logits `[batch, num_classes]`."""
    batch = tf.shape(logits)[0]
    scores, ids = library.ops.tfxclass_top_k_block(
        logits,
        tf.zeros([], tf.int64),
        tf.fill([batch, k], float("-inf")),
        tf.fill([batch, k], tf.constant(-1, tf.int64)),
    )
    return ids, scores


def _all_logits(queries, kernel, bias, normalize):
    logits = tf.matmul(queries, kernel, transpose_b=True)
    logits = logits * inverse_norms(kernel) if normalize else logits
    return logits if bias is None else logits + bias


def top_logits(queries, kernel, k, bias=None, normalize=False):
    """The k greatest logits of each query, falling, float32 `[batch, k]`.

    For a diagnosis: k may be large, and [batch, num_classes] is held.
    """
    logits = _all_logits(queries, kernel, bias, normalize)
    return tf.math.top_k(logits, k).values


def top_probabilities(queries, kernel, k, bias=None, normalize=False):
    """The k greatest probabilities of each query, as `top_logits`."""
    logits = _all_logits(queries, kernel, bias, normalize)
    return tf.math.top_k(tf.nn.softmax(logits), k).values
