"""Fallbacks of the tagger's ops: linear classifiers in NumPy, counts of terms.

Dual coordinate descent as the op does it, all labels of a group side by side;
rows are visited in another random order.
"""

import numpy as np
import tensorflow as tf

from tfxclass.ops.fallback.registry import Floats
from tfxclass.ops.fallback.registry import Ids
from tfxclass.ops.fallback.registry import InvalidInput
from tfxclass.ops.fallback.registry import Strings
from tfxclass.ops.fallback.registry import check_choice
from tfxclass.ops.fallback.registry import check_finite
from tfxclass.ops.fallback.registry import check_number
from tfxclass.ops.fallback.registry import check_shape
from tfxclass.ops.fallback.registry import fallback
from tfxclass.ops.fallback.registry import generator
from tfxclass.ops.fallback.registry import on_host
from tfxclass_text import terms

_MOST_EPOCHS = 100_000
_MOST_TERMS = 64
# The ASCII bytes that are no digit and no lower-case letter.
_NO_WORD = r"[\x00-\x2f\x3a-\x60\x7b-\x7f]+"
_MOST_IDS = np.iinfo(np.int32).max - 1
_ARRAYS = (
    "feature_splits",
    "features",
    "values",
    "label_splits",
    "labels",
    "group_label_splits",
    "group_labels",
    "group_row_splits",
    "group_rows",
    "start_splits",
    "start_columns",
    "start_values",
    "start_biases",
)


@fallback
def linear_one_vs_rest(
    feature_splits: Ids,
    features: Ids,
    values: Floats,
    label_splits: Ids,
    labels: Ids,
    group_label_splits: Ids,
    group_labels: Ids,
    group_row_splits: Ids,
    group_rows: Ids,
    start_splits: Ids,
    start_columns: Ids,
    start_values: Floats,
    start_biases: Floats,
    num_features: int,
    num_labels: int,
    loss: str,
    c: float,
    bias: float,
    num_epochs: int,
    tolerance: float,
    threshold: float,
    seed: int,
) -> list[tf.Tensor]:
    """See `tfxclass_text.linear_ops.linear_one_vs_rest`."""
    _check_attributes(num_features, num_labels, loss, num_epochs)
    for name, value in (
        ("bias", bias),
        ("tolerance", tolerance),
        ("threshold", threshold),
    ):
        check_number(name, value, 0)
    if not 0 < c < np.inf:
        raise InvalidInput(f"`c` must be positive. Received: {c}")
    solve = _hinge if loss == "squared_hinge" else _logistic

    def run(*arrays):
        _check(arrays, num_features, num_labels, bias)
        rows, row_labels = arrays[:3], arrays[3:5]
        group_labels, group_rows = arrays[5:7], arrays[7:9]
        start = arrays[9:]
        parts, biases = [], []
        for group in range(len(group_labels[0]) - 1):
            ids = _of(group_labels, group)
            first = group_labels[0][group]
            weights, of_bias = _train(
                rows,
                row_labels,
                ids,
                _of(group_rows, group),
                _start(start, first, len(ids), num_features, bias),
                num_features,
                (solve, c, bias, num_epochs, tolerance, seed),
            )
            parts.append(
                (first, np.where(abs(weights) < threshold, 0, weights))
            )
            biases.append(bias * of_bias)
            if not np.all(np.isfinite(weights)):
                raise InvalidInput(
                    "Weights must be finite. Received: some that have "
                    "overflowed. Fix: scale the values, or a smaller `c`"
                )
        return _sparse(parts, biases, num_features)

    inputs = [feature_splits, features, values, label_splits, labels]
    inputs += [group_label_splits, group_labels, group_row_splits, group_rows]
    inputs += [start_splits, start_columns, start_values, start_biases]
    types = (tf.int64, tf.int32, tf.float32, tf.float32)
    shapes = [[num_features + 1], [None], [None], group_labels.shape]
    return on_host(run, types, inputs, shapes)


def _of(ragged, i):
    splits, ids = ragged
    return ids[splits[i] : splits[i + 1]]


def _check_attributes(num_features, num_labels, loss, num_epochs):
    check_choice("loss", loss, ("squared_hinge", "logistic"))
    for name, value, most in (
        ("num_features", num_features, _MOST_IDS),
        ("num_labels", num_labels, _MOST_IDS),
        ("num_epochs", num_epochs, _MOST_EPOCHS),
    ):
        check_number(name, value, 1)
        if value > most:
            raise InvalidInput(
                f"`{name}` must be at most {most}. Received: {value}"
            )


