"""The op of a sparse linear model's scores, against NumPy and stock ops."""

from typing import Any
from typing import NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfxclass.ops import library
from tfxclass_text import sparse_linear

pytestmark = pytest.mark.host

ACTIVATIONS = [None, "sigmoid", "softmax"]


class ScoreWeights(NamedTuple):
    """The weights of a `SparseLinear`; columns are labels, then groups."""

    places: Any
    dense: Any
    splits: Any
    columns: Any
    entries: Any
    biases: Any


def sparse_scores(
    ids,
    values,
    weights,
    num_labels,
    activation=None,
    groups=None,
    slope=1.0,
    intercept=0.0,
    group_slope=1.0,
):
    """What a `SparseLinear` with these arguments computes, by its op."""
    return library.ops.tfxclass_sparse_scores(
        ids,
        values,
        *weights,
        groups=np.zeros(0, np.int32) if groups is None else groups,
        slope=slope,
        intercept=intercept,
        num_labels=num_labels,
        activation=activation or "none",
        group_slope=group_slope,
    )


def make(random, num_labels, num_features=40, num_groups=0, num_dense=5):
    """`ScoreWeights`, with some features that have no weights."""
    width = num_labels + num_groups
    lengths = random.integers(0, width + 1, num_features)
    lengths[: num_features // 4] = 0
    places = np.full(num_features, -1, np.int32)
    dense = random.permutation(num_features)[:num_dense]
    places[dense], lengths[dense] = np.arange(len(dense)), 0
    columns = [random.permutation(width)[:n] for n in lengths]
    return ScoreWeights(
        places,
        random.normal(size=(max(num_dense, 1), width)).astype(np.float32),
        np.concatenate([[0], np.cumsum(lengths)]),
        np.concatenate([*columns, []]).astype(np.int32),
        random.normal(size=lengths.sum()).astype(np.float32),
        random.normal(size=width).astype(np.float32),
    )


def make_rows(random, batch, n, num_features=40):
    """Features and values, of which every third is padding."""
    ids = random.integers(0, num_features, (batch, n))
    values = random.normal(size=(batch, n)).astype(np.float32)
    values[:, ::3] = 0
    return ids, values


def matrix(weights):
    """The weights as one float64 matrix `[features, columns]`."""
    places, dense, splits, columns, entries, biases = weights
    full = np.zeros((len(places), len(biases)))
    for feature, place in enumerate(places):
        if place >= 0:
            full[feature] = dense[place]
            continue
        own = slice(splits[feature], splits[feature + 1])
        np.add.at(full[feature], columns[own], entries[own])
    return full


def margins(ids, values, weights):
    """float64 margins, and a bound of the rounding of float32 sums."""
    full = matrix(weights)
    terms = values[..., np.newaxis].astype(np.float64) * full[ids]
    sizes = np.abs(terms).sum(1) + np.abs(weights.biases)
    exact = terms.sum(1) + weights.biases
    return exact, sizes * (ids.shape[1] + 3) * 2.0**-23


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def layer_of(weights, num_labels, activation, groups):
    width = len(weights.biases)
    layer = sparse_linear.SparseLinear(
        len(weights.places),
        num_labels,
        len(weights.dense),
        len(weights.entries),
        activation,
        width - num_labels,
        group_slope=1.5,
    )
    for name, value in weights._asdict().items():
        getattr(layer, name).assign(value)
    if groups is not None:
        layer.groups.assign(groups)
    layer.slope.assign(2.0)
    layer.intercept.assign(-0.5)
    return layer


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("num_groups", [0, 3])
# Blocks of columns have 2,048.
@pytest.mark.parametrize("num_labels", [1, 7, 2048, 2049, 4500])
def test_scores_in_numpy_and_in_stock_ops(activation, num_groups, num_labels):
    random = np.random.default_rng(num_labels + num_groups)
    weights = make(random, num_labels, num_groups=num_groups)
    groups = None
    if num_groups:
        groups = random.integers(0, num_groups, num_labels, np.int32)
    ids, values = make_rows(random, 5, 14)
    values *= 0.3
    exact, error = margins(ids, values, weights)
    # Of a margin's error, a probability has at most slope / 4 or, of the
    # softmax, its share; FastExp and the division have 4e-7 more.
    error = 2 * (error.max() if activation else error[:, :num_labels]) + 2e-6
    expected = exact[:, :num_labels]
    if activation is not None:
        odds = np.exp(2 * expected - 0.5)
        gate = np.ones((5, num_labels))
        if num_groups:
            gate = sigmoid(1.5 * exact[:, num_labels:][:, groups])
            error *= 2
        if activation == "softmax":
            expected = odds * gate / (odds * gate).sum(1, keepdims=True)
        else:
            expected = odds / (1 + odds) * gate
    found = sparse_scores(
        *(ids, values, weights, num_labels, activation, groups),
        *(2.0, -0.5, 1.5),
    )
    assert found.shape == (5, num_labels)
    np.testing.assert_array_less(np.abs(found - expected), error)
    layer = layer_of(weights, num_labels, activation, groups)
    stock = layer(ids, values)
    by_op = layer(ids, values, compiled=True)
    np.testing.assert_array_equal(by_op, found)
    # Stock ops have rounding of their own.
    np.testing.assert_array_less(np.abs(found - stock), 2 * error)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("batch, n", [(0, 3), (2, 0), (1, 1), (3, 90)])
def test_rows_of_any_size(activation, batch, n):
    """No rows, no features, and more than the model has."""
    random = np.random.default_rng(batch)
    weights = make(random, 9)
    ids, values = make_rows(random, batch, n)
    layer = layer_of(weights, 9, activation, None)
    found = layer(ids, values, compiled=True)
    np.testing.assert_allclose(found, layer(ids, values), atol=2e-4)


@pytest.mark.parametrize("num_dense", [0, 1, 40])
def test_all_dense_or_none(num_dense):
    random = np.random.default_rng(2)
    weights = make(random, 30, num_dense=num_dense)
    ids, values = make_rows(random, 4, 12)
    exact, error = margins(ids, values, weights)
    found = sparse_scores(ids, values, weights, 30)
    np.testing.assert_array_less(np.abs(found - exact), error)


def test_extreme_margins():
    """Probabilities of 0 and 1, and NaN where a margin is none."""
    margins = [-np.inf, -1e30, -90.0, 0.0, 90.0, 1e30, np.inf, np.nan]
    weights = ScoreWeights(
        *(np.full(1, -1, np.int32), np.zeros((1, 8), np.float32), [0, 0]),
        *(np.zeros(0, np.int32), np.zeros(0, np.float32)),
        np.array(margins, np.float32),
    )
    ids, values = np.zeros((1, 1), np.int64), np.zeros((1, 1), np.float32)
    found = sparse_scores(ids, values, weights, 8, "sigmoid")
    expected = [[0, 0, 0, 0.5, 1, 1, 1, np.nan]]
    np.testing.assert_allclose(found, expected, atol=1e-38)
    found = sparse_scores(ids, values, weights, 8, "softmax")
    assert np.isnan(found).all()
    finite = weights._replace(biases=weights.biases[:6], dense=[[0.0] * 6])
    found = sparse_scores(ids, values, finite, 6, "softmax")
    np.testing.assert_array_equal(found, [[0, 0, 0, 0, 0, 1]])


def test_one_thread_or_several():
    """Bit for bit: in a process, a limit of the threads is a session's."""
    random = np.random.default_rng(4)
    weights = make(random, 50_000, num_groups=20)
    groups = random.integers(0, 20, 50_000, np.int32)
    ids, values = make_rows(random, 6, 30)
    for activation in ACTIVATIONS:
        found = []
        for threads in (1, 4):
            graph = tf.Graph()
            with graph.as_default():
                scores = sparse_scores(
                    *(ids, values, weights, 50_000, activation, groups)
                )
            config = tf.compat.v1.ConfigProto(
                intra_op_parallelism_threads=threads,
                use_per_session_threads=True,
            )
            with tf.compat.v1.Session(graph=graph, config=config) as session:
                found.append(session.run(scores))
        np.testing.assert_array_equal(*found)


def changed(name, at, value):
    def change(weights):
        array = getattr(weights, name).copy()
        array[at] = value
        return weights._replace(**{name: array})

    return change


def cut(name):
    return lambda weights: weights._replace(
        **{name: getattr(weights, name)[:-1]}
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed("places", slice(None), 9), "`places` must be below the 5"),
        (changed("splits", slice(1, None), 10**9), "`splits` must rise"),
        (changed("splits", slice(None), -1), "`splits` must rise"),
        (changed("columns", slice(None), 12), r"`columns` must be in \[0, 12"),
        (changed("columns", slice(None), -1), r"`columns` must be in \[0, 12"),
        (cut("splits"), "`splits` must have 41 elements"),
        (cut("entries"), "`entries` must have"),
        (cut("biases"), "`dense` must have a column for each of the 11"),
    ],
)
def test_unsound_weights(change, message):
    random = np.random.default_rng(5)
    weights = change(make(random, 10, num_groups=2))
    ids, values = np.arange(40)[np.newaxis], np.ones((1, 40), np.float32)
    groups = np.zeros(10, np.int32)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        sparse_scores(ids, values, weights, 10, "sigmoid", groups)


