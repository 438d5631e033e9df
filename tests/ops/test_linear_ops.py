"""Linear one-vs-rest on sparse rows, against its optimum in NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from tfxclass_text.linear_ops import SparseWeights
from tfxclass_text.linear_ops import linear_one_vs_rest


def ragged(lists, dtype=np.int64):
    splits = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    return splits, np.concatenate([np.zeros(0), *lists]).astype(dtype)


def make_rows(num_rows, num_features, num_labels, seed=0):
    """`(dense rows, 0/1 labels, sparse rows, label lists)`."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((num_rows, num_features)).astype(np.float32)
    x[random.random(x.shape) < 0.6] = 0
    y = random.random((num_rows, num_labels)) < 0.3
    features = [np.flatnonzero(row) for row in x]
    splits, ids = ragged(features)
    values = np.concatenate([row[f] for row, f in zip(x, features)])
    return x, y, (splits, ids, values), ragged([np.flatnonzero(r) for r in y])


def dense(weights, num_features):
    """`[num_features + 1, columns]`, the biases last."""
    result = np.zeros((num_features, len(weights.biases)), np.float32)
    features = np.repeat(np.arange(num_features), np.diff(weights.splits))
    result[features, weights.columns] = weights.values
    return np.concatenate([result, weights.biases[np.newaxis]])


def optimum(x, y, c, start=None):
    """Weights by Newton's method in float64, the bias last; one label."""
    x = np.concatenate([x, np.ones((len(x), 1))], axis=1).astype(np.float64)
    sign = np.where(y, 1.0, -1.0)
    w, center = np.zeros(x.shape[1]), np.zeros(x.shape[1])
    if start is not None:
        center = start.astype(np.float64)
    for _ in range(100):
        z = sign * (x @ w)
        slope = -2 * np.maximum(1 - z, 0)
        curve = 2.0 * (z < 1)
        gradient = w - center + c * x.T @ (sign * slope)
        if np.abs(gradient).max() < 1e-12:
            break
        w -= np.linalg.solve(np.eye(len(w)) + c * (x.T * curve) @ x, gradient)
    return w


@pytest.mark.parametrize("c", [0.1, 1.0])
def test_tree_of_optima(c):
    """Each group's labels are at the optimum over the group's own rows."""
    x, y, rows, labels = make_rows(60, 9, 70)
    groups = [np.array([3, 69, 0]), np.setdiff1d(np.arange(70), [0, 3, 69])]
    of_group = [np.arange(0, 60, 2), np.arange(5, 60)]
    weights = linear_one_vs_rest(
        rows, labels, ragged(groups), ragged(of_group), 9, 70, c,
        num_epochs=300,
    )  # fmt: skip
    found = dense(weights, 9)
    column = 0
    for group, of in zip(groups, of_group):
        for label in group:
            expected = optimum(x[of], y[of, label], c)
            # 300 epochs converge; what is left is float32's rounding.
            np.testing.assert_allclose(found[:, column], expected, atol=2e-4)
            column += 1


def test_seeds_and_thresholds():
    _, _, rows, labels = make_rows(50, 9, 5)
    every = ragged([np.arange(5)]), ragged([np.arange(50)])
    runs = [
        linear_one_vs_rest(rows, labels, *every, 9, 5, num_epochs=1, **options)
        for options in (
            {"seed": 1},
            {"seed": 1},
            {"seed": 2},
            {"seed": 1, "threshold": 0.2},
        )
    ]
    one, again, other, pruned = (dense(weights, 9) for weights in runs)
    np.testing.assert_array_equal(one, again)
    assert not np.allclose(one, other)
    kept = np.where(np.abs(one) < 0.2, 0, one)
    np.testing.assert_array_equal(pruned[:-1], kept[:-1])
    assert 0 < len(runs[3].values) < len(runs[0].values)


def sparse(matrix, biases):
    """`SparseWeights` of a matrix `[features, columns]`."""
    features, columns = np.nonzero(matrix)
    counts = np.bincount(features, minlength=len(matrix))
    return SparseWeights(
        np.concatenate([[0], np.cumsum(counts)]),
        columns.astype(np.int32),
        matrix[features, columns],
        biases,
    )


def test_weights_to_begin_with():
    """The penalty is on the distance from them; the changes are returned."""
    x, y, rows, labels = make_rows(60, 9, 70)
    every = ragged([np.arange(70)]), ragged([np.arange(60)])
    random = np.random.default_rng(1)
    center = random.standard_normal((10, 70)).astype(np.float32)
    center[random.random(center.shape) < 0.5] = 0
    changes = linear_one_vs_rest(
        rows, labels, *every, 9, 70, 0.5, num_epochs=300,
        start=sparse(center[:-1], center[-1]),
    )  # fmt: skip
    found = center + dense(changes, 9)
    for column in (0, 63, 64, 69):
        expected = optimum(x, y[:, column], 0.5, center[:, column])
        np.testing.assert_allclose(found[:, column], expected, atol=2e-4)


