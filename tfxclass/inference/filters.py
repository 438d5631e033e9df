"""Answers without some classes, or among some, that a question names."""

import math
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfxclass.core.forward import flatten
from tfxclass.core.forward import unflatten
from tfxclass.core.targets import require
from tfxclass.layers.head_config import REMOVED_LOGIT
from tfxclass.layers.head_config import live_ids
from tfxclass.layers.output_head import OutputHead
from tfxclass.rows.best import mask_missing
from tfxclass.rows.best import nan_last
from tfxclass.types import Array

EXCLUDE, ONLY, BOOST = "exclude", "only", "boost"
#: Name of the input with the ids, by kind of filter.
INPUTS = {EXCLUDE: "exclude_ids", ONLY: "only_ids", BOOST: "boost_ids"}
#: Ids that a request may exclude where its width is not known beforehand.
MAX_EXCLUDED = 64


def kind_of(
    exclude: bool | int | keras.KerasTensor,
    only: bool | int,
    inputs: Sequence[keras.KerasTensor],
    boost: float | None = None,
) -> str | None:
    """`EXCLUDE`, `ONLY`, `BOOST` or None.

    Raises:
        ValueError: several, or one of the inputs has the name of the filter's.
    """
    kinds = {
        EXCLUDE: exclude is not False,
        ONLY: only is not False,
        BOOST: boost is not None,
    }
    given = [kind for kind, is_given in kinds.items() if is_given]
    if len(given) > 1:
        raise ValueError(
            "Give one of `exclude`, `only` and `boost`, and leave excluded ids "
            f"out of `only_ids`. Received: exclude={exclude}, only={only}, "
            f"boost={boost}"
        )
    if given and not isinstance(exclude, keras.KerasTensor):
        check_free(given, inputs)
    return given[0] if given else None


def check_excluded(
    exclude: keras.KerasTensor, inputs: Sequence[keras.KerasTensor]
) -> None:
    """Refuses a tensor of ids that does not fit the inputs of a model.

    Raises:
        ValueError: another rank or dtype, or no tensor of the model's inputs.
    """
    is_integer = tf.as_dtype(exclude.dtype).is_integer
    if not is_integer or len(exclude.shape) != 2:
        raise ValueError(
            "`exclude` must hold integers of shape [batch, p], padded with -1. "
            f"Received: dtype={exclude.dtype}, shape={exclude.shape}"
        )
    try:
        keras.Model(inputs, exclude)
    except ValueError as error:
        raise ValueError(
            "`exclude` must be computed from the inputs of the model. "
            f"Received: {exclude!r}, which needs other inputs."
        ) from error


def check_free(
    kinds: Iterable[str], inputs: Sequence[keras.KerasTensor]
) -> None:
    """Raises ValueError where an input has the name of a filter's."""
    wanted = {INPUTS[kind] for kind in kinds}
    taken = sorted(wanted & {x.name for x in inputs})
    if taken:
        raise ValueError(
            "An input of the model must not have the name of a filter. "
            f"Received: {taken!r}"
        )


