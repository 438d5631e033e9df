"""Training along a label tree, and the layer that serves it, in NumPy."""

import keras
import numpy as np
import pytest

from tests.ops.test_linear_ops import dense
from tests.ops.test_linear_ops import make_rows
from tests.ops.test_linear_ops import optimum
from tests.ops.test_linear_ops import ragged
from tfxclass_text import linear_ops
from tfxclass_text import linear_tree
from tfxclass_text import sparse_linear
from tfxclass_text import sparse_rows
from tfxclass_text.linear_ops import SparseWeights
from tfxclass_text.linear_tree import train_linear
from tfxclass_text.sparse_linear import SparseLinear
from tfxclass_text.sparse_rows import LabeledRows
from tfxclass_text.sparse_rows import SparseRows


def make(num_rows=80, num_features=9, num_labels=24):
    x, y, rows, (splits, ids) = make_rows(num_rows, num_features, num_labels)
    y[:, 0] = False
    kept = ids != 0
    splits = np.concatenate([[0], np.cumsum(kept)])[splits]
    values = np.ones(kept.sum(), np.float32)
    return x, y, SparseRows(*rows), SparseRows(splits, ids[kept], values)


def sparse_of(full, biases):
    at, columns = np.nonzero(full)
    return SparseWeights(
        np.searchsorted(at, np.arange(len(full) + 1)),
        columns.astype(np.int32),
        full[at, columns].astype(np.float32),
        np.asarray(biases, np.float32),
    )


def test_flat_is_each_label_alone():
    x, y, rows, labels = make()
    weights, groups = train_linear(
        LabeledRows(rows, labels, 9, 24), c=0.5, num_epochs=300, threshold=0.0
    )
    assert groups is None
    found = dense(weights, 9)
    for label in (0, 7, 23):
        expected = optimum(x, y[:, label], 0.5)
        # 300 epochs converge; what is left is float32's rounding.
        np.testing.assert_allclose(found[:, label], expected, atol=2e-4)


def test_hard_negatives_batch_by_batch(monkeypatch):
    """Only the features of a few rows are made dense at once."""
    x, _, rows, _ = make()
    random = np.random.default_rng(3)
    full = random.normal(size=(9, 600)) * (random.random((9, 600)) < 0.5)
    weights = sparse_of(full, random.normal(size=600))
    shapes, zeros = [], np.zeros
    monkeypatch.setattr(
        linear_tree.np, "zeros", lambda s, *t: shapes.append(s) or zeros(s, *t)
    )
    monkeypatch.setattr(linear_tree, "_DENSE", 600)
    found = linear_tree.hard_negatives(rows, weights)
    assert sum(isinstance(shape, tuple) for shape in shapes) == len(rows)
    scores = x @ full + weights.biases
    # Rounding of float32 may decide where a score is the margin.
    margin = linear_tree._HARD_MARGIN
    assert np.abs(scores - margin).min() > 1e-6
    of_rows, groups = np.nonzero(scores > margin)
    np.testing.assert_array_equal(found.row_ids(), of_rows)
    np.testing.assert_array_equal(found.ids, groups)


def test_tree_in_numpy():
    """Groups of like labels; each label on its group's rows and those that
    the optimum of the first level takes for the group's."""
    x, _, rows, _ = make()
    random = np.random.default_rng(0)
    best = np.argmax(x @ random.normal(size=(9, 24)), axis=1)
    y = np.arange(24) == best[:, np.newaxis]
    ones = np.ones(80, np.float32)
    labels = SparseRows(np.arange(81), best, ones)
    weights, groups = train_linear(
        LabeledRows(rows, labels, 9, 24),
        4,
        c=0.5,
        num_epochs=300,
        threshold=0.0,
    )
    np.testing.assert_array_equal(np.bincount(groups), [6, 6, 6, 6])
    found = dense(weights, 9)
    assert found.shape == (10, 28)
    x = np.concatenate([x, ones[:, np.newaxis]], axis=1)
    negatives = []
    for group in range(4):
        own = y[:, groups == group].any(axis=1)
        first = optimum(x[:, :-1], own, 0.5)
        np.testing.assert_allclose(found[:, 24 + group], first, atol=2e-4)
        margins = x @ first
        # None is so near the border that rounding decides.
        assert np.abs(margins - linear_tree._HARD_MARGIN).min() > 1e-3
        is_hard = margins > linear_tree._HARD_MARGIN
        of = own | is_hard
        negatives += [sum(is_hard & ~own), sum(~of)]
        for label in np.flatnonzero(groups == group):
            expected = optimum(x[of, :-1], y[of, label], 0.5)
            np.testing.assert_allclose(found[:, label], expected, atol=2e-4)
    assert min(negatives) > 0  # Some are hard, and some are left out.


