"""Answers without some classes, or among some, that a question names."""

import math
from typing import Any
from typing import NamedTuple

import keras
import tensorflow as tf

from tfxclass.checks import check_number
from tfxclass.checks import check_optional_int
from tfxclass.checks import check_value
from tfxclass.core.forward import flatten
from tfxclass.core.forward import unflatten
from tfxclass.core.softmax import REMOVED_LOGIT
from tfxclass.core.targets import require
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


class Filter(NamedTuple):
    """What a question may say of the classes that are answers.

    `width` is how many ids of a row have room, or None where a question has an
    input for them, of any width. `BOOST` adds `boost` to the logits of ids.
    """

    kind: str
    width: int | None = None
    boost: float | None = None

    @property
    def room(self) -> int:
        """How many more classes than k are searched for, int."""
        return (self.width or MAX_EXCLUDED) if self.kind == EXCLUDE else 0

    def top_k(
        self,
        head: OutputHead,
        features: tf.Tensor,
        ids: Array,
        k: int,
        search: Any = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """As `head.top_k`: without `ids`, among them, or with them raised.

        Ids are integers `[batch, p]`, padded with -1. `search` finds classes
        and logits, by default the head.
        """
        ids = checked_ids(ids, features, head)
        rows, search = flatten(features), search or head
        if self.kind == EXCLUDE:
            n, ids = _places_for(k, ids, head, self.room)
            best, scores = search.top_k(rows, n)
            found = without(best, scores, ids, k)
        else:
            ids = distinct(live_ids(ids, head.removed))
            if self.kind == ONLY:
                found = among(head, search.logits_of(rows, ids), ids, k)
            else:
                found = _boosted(head, rows, ids, k, self.boost, search)
        return tuple(unflatten(x, features) for x in found)


def filters_of(
    head: OutputHead,
    encoder: keras.Model,
    exclude: bool | int | keras.KerasTensor = False,
    only: bool = False,
    boost: float | None = None,
) -> list[Filter]:
    """The filters that need an input, as arguments of `top_k` ask for them."""
    found = []
    if isinstance(exclude, keras.KerasTensor):
        _check_excluded(exclude, encoder)
    elif exclude is not False:
        width = None if exclude is True else exclude
        found.append(Filter(EXCLUDE, check_optional_int("exclude", width)))
    kind = "True or False: each question names its classes in an input"
    check_value("only", only, isinstance(only, bool), kind)
    if only:
        found.append(Filter(ONLY))
    if boost is not None:
        found.append(Filter(BOOST, boost=_checked_boost(boost, head)))
    wanted = {INPUTS[each.kind] for each in found}
    taken = sorted(wanted & {x.name for x in encoder.inputs})
    if taken:
        raise ValueError(
            "An input of the model must not have the name of a filter. "
            f"Received: {taken!r}"
        )
    return found


def single_filter(
    head: OutputHead,
    encoder: keras.Model,
    exclude: bool | int | keras.KerasTensor,
    only: bool,
    boost: float | None = None,
) -> Filter | None:
    """The one of `filters_of`; ValueError where arguments ask for several."""
    if (exclude is not False) + bool(only) + (boost is not None) > 1:
        raise ValueError(
            "Give one of `exclude`, `only` and `boost`, and leave excluded ids "
            f"out of `only_ids`. Received: exclude={exclude}, only={only}, "
            f"boost={boost}"
        )
    found = filters_of(head, encoder, exclude, only, boost)
    return found[0] if found else None


def _check_excluded(exclude, encoder):
    """Refuses a tensor of ids that does not fit the inputs of a model."""
    is_integer = tf.as_dtype(exclude.dtype).is_integer
    if not is_integer or len(exclude.shape) != 2:
        raise ValueError(
            "`exclude` must hold integers of shape [batch, p], padded with -1. "
            f"Received: dtype={exclude.dtype}, shape={exclude.shape}"
        )
    try:
        keras.Model(encoder.inputs, exclude)
    except ValueError as error:
        raise ValueError(
            "`exclude` must be computed from the inputs of the model. "
            f"Received: {exclude!r}, which needs other inputs."
        ) from error


def _checked_boost(boost, head):
    wanted = "a finite number > 0, which is added to logits"
    is_bool = isinstance(boost, bool)
    check_number(
        "boost", boost, lambda x: not is_bool and 0 < x < math.inf, wanted
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
    logits = search.logits_of(rows, tf.concat([best, ids], axis=1))
    boosts = head.answer_scale * boost * tf.cast(ids >= 0, tf.float32)
    boosts = tf.pad(boosts, [[0, 0], [tf.shape(best)[1], 0]])
    logits = head.answer_scale * logits
    changed = logits + boosts
    values = changed
    if head.activation == "softmax":
        # log Z of all classes, from the best one's probability.
        log_z = logits[:, :1] - tf.math.log(scores[:, :1])
        more = tf.exp(logits - log_z) * tf.math.expm1(boosts)
        more = tf.reduce_sum(more, axis=1, keepdims=True)
        values = tf.exp(changed - log_z) / (1 + more)
    elif head.activation == "sigmoid":
        values = tf.sigmoid(changed)
    # What is boosted counts once.
    best = tf.where(_are_in(best, ids), tf.constant(-1, tf.int64), best)
    ids = tf.concat([best, ids], axis=1)
    changed = tf.where(ids >= 0, nan_last(changed), float("-inf"))
    return _best_first(changed, ids, values, k)


def _best_first(keys, ids, scores, k):
    """`(ids, scores)` `[rows, k]`, those with the greatest keys first."""
    order = tf.math.top_k(keys, k).indices
    found = (tf.gather(x, order, axis=1, batch_dims=1) for x in (ids, scores))
    return mask_missing(*found)


def distinct(ids: tf.Tensor) -> tf.Tensor:
    """`ids` `[rows, p]`, sorted, -1 in place of repeated ones."""
    ids = tf.sort(ids, axis=1)
    before = tf.pad(ids, [[0, 0], [1, 0]], constant_values=-1)[:, :-1]
    return tf.where(ids != before, ids, tf.constant(-1, tf.int64))


def checked_ids(ids: Array, features: tf.Tensor, head: OutputHead) -> tf.Tensor:
    """Ids `[batch, p]` as int64 `[rows, p]`, a row for each of the features."""
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
    with check:
        ids = tf.identity(ids)
    if features.shape.rank == 2:
        return ids
    positions = tf.reduce_prod(tf.shape(features)[1:-1])
    return tf.repeat(ids, positions, axis=0)


def _places_for(k, ids, head, most):
    """`(n, ids)`: `k` of the n best classes are none of at most `most` ids."""
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
    with check:
        return n, tf.identity(ids)


def without(
    ids: tf.Tensor, scores: tf.Tensor, excluded: tf.Tensor, k: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """The first `k` answers that are not excluded, -1 with score 0 for none."""
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
    """The `k` best of `distinct` classes, given logits; softmax over these."""
    ids = tf.pad(ids, [[0, 0], [0, k]], constant_values=-1)
    logits = tf.pad(logits, [[0, 0], [0, k]])
    logits = tf.where(ids >= 0, logits, REMOVED_LOGIT)
    scores = head.activate(logits) if head.activation else logits
    return _best_first(nan_last(logits), ids, scores, k)