def filtered_top_k(
    head: OutputHead,
    features: tf.Tensor,
    ids: Array,
    k: int,
    kind: str,
    search: Any = None,
    most: int = MAX_EXCLUDED,
    boost: float | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """The k best classes of a head: without `ids`, among them, or with them
    raised.

    Args:
        head, features, k: as for `head.top_k`.
        ids: integers `[batch, p]`, -1 is padding.
        kind: `EXCLUDE`, `ONLY` or `BOOST`.
        search: what finds classes and logits, by default the head.
        most: int, ids of a row for which there is room where p is not known
            while a step is traced.
        boost: float > 0, what `BOOST` adds to the logits of `ids`, where
            repeated ids count once.

    """
    ids = checked_ids(ids, features, head)
    rows, search = flatten(features), search or head
    if kind in (ONLY, BOOST):
        ids = live_ids(ids, head.removed)
    if kind == ONLY:
        found = among(head, search.logits_of(rows, ids), ids, k)
    elif kind == BOOST:
        found = _boosted(head, rows, ids, k, boost, search)
    else:
        n, ids = places_for(k, ids, head, most)
        best, scores = search.top_k(rows, n)
        found = without(best, scores, ids, k)
    return tuple(unflatten(x, features) for x in found)


def check_boost(boost: float | None, head: OutputHead) -> float | None:
    """`boost` as a float, or None.

    Raises:
        ValueError: no finite number > 0, or a head whose scores are no softmax,
            sigmoids or logits of one class vector each.
    """
    if boost is None:
        return None
    is_number = isinstance(boost, (int, float)) and not isinstance(boost, bool)
    if not (is_number and 0 < boost < math.inf):
        raise ValueError(
            "`boost` must be a finite number > 0, which is added to logits. "
            f"Received: {boost!r}"
        )
    kinds = ("softmax", "sigmoid", None)
    if not head.has_plain_logits or head.activation not in kinds:
        raise ValueError(
            "`boost` needs a head with one class vector for each class. "
            f"Received: {type(head).__name__} with activation="
            f"{head.activation!r}"
        )
    return float(boost)


def _boosted(head, rows, ids, k, boost, search):
    """The best classes of rows, if `boost` is added to the logits of `ids`."""
    # A class that is not boosted is among the best k only if it was before.
    best, scores = search.top_k(rows, k)
    ids = _distinct(ids)
    logits = search.logits_of(rows, tf.concat([best, ids], axis=1))
    boosts = head.answer_scale * boost * tf.cast(ids >= 0, tf.float32)
    boosts = tf.pad(boosts, [[0, 0], [tf.shape(best)[1], 0]])
    logits = head.answer_scale * logits
    changed = logits + boosts
    if head.activation == "softmax":
        # log Z of all classes, from the best one's probability.
        log_z = logits[:, :1] - tf.math.log(scores[:, :1])
        more = tf.exp(logits - log_z) * tf.math.expm1(boosts)
        more = tf.reduce_sum(more, axis=1, keepdims=True)
        values = tf.exp(changed - log_z) / (1 + more)
    elif head.activation == "sigmoid":
        values = tf.sigmoid(changed)
    else:
        values = changed
    # What is boosted counts once.
    best = tf.where(_are_in(best, ids), tf.constant(-1, tf.int64), best)
    ids = tf.concat([best, ids], axis=1)
    changed = tf.where(ids >= 0, nan_last(changed), float("-inf"))
    return _best_first(changed, ids, values, k)


def _best_first(keys, ids, scores, k):
    """`(ids, scores)` `[rows, k]`, those with the greatest keys first."""
    _, order = tf.math.top_k(keys, k)
    return mask_missing(
        *(tf.gather(x, order, axis=1, batch_dims=1) for x in (ids, scores))
    )


def _distinct(ids):
    """`ids` `[rows, p]`, sorted, -1 in place of repeated ones."""
    ids = tf.sort(ids, axis=1)
    before = tf.pad(ids, [[0, 0], [1, 0]], constant_values=-1)[:, :-1]
    return tf.where(ids != before, ids, tf.constant(-1, tf.int64))


def checked_ids(ids: Array, features: tf.Tensor, head: OutputHead) -> tf.Tensor:
    """Ids `[batch, p]` as int64 `[rows, p]`, a row for each of the features.

    Positions of a sequence share the ids of their row.

    Raises:
        ValueError: no integers, or another rank.
        InvalidArgumentError: ids outside `[-1, num_classes)`.
    """
    ids = tf.convert_to_tensor(ids)
    if not ids.dtype.is_integer or ids.shape.rank != 2:
        raise ValueError(
            "The ids of a filter must be integers of shape [batch, p], padded "
            f"with -1. Received: dtype={ids.dtype.name} of shape {ids.shape}"
        )
    ids = tf.cast(ids, tf.int64)
    check = require(
        tf.reduce_all((ids >= -1) & (ids < head.num_classes)),
        "ids_of_a_filter_must_be_less_than_num_classes",
        "The ids of a filter must be in [0, num_classes), or -1 for padding. "
        f"Received: num_classes={head.num_classes} with ids from .. to",
        tf.reduce_min(ids),
        tf.reduce_max(ids),
    )
    with tf.control_dependencies([] if check is None else [check]):
        ids = tf.identity(ids)
    if features.shape.rank == 2:
        return ids
    positions = tf.reduce_prod(tf.shape(features)[1:-1])
    return tf.repeat(ids, positions, axis=0)


def places_for(
    k: int, ids: tf.Tensor, head: OutputHead, most: int = MAX_EXCLUDED
) -> tuple[int, tf.Tensor]:
    """How many classes have to be found, so that `k` are left without `ids`.

    Returns `(n, ids)`: int, and the ids `[rows, p]`. Where p is not known while
    a step is traced, more than `most` are an InvalidArgumentError in the step.
    """
    if ids.shape[1] is not None:
        return min(k + ids.shape[1], head.num_answers), ids
    n = min(k + most, head.num_answers)
    check = require(
        (tf.shape(ids)[1] <= most) | (n == head.num_answers),
        "too_many_exclude_ids",
        f"`exclude_ids` may have at most {most} ids a row in this model. "
        "Fix: exclude=p, for p ids a row. Received: exclude_ids of shape",
        tf.shape(ids),
    )
    with tf.control_dependencies([] if check is None else [check]):
        return n, tf.identity(ids)


def without(
    ids: tf.Tensor, scores: tf.Tensor, excluded: tf.Tensor, k: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """The first `k` of the answers `[rows, n]` that are not excluded.

    Ids are -1 and scores 0 where fewer are left.
    """
    is_out = _are_in(ids, excluded) | (ids < 0)
    # A column more for each answer that there may be too few of.
    # Not with True, which tf2onnx does not convert.
    is_out = ~tf.pad(~is_out, [[0, 0], [0, k]])
    ids = tf.pad(ids, [[0, 0], [0, k]], constant_values=-1)
    scores = tf.pad(scores, [[0, 0], [0, k]])
    order = tf.argsort(tf.cast(is_out, tf.int32), axis=1, stable=True)[:, :k]
    ids, scores, is_out = (
        tf.gather(x, order, axis=1, batch_dims=1) for x in (ids, scores, is_out)
    )
    none = tf.constant(-1, tf.int64)
    return tf.where(is_out, none, ids), tf.where(is_out, 0.0, scores)


def _are_in(ids, others):
    """Which of `ids` `[rows, n]` are among `others` `[rows, p]`, bool."""
    # Sorted, for [rows, n, p] may be great. One more, so that there is one.
    others = tf.pad(tf.sort(others, axis=1), [[0, 0], [1, 0]], "CONSTANT", -1)
    places = tf.searchsorted(others, ids, side="right") - 1
    found = tf.gather(others, tf.maximum(places, 0), axis=1, batch_dims=1)
    return tf.equal(found, ids)


def among(
    head: OutputHead, logits: tf.Tensor, ids: tf.Tensor, k: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """The `k` best of the classes `ids` `[rows, q]`, given their logits.

    -1 is padding, and repeated ids count once. Returns `(ids, scores)` `[rows,
    k]`, as `without`. A softmax is over the classes of a row.
    """
    # Repeated ids are neighbours.
    order = tf.argsort(ids, axis=1)
    ids, logits = (
        tf.gather(x, order, axis=1, batch_dims=1) for x in (ids, logits)
    )
    before = tf.pad(ids, [[0, 0], [1, 0]], constant_values=-1)[:, :-1]
    is_class = (ids >= 0) & (ids != before)
    is_class = tf.pad(is_class, [[0, 0], [0, k]])
    ids = tf.pad(ids, [[0, 0], [0, k]], constant_values=-1)
    logits = tf.pad(logits, [[0, 0], [0, k]])
    logits = tf.where(is_class, logits, REMOVED_LOGIT)
    scores = head.activate(logits) if head.activation else logits
    ids = tf.where(is_class, ids, -1)
    return _best_first(nan_last(logits), ids, scores, k)