@pytest.mark.parametrize("activation", [None, "sigmoid", "softmax"])
@pytest.mark.parametrize("num_groups", [1, 4])
@pytest.mark.parametrize("num_dense", [0, 4, 9])
def test_layer_in_numpy(activation, num_groups, num_dense, monkeypatch):
    x, _, rows, labels = make()
    weights, groups = train_linear(LabeledRows(rows, labels, 9, 24), num_groups)
    row_bytes = 4 * len(weights.biases)
    monkeypatch.setattr(sparse_linear, "_DENSE_SHARE", 0.0)
    monkeypatch.setattr(
        sparse_linear, "_MAX_DENSE_BYTES", num_dense * row_bytes
    )
    layer = sparse_linear.from_weights(weights, 24, activation, groups)
    assert layer.num_dense == num_dense
    assert (layer.num_entries > 0) == (num_dense < 9)
    layer.slope.assign(2.0)
    layer.intercept.assign(0.5)
    margins = x @ dense(weights, 9)[:-1] + weights.biases
    expected = margins[:, :24]
    if activation is not None:
        of_group = np.ones((80, 24))
        if num_groups > 1:
            of_group = 1 / (1 + np.exp(-3 * margins[:, 24:][:, groups]))
        odds = np.exp(2 * expected + 0.5)
        if activation == "softmax":
            odds *= of_group
            expected = odds / odds.sum(axis=1, keepdims=True)
        else:
            expected = odds / (1 + odds) * of_group
    found = layer(*rows.padded())
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    again = SparseLinear.from_config(layer.get_config())
    again.set_weights(layer.get_weights())
    np.testing.assert_array_equal(again(*rows.padded()), found)


def test_layer_of_nothing(tmp_path):
    layer = SparseLinear(3, 2, 0, 0, activation="softmax")
    ids = keras.Input([None], dtype="int64")
    values = keras.Input([None])
    model = keras.Model([ids, values], layer(ids, values))
    assert model.output.shape == (None, 2)
    found = model.predict([np.zeros((2, 1), "i8"), np.zeros((2, 1))], verbose=0)
    np.testing.assert_array_equal(found, np.full((2, 2), 0.5))


def test_margins_batch_by_batch(monkeypatch):
    x, _, rows, labels = make()
    weights, _ = train_linear(LabeledRows(rows, labels, 9, 24))
    expected = x @ dense(weights, 9)[:-1] + weights.biases
    monkeypatch.setattr(linear_tree, "_DENSE", 500)
    found = linear_tree.margins(rows, weights)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_groups_where_labels_are_many():
    assert linear_tree.num_groups(4000) == 16
    assert linear_tree.num_groups(147_306) == 512
    # Too few to part.
    assert linear_tree.num_groups(30) == 1


def test_heaviest_entries(monkeypatch):
    monkeypatch.setattr(sparse_rows, "_BATCH", 2)
    values = [[3, -5, 1], [], [2], [1, 2, 4, 3], [-1, 9]]
    splits, ids = ragged([np.arange(len(x)) for x in values])
    rows = SparseRows(splits, ids, np.concatenate(values).astype(np.float32))
    found = rows.heaviest(2)
    np.testing.assert_array_equal(found.splits, [0, 2, 2, 3, 5, 7])
    np.testing.assert_array_equal(found.ids, [0, 1, 0, 2, 3, 0, 1])
    np.testing.assert_array_equal(found.values, [3, -5, 2, 4, 3, -1, 9])
    for mine, own in zip(rows.heaviest(4), rows):
        np.testing.assert_array_equal(mine, own)


def test_rows_taken_and_padded():
    x, _, rows, _ = make()
    taken = rows.take(np.array([5, 0, 5]))
    ids, values = taken.padded()
    found = np.zeros((3, 9))
    np.add.at(found, (np.arange(3)[:, None], ids), values)
    np.testing.assert_array_equal(found, x[[5, 0, 5]])
    ids, values = rows.take(np.array([], np.int64)).padded()
    assert ids.shape == values.shape == (0, 1)


@pytest.mark.parametrize("together", [1, 4, 100])
def test_joined_columns_lie_side_by_side(together, monkeypatch):
    monkeypatch.setattr(sparse_rows, "_MOVED", together)
    random = np.random.default_rng(0)
    parts = [
        random.normal(size=(11, n)) * (random.random((11, n)) < 0.4)
        for n in (5, 3)
    ]
    joined = linear_ops.join(
        *(sparse_of(part, np.arange(part.shape[1])) for part in parts)
    )
    expected = sparse_of(
        np.concatenate(parts, axis=1), [0, 1, 2, 3, 4, 0, 1, 2]
    )
    for found, wanted in zip(joined, expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_the_first_level_of_a_large_tree_is_pruned(monkeypatch):
    """By a quarter of the threshold, not to be gigabytes."""
    _, _, rows, labels = make()
    least = []
    for most in (0, 10**9):
        monkeypatch.setattr(linear_tree, "_MAX_KEPT", most)
        weights, _ = train_linear(
            LabeledRows(rows, labels, 9, 24), num_groups=4, threshold=0.4
        )
        of_first = np.abs(weights.values[weights.columns >= 24])
        least.append(of_first.min())
    assert least[0] >= 0.1 > least[1]


@pytest.mark.parametrize("groups", [1, 4])
def test_some_rows_are_learned_from(groups):
    """As if the others were not there; a column of the rows has no label."""
    _, _, rows, labels = make()
    some = np.arange(60)
    data = LabeledRows(rows, labels, 9, 24)
    expected, own = train_linear(data.take(some), groups)
    found, others = train_linear(data, groups, among=some)
    np.testing.assert_array_equal(own, others)
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, rtol=1e-5)