def _check_splits(name, splits, total, rows=None):
    if (
        not len(splits)
        or splits[0] != 0
        or splits[-1] != total
        or np.any(splits[1:] < splits[:-1])
        or rows not in (None, len(splits) - 1)
    ):
        raise InvalidInput(
            f"`{name}` must rise from 0 to the number of values, {total}"
            f"{'' if rows is None else f', with {rows} rows'}. Received: "
            f"shape {splits.shape}: {splits[:5]}"
        )


def _check_norms(splits, values, bias):
    """The squared norm of each row must be a float32."""
    squares = np.concatenate([[0], np.cumsum(values.astype(np.float64) ** 2)])
    norms = bias * bias + squares[splits[1:]] - squares[splits[:-1]]
    if np.any(norms > np.finfo(np.float32).max):
        raise InvalidInput(
            "The sum of the squares of a row's `values`, and of `bias`, must "
            f"be at most 3.4e38. Received: {norms.max()}. Fix: scale the values"
        )


def _check(arrays, num_features, num_labels, bias):
    for name, array in zip(_ARRAYS, arrays, strict=True):
        if array.ndim != 1:
            raise InvalidInput(
                f"`{name}` must have rank 1. Received: shape {array.shape}"
            )
    splits, features, values, label_splits, labels = arrays[:5]
    group_label_splits, group_labels, group_row_splits, rows = arrays[5:9]
    start_splits = arrays[9]
    check_finite("values", values)
    if len(features) != len(values):
        raise InvalidInput(
            f"`values` must have the shape of `features` {features.shape}. "
            f"Received: shape {values.shape}"
        )
    count, groups = len(splits) - 1, len(group_label_splits) - 1
    _check_splits("feature_splits", splits, len(features))
    _check_splits("label_splits", label_splits, len(labels), count)
    _check_splits("group_label_splits", group_label_splits, len(group_labels))
    _check_splits("group_row_splits", group_row_splits, len(rows), groups)
    _check_norms(splits, values, bias)
    width = len(group_labels)
    if len(start_splits):
        _check_start(arrays[9:], width, num_features)
    for name, ids, bound in (
        ("features", features, num_features),
        ("labels", labels, num_labels),
        ("group_labels", group_labels, num_labels),
        ("group_rows", rows, count),
    ):
        if np.any((ids < 0) | (ids >= bound)):
            raise InvalidInput(
                f"`{name}` must be in [0, {bound}). Received: {ids}"
            )
    if len(np.unique(group_labels)) != len(group_labels):
        raise InvalidInput(
            f"A label must be in one group, once. Received: {group_labels}"
        )


def _check_start(start, width, num_features):
    splits, columns, values, biases = start
    _check_splits("start_splits", splits, len(columns), num_features)
    if len(values) != len(columns) or len(biases) != width:
        raise InvalidInput(
            f"`start` must have a value for each of its {len(columns)} columns "
            f"and a bias for each of {width} labels. Received: {len(values)} "
            f"values and {len(biases)} biases"
        )
    check_finite("start_values", values)
    check_finite("start_biases", biases)
    ascends = np.diff(columns) > 0
    ascends[[x - 1 for x in splits[1:-1] if 0 < x < len(columns)]] = True
    if not np.all(ascends) or np.any((columns < 0) | (columns >= width)):
        raise InvalidInput(
            "`start` must have columns that ascend within a feature, below "
            f"{width}. Received: {columns}"
        )


def _start(start, first, size, num_features, bias):
    """Weights [num_features, labels] and biases of a group, None without."""
    splits, columns, values, biases = start
    if not len(splits):
        return None
    weights = np.zeros((num_features, size), np.float32)
    own = (columns >= first) & (columns < first + size)
    features = np.repeat(np.arange(num_features), np.diff(splits))[own]
    weights[features, columns[own] - first] = values[own]
    return weights, biases[first : first + size] / np.float32(bias or 1)


