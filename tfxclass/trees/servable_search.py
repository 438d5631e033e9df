"""Beam search of a tree of classes with stock TensorFlow ops, for exports."""

import tensorflow as tf

from tfxclass.trees.tree import CLASS
from tfxclass.trees.tree import FIRST_CHILD
from tfxclass.trees.tree import FIRST_ROW
from tfxclass.trees.tree import NUM_CHILDREN

_NONE = float("-inf")


def top_k(
    queries: tf.Tensor,
    kernel: tf.Tensor,
    nodes: tf.Tensor,
    k: int,
    independent: bool,
    beam_width: int,
) -> tuple[tf.Tensor, tf.Tensor]:
    """The likeliest classes among those that a beam of nodes leads to.

    Arguments and results are as in `ops.class_tree.top_k`. Level by level,
    the `beam_width` likeliest inner nodes go on, until no node is likelier than
    the k-th class found. A class on a path that falls out of the beam is
    missed; what is found is ranked and scored exactly. Memory O(batch x
    beam_width x widest node x dim).
    """
    batch = tf.shape(queries)[0]

    def step(ids, scores, beam, beam_scores):
        children, logs = _open(queries, kernel, nodes, beam, independent)
        logs = tf.reshape(logs + beam_scores[..., tf.newaxis], [batch, -1])
        children = tf.reshape(children, [batch, -1])
        logs = tf.where(tf.math.is_nan(logs), _NONE, logs)
        classes = tf.gather(nodes, children)[..., CLASS]
        of_leaves = tf.where(classes >= 0, logs, _NONE)
        ids, scores = _best(
            tf.concat([ids, classes], axis=1),
            tf.concat([scores, of_leaves], axis=1),
            k,
        )
        # A child is never likelier than its parent.
        goes_on = (classes < 0) & (logs >= scores[:, -1:])
        inner = tf.where(goes_on, logs, _NONE)
        return ids, scores, *_best(children, inner, beam_width)

    # The only class, or the root as the beam.
    is_leaf = nodes.shape[0] == 1
    answers = _first_column(batch, k, 0.0 if is_leaf else _NONE)
    root = _first_column(batch, beam_width, _NONE if is_leaf else 0.0)
    ids, scores, _, _ = tf.while_loop(
        lambda ids, scores, beam, left: tf.reduce_any(left > _NONE),
        step,
        (*answers, *root),
        shape_invariants=tuple(
            tf.TensorShape([None, x]) for x in (k, k, beam_width, beam_width)
        ),
        parallel_iterations=1,
    )
    return tf.where(scores > _NONE, ids, -1), scores


def _first_column(batch, width, score):
    """Zeros as ids, and `score` in the first column, -inf in the others."""
    row = tf.one_hot(0, width, on_value=score, off_value=_NONE)
    scores = tf.tile(row[tf.newaxis], [batch, 1])
    return tf.zeros([batch, width], tf.int64), scores


def _open(queries, kernel, nodes, beam, independent):
    """Children of the nodes `beam` `[batch, w]`, and their log-probabilities.

    They are `[batch, w, most children]`; a node with fewer has 0 and -inf.
    """
    beam = tf.gather(nodes, beam)
    counts = beam[..., NUM_CHILDREN, tf.newaxis]
    offsets = tf.range(tf.reduce_max(counts))
    exists = offsets < counts
    num_rows = counts
    if not independent:
        num_rows = tf.where(counts == 2, tf.ones_like(counts), counts)
    row_offsets = tf.range(tf.reduce_max(num_rows))
    has_row = row_offsets < num_rows
    rows = tf.where(has_row, beam[..., FIRST_ROW, tf.newaxis] + row_offsets, 0)
    logits = tf.einsum("bd,bwrd->bwr", queries, tf.gather(kernel, rows))
    # The second child of two has no row, and logit 0.
    logits = tf.where(has_row, logits, 0.0)
    missing = tf.size(offsets) - tf.size(row_offsets)
    logits = tf.pad(logits, [[0, 0], [0, 0], [0, missing]])
    if independent:
        logs = tf.math.log_sigmoid(logits)
    else:
        logs = tf.nn.log_softmax(tf.where(exists, logits, _NONE))
    children = beam[..., FIRST_CHILD, tf.newaxis] + offsets
    return tf.where(exists, children, 0), tf.where(exists, logs, _NONE)


def _best(values, scores, count):
    """The `count` columns with the best scores: their values and scores."""
    scores, places = tf.math.top_k(scores, count)
    values = tf.gather(values, places, axis=1, batch_dims=1)
    width = tf.TensorShape([None, count])
    return tf.ensure_shape(values, width), tf.ensure_shape(scores, width)