@pytest.mark.parametrize("wrong", [-1, 40, 2**62])
def test_ids_are_checked_where_there_is_a_value(wrong):
    weights = make(np.random.default_rng(6), 10)
    ids, values = np.array([[3, wrong]]), np.array([[1, 0]], np.float32)
    sparse_scores(ids, values, weights, 10)
    with pytest.raises(tf.errors.InvalidArgumentError, match="`ids` must be"):
        sparse_scores(ids, values + 1, weights, 10)


@pytest.mark.parametrize("wrong", [-1, 2])
def test_groups_are_checked(wrong):
    weights = make(np.random.default_rng(6), 10, num_groups=2)
    groups = np.zeros(10, np.int32)
    groups[7] = wrong
    ids, values = np.array([[3]]), np.array([[1]], np.float32)
    message = rf"`groups` must be in \[0, 2\). Received: {wrong}"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        sparse_scores(ids, values, weights, 10, "softmax", groups)
    with pytest.raises(tf.errors.InvalidArgumentError, match="`groups` must"):
        sparse_scores(ids, values, weights, 10, "softmax", groups[:4])
    with pytest.raises(tf.errors.InvalidArgumentError, match="`biases` must"):
        sparse_scores(ids, values, weights, 10, "softmax")


def test_shape_in_a_graph():
    weights = make(np.random.default_rng(7), 10)

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None], tf.int64),
            tf.TensorSpec([None, None]),
        ]
    )
    def scores(ids, values):
        found = sparse_scores(ids, values, weights, 10)
        assert found.shape.as_list() == [None, 10]
        return found

    random = np.random.default_rng(7)
    ids, values = make_rows(random, 3, 4)
    found = scores(ids, values)
    np.testing.assert_array_equal(
        found, sparse_scores(ids, values, weights, 10)
    )