def test_features_of_one_row():
    """Their weights are not kept while the others are trained."""
    x, y, rows, labels = make_rows(60, 9, 70)
    alone = np.diag(np.linspace(0.5, 2, 60)).astype(np.float32)
    wide = np.concatenate([x, alone], axis=1)
    features = [np.flatnonzero(row) for row in wide]
    splits, ids = ragged(features)
    values = np.concatenate([row[f] for row, f in zip(wide, features)])
    every = ragged([np.arange(70)]), ragged([np.arange(60)])
    weights = linear_one_vs_rest(
        (splits, ids, values), labels, *every, 69, 70, 0.5, num_epochs=300
    )
    found = dense(weights, 69)
    for column in (0, 69):
        expected = optimum(wide, y[:, column], 0.5)
        np.testing.assert_allclose(found[:, column], expected, atol=2e-4)


def test_tolerance_ends_early():
    _, _, rows, labels = make_rows(50, 9, 5)
    every = ragged([np.arange(5)]), ragged([np.arange(50)])

    def train(epochs, tolerance):
        return dense(
            linear_one_vs_rest(
                rows, labels, *every, 9, 5, num_epochs=epochs,
                tolerance=tolerance,
            ), 9,
        )  # fmt: skip

    np.testing.assert_array_equal(train(50, 1e9), train(1, 0.0))
    assert not np.array_equal(train(50, 1e-6), train(1, 0.0))


def arguments(**changed):
    given = {
        "rows": (np.array([0, 1, 3]), np.array([0, 1, 2]), np.ones(3, "f4")),
        "labels": ragged([[0], [1]]),
        "group_labels": ragged([[0, 1]]),
        "group_rows": ragged([[0, 1]]),
        "num_features": 3,
        "num_labels": 2,
    }
    return {**given, **changed}


def rows_with(splits=(0, 1, 3), features=(0, 1, 2), values=(1.0, 1.0, 1.0)):
    return np.array(splits), np.array(features), np.array(values, np.float32)


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"rows": rows_with(splits=(0, 2, 1))}, "feature_splits"),
        ({"rows": rows_with(splits=(0, 4, 3))}, "feature_splits"),
        ({"rows": rows_with(splits=(1, 2, 3))}, "feature_splits"),
        ({"rows": rows_with(features=(0, 1, 3))}, r"`features` .*\[0, 3\)"),
        ({"rows": rows_with(features=(0, -1, 2))}, "Received: -1"),
        ({"rows": rows_with(values=(1.0, np.nan, 1.0))}, "`values`.*finite"),
        ({"rows": rows_with(values=(1.0, 2.0))}, "shape of `features`"),
        ({"rows": rows_with(values=(1.0, 1e20, 1.0))}, "squares .* row 1"),
        (
            {"rows": rows_with(values=(0, 0, 0)), "c": 3.4e38, "bias": 1e-30},
            "overflowed",
        ),
        ({"labels": ragged([[0], [2]])}, "`labels`"),
        ({"labels": ragged([[0]])}, "label_splits"),
        ({"group_labels": ragged([[0, 0]])}, "in one group, once"),
        ({"group_labels": ragged([[0], [1]])}, "group_row_splits"),
        ({"group_rows": ragged([[0, 2]])}, "`group_rows`"),
        ({"start": sparse(np.ones((2, 2)), np.ones(2))}, "start_splits"),
        ({"start": sparse(np.ones((3, 3)), np.ones(2))}, "start"),
        ({"start": sparse(np.ones((3, 2)), np.ones(3))}, "`start`.*3 biases"),
        ({"c": 0.0}, "`c` must be positive"),
        ({"c": np.nan}, "`c` must be positive"),
        ({"threshold": -1.0}, "at least 0"),
        ({"num_features": 2**40}, "below"),
    ],
)
def test_bad_input(changed, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        linear_one_vs_rest(**arguments(**changed))


@pytest.mark.parametrize("name", ["rows", "labels", "group_labels"])
def test_bad_ranks(name):
    given = list(arguments()[name])
    given[0] = given[0][np.newaxis]
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError)):
        linear_one_vs_rest(**arguments(**{name: tuple(given)}))


def test_without_rows():
    weights = linear_one_vs_rest(
        **arguments(rows=rows_with((0,), (), ()), labels=ragged([]),
                    group_rows=ragged([[]]))
    )  # fmt: skip
    np.testing.assert_array_equal(weights.biases, [0, 0])
    assert not len(weights.values)
