"""Fallback of linear one-vs-rest classifiers, in NumPy.

Dual coordinate descent as the op does it, all labels of a group side by side;
rows are visited in another random order.
"""

import numpy as np
import tensorflow as tf

from tfxclass.ops.fallback.registry import Floats
from tfxclass.ops.fallback.registry import Ids
from tfxclass.ops.fallback.registry import InvalidInput
from tfxclass.ops.fallback.registry import check_finite
from tfxclass.ops.fallback.registry import fallback
from tfxclass.ops.fallback.registry import generator
from tfxclass.ops.fallback.registry import on_host


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
    """See `tfxclass.ops.linear.linear_one_vs_rest`."""
    if not c > 0:
        raise InvalidInput(f"`c` must be positive. Received: {c}")
    solve = _hinge if loss == "squared_hinge" else _logistic

    def run(*arrays):
        _check(arrays, num_features, num_labels)
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


def _check(arrays, num_features, num_labels):
    splits, features, values, _, labels, _, group_labels, _, rows = arrays[:9]
    start_splits, columns, start_values, biases = arrays[9:]
    check_finite("values", values)
    if len(features) != len(values):
        raise InvalidInput(
            f"`values` must have the shape of `features` {features.shape}. "
            f"Received: shape {values.shape}"
        )
    width = len(group_labels)
    if len(start_splits) and (
        len(start_splits) != num_features + 1
        or len(columns) != len(start_values)
        or len(biases) != width
    ):
        raise InvalidInput(
            f"`start` must have splits of {num_features} features, a value for "
            f"each column and a bias for each of {width} labels. Received: "
            f"{len(start_splits)} splits, {len(columns)} columns, "
            f"{len(start_values)} values and {len(biases)} biases"
        )
    for name, ids, bound in (
        ("start_columns", columns, width),
        ("features", features, num_features),
        ("labels", labels, num_labels),
        ("group_labels", group_labels, num_labels),
        ("group_rows", rows, len(splits) - 1),
    ):
        if np.any((ids < 0) | (ids >= bound)):
            raise InvalidInput(
                f"`{name}` must be in [0, {bound}). Received: {ids}"
            )
    if len(np.unique(group_labels)) != len(group_labels):
        raise InvalidInput(
            f"A label must be in one group, once. Received: {group_labels}"
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