def _train(rows, row_labels, ids, members, start, num_features, options):
    """Weights [num_features, labels] and biases, less those to begin with."""
    solve, c, bias, num_epochs, tolerance, seed = options
    duals = np.zeros((len(members), len(ids)), np.float32)
    is_new = start is None
    if is_new:
        shapes = (num_features, len(ids)), len(ids)
        start = [np.zeros(shape, np.float32) for shape in shapes]
    weights, of_bias = (x.copy() for x in start)
    if is_new and solve is _logistic and bias > 0:
        of_bias += _log_odds(row_labels, ids, members) / np.float32(bias)
    splits, features, values = rows
    for epoch in range(num_epochs):
        moved = 0.0
        for i in generator(seed, epoch).permutation(len(members)):
            at = slice(splits[members[i]], splits[members[i] + 1])
            x, of = values[at], features[at]
            y = np.where(np.isin(ids, _of(row_labels, members[i])), 1, -1)
            margins = y * (x @ weights[of] + bias * of_bias)
            norm = x @ x + bias * bias
            after = solve(duals[i], margins, norm, c)
            step = (after - duals[i]).astype(np.float32)
            duals[i] = after
            np.add.at(weights, of, x[:, np.newaxis] * (y * step))
            of_bias += bias * y * step
            moved += np.abs(step).sum()
        if moved < tolerance * duals.size:
            break
    return weights - start[0], of_bias - start[1]


def _log_odds(row_labels, ids, members):
    """Log-odds of each label, where the penalty of its bias is 0."""
    positives = np.zeros(len(ids), np.int64)
    for member in members:
        positives += np.isin(ids, _of(row_labels, member))
    negatives = len(members) - positives
    return np.log((positives + 0.5) / (negatives + 0.5))


def _hinge(duals, margins, norm, c):
    """Hsieh et al., 2008, algorithm 1."""
    diagonal = 0.5 / c
    gradient = margins - 1 + diagonal * duals
    return np.maximum(duals - gradient / (norm + diagonal), 0)


def _logistic(duals, margins, norm, c):
    """Newton on logit(a / c), as custom_ops/core/linear_dual.h has it."""
    low, high = -margins - norm * (c - duals), -margins + norm * duals
    with np.errstate(divide="ignore"):
        t = np.log(duals / (c - duals))
    t = np.where(np.isfinite(t), np.clip(t, low, high), (low + high) / 2)
    for _ in range(4):
        p = 1 / (1 + np.exp(-t))
        value = t + norm * (c * p - duals) + margins
        high = np.where(value > 0, t, high)
        low = np.where(value > 0, low, t)
        t = t - value / (1 + norm * c * p * (1 - p))
        t = np.clip(t, low, high)
    return c / (1 + np.exp(-t))


def _sparse(parts, biases, num_features):
    found = [np.nonzero(weights) for _, weights in parts]
    features = np.concatenate([[], *[x[0] for x in found]]).astype(np.int64)
    columns = [first + x[1] for (first, _), x in zip(parts, found)]
    columns = np.concatenate([[], *columns]).astype(np.int32)
    values = [weights[x] for (_, weights), x in zip(parts, found)]
    values = np.concatenate([[], *values]).astype(np.float32)
    order = np.argsort(features, kind="stable")
    counts = np.bincount(features, minlength=num_features)
    splits = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    biases = np.concatenate([[], *biases]).astype(np.float32)
    return splits, columns[order], values[order], biases


@fallback
def count_terms(
    texts: Strings, kind: str, shortest: int, longest: int
) -> list[tf.Tensor]:
    """See `tfxclass_text.text_terms.count_terms`."""
    check_shape("texts", texts, [None])
    check_choice("kind", kind, ("words", "chars"))
    check_number("shortest", shortest, 1)
    check_number("longest", longest, 1)
    if longest > _MOST_TERMS:
        raise InvalidInput(
            f"`longest` must be at most {_MOST_TERMS}. Received: {longest}"
        )
    if shortest > longest:
        splits = tf.zeros(tf.size(texts) + 1, tf.int64)
        return [splits, tf.zeros(0, tf.int64), tf.zeros(0)]
    words = tf.strings.lower(texts)
    words = tf.strings.strip(tf.strings.regex_replace(words, _NO_WORD, " "))
    read = terms.char_ngrams if kind == "chars" else terms.word_ngrams
    rows, hashes = read(words, shortest=shortest, longest=longest)
    order = tf.argsort(rows, stable=True)
    rows, hashes, counts = terms.count(
        tf.gather(rows, order), tf.gather(hashes, order)
    )
    splits = tf.searchsorted(rows, tf.range(tf.size(texts, tf.int64) + 1))
    return [tf.cast(splits, tf.int64), hashes, counts]
