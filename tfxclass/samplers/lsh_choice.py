"""Which of the classes that LSH tables give, or gave before, a step has."""

from typing import Any

import keras
import tensorflow as tf

from tfxclass.ops import placement
from tfxclass.ops.active_classes import ActiveClasses
from tfxclass.rows import norms
from tfxclass.samplers.candidates import candidate_count
from tfxclass.samplers.candidates import free_slots
from tfxclass.samplers.candidates import oversampling
from tfxclass.samplers.sample_size import count_labels
from tfxclass.types import Variable


def _times(sampler):
    """How many times the room votes give."""
    if sampler.rerank_factor is not None:
        return sampler.rerank_factor
    if sampler.correction != "fill":
        return 1
    return oversampling(sampler.num_sampled)


def choose_classes(
    sampler: keras.layers.Layer,
    asked: tf.Tensor,
    valid: tf.Tensor,
    queries: tf.Tensor,
    target_ids: tf.Tensor,
    kernel: Variable,
) -> tuple[Any, ActiveClasses]:
    """`(found, chosen)`: what the tables gave, and the classes of the step.

    Args:
        sampler: an `LSHSampler`.
        asked, valid: what its `hashed_queries` returned.
        queries, target_ids, kernel: of `Sampler.sample`.
    """
    room = free_slots(target_ids, _size(sampler, target_ids))
    budget = candidate_count(room, sampler.neighbor_fraction)
    propose = _from_votes
    if sampler.neighbor_cache is not None:
        propose = _from_cache
    found, ids, scores = propose(
        sampler, asked, valid, queries, target_ids, kernel, room, budget
    )
    chosen = sampler.choose(
        target_ids,
        candidates=ids,
        scores=scores,
        candidate_share=sampler.neighbor_fraction,
        sample_overflow=False,
    )
    return found, chosen


def _size(sampler, target_ids):
    return sampler.size_for(count_labels(target_ids))


def _query(sampler, asked, valid, target_ids, pool):
    most = _times(sampler) * _size(sampler, target_ids)
    return sampler.index.query(
        asked, valid, target_ids, most, pool, sampler.next_seed()
    )


def _from_votes(
    sampler, asked, valid, queries, target_ids, kernel, room, budget
):
    """`(found, ids, scores)`: tables are read for all rows."""
    times, pool = _times(sampler), budget
    if times > 1:  # the logits decide, of no fewer for many labels
        most = candidate_count(
            _size(sampler, target_ids), sampler.neighbor_fraction
        )
        pool = times * tf.minimum(room, most)
    found = _query(sampler, asked, valid, target_ids, pool)
    ids = found.candidates
    if times == 1:
        return found, ids, tf.zeros_like(ids, tf.float32)
    scores = _candidate_log_scores(
        queries, target_ids, ids, kernel, sampler.normalize
    )
    return found, ids, scores


def _from_cache(
    sampler, asked, valid, queries, target_ids, kernel, room, budget
):
    """As `_from_votes`: tables for some examples, the cache for others."""
    times, batch = _times(sampler), tf.shape(queries, tf.int64)[0]
    wanted = times * (budget // tf.maximum(batch, 1) + 1)
    pool = sampler.searched_fraction() * tf.cast(times * budget, tf.float32)
    pool = tf.maximum(tf.cast(pool, tf.int64), wanted)
    cache, step = sampler.neighbor_cache, tf.convert_to_tensor(sampler.step)
    recalled = cache.recall(queries, target_ids, step)
    rows = recalled.asked
    found = _query(
        sampler,
        tf.gather(asked, rows),
        tf.gather(valid, rows),
        target_ids,
        pool,
    )
    shape = [tf.size(rows), tf.size(found.candidates)]
    ids, shares = cache.rank(
        recalled,
        tf.broadcast_to(found.candidates, shape),
        queries,
        target_ids,
        kernel,
        tf.minimum(wanted, sampler.num_classes),
    )
    return found, ids, shares


def _candidate_log_scores(
    queries: tf.Tensor,
    target_ids: tf.Tensor,
    candidates: tf.Tensor,
    kernel: Variable,
    normalize: bool,
) -> tf.Tensor:
    """The logs of the probability that a batch gives each candidate, summed.

    The probabilities are a softmax over a row's labels and the candidates. The
    gradient of a class is as large as what its rows give it, so a class counts
    as it moves: a row that is sure of its labels gives little, however near the
    class, and one without labels nothing.

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
        return norms.normalize(rows) if normalize else rows

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