def test_the_op_is_used_only_where_it_may_be(monkeypatch):
    weights = make(np.random.default_rng(8), 10)
    layer = layer_of(weights, 10, "sigmoid", None)
    ids, values = make_rows(np.random.default_rng(8), 2, 6)

    def ops(**options):
        function = tf.function(lambda *x: layer(*x, **options))
        graph = function.get_concrete_function(ids, values).graph
        return {node.type for node in graph.get_operations()}

    assert "Tfxclass>SparseScores" not in ops()
    assert "Tfxclass>SparseScores" in ops(compiled=True)
    monkeypatch.setattr(library, "ops", library.fallback.ops)
    assert "Tfxclass>SparseScores" not in ops(compiled=True)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("ids_type", ["int32", "int64"])
def test_policy_and_type_of_ids(policy, ids_type):
    random = np.random.default_rng(6)
    weights = make(random, 9)
    ids, values = make_rows(random, 4, 6)
    expected = layer_of(weights, 9, "sigmoid", None)(ids, values)
    keras.config.set_dtype_policy(policy)
    try:
        layer = layer_of(weights, 9, "sigmoid", None)
        found = layer(ids.astype(ids_type), values)
        by_op = layer(ids.astype(ids_type), values, compiled=True)
    finally:
        keras.config.set_dtype_policy("float32")
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(by_op, expected, atol=1e-5)
