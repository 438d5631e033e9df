"""Tags that are codes: what their names begin with helps the rare ones."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.text.test_tagger_choices import random_rows
from tfxclass_text import Field
from tfxclass_text import Tagger
from tfxclass_text import code_levels
from tfxclass_text import sparse_linear
from tfxclass_text import tagger_onnx
from tfxclass_text import text_features
from tfxclass_text import trials
from tfxclass_text.linear_ops import SparseWeights
from tfxclass_text.sparse_rows import from_pairs

CODES = ["A01", "A02", "A11", "B21", "B22", "B3"]


def test_levels_are_what_names_begin_with():
    above = code_levels.levels(CODES)
    # A, B; A0, A1, B2, B3: six names have no four beginnings of three letters.
    expected = [[0, 0, 0, 1, 1, 1], [2, 2, 3, 4, 4, 5]]
    np.testing.assert_array_equal(above, expected)
    assert code_levels.count(above) == 6
    for names in (["x"], ["a", "b", "c"], [f"the same {i}" for i in range(3)]):
        assert code_levels.levels(names).shape == (0, len(names))
        assert code_levels.count(code_levels.levels(names)) == 0


def test_labels_above_those_of_each_row():
    labels = from_pairs(4, [0, 1, 1, 3], [2, 0, 1, 5])
    upper = code_levels.parent_labels(labels, code_levels.levels(CODES))
    own = [
        upper.ids[a:b].tolist() for a, b in zip(upper.splits, upper.splits[1:])
    ]
    assert own == [[0, 3], [0, 2], [], [1, 5]]


@pytest.mark.parametrize("num_groups", [0, 2])
def test_margins_are_added_to_those_below(num_groups):
    random = np.random.default_rng(0)
    above = code_levels.levels(CODES)
    dense = random.standard_normal((9, 12 + num_groups)).astype(np.float32)
    features, columns = np.nonzero(dense)
    weights = SparseWeights(
        np.searchsorted(features, np.arange(10)),
        columns.astype(np.int32),
        dense[features, columns],
        random.standard_normal(dense.shape[1]).astype(np.float32),
    )
    groups = np.array([0, 0, 0, 1, 1, 1], np.int32) if num_groups else None
    layer = sparse_linear.from_weights(weights, 6, "softmax", groups, above)
    layer.slope.assign(2.0)
    x, rows = random_rows(5, 9, 1)
    ids, values = rows.padded()
    margins = x @ dense + weights.biases
    logits = 2 * (
        margins[:, :6] + code_levels.parent_margins(margins[:, -6:], above)
    )
    if num_groups:
        of_groups = 3 * margins[:, 6:8][:, groups]
        logits -= np.log1p(np.exp(-of_groups))
    odds = np.exp(logits)
    expected = odds / odds.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(layer(ids, values), expected, 1e-3, 1e-6)
    with text_features.compiled():
        np.testing.assert_allclose(layer(ids, values), expected, 1e-3, 1e-6)
    found = tagger_onnx.probabilities(
        tagger_onnx.Layers(layer, []), tf.constant(ids), tf.constant(values)
    )
    np.testing.assert_allclose(found, expected, 1e-3, 1e-6)
    again = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(layer)
    )
    again.set_weights(layer.get_weights())
    np.testing.assert_array_equal(again(ids, values), layer(ids, values))


def coded(size, seed):
    """Texts whose codes are a family, told by one of many words, and a kind.

    Few texts of a code have few of its family's words.
    """
    random = np.random.default_rng(seed)
    texts, codes = [], []
    for family, kind, word in random.integers([[6, 15, 20]] * size):
        texts.append(f"family{family}x{word} kind{kind}")
        codes.append(f"{'ABCDEF'[family]}{kind:02d}")
    return texts, codes


def test_learned_where_held_out_texts_gain(tmp_path):
    tagger = Tagger([Field(["text"])], effort="fast", verbose=0)
    texts, codes = coded(500, 0)
    tagger.fit(texts, codes)
    layer = tagger.model.get_layer("tags")
    assert (
        tagger.summary["parent_weight"] in trials._PARENT_WEIGHTS
        and layer.levels == 2
    )
    # No kind is told: the family is right.
    answers = tagger.predict(["family2x3 unknown"], k=5)[0]
    assert {tag[0] for tag, _ in answers} == {"C"}
    tagger.save(tmp_path)
    assert Tagger.load(tmp_path).predict(texts[:9]) == tagger.predict(texts[:9])


def test_left_out_where_names_tell_nothing():
    texts, codes = coded(500, 0)
    names = sorted(set(codes))
    mixed = np.random.default_rng(1).permutation(names)
    other = dict(zip(names, mixed.tolist()))
    tagger = Tagger([Field(["text"])], effort="fast", verbose=0)
    tagger.fit(texts, [other[code] for code in codes])
    assert tagger.summary["parent_weight"] == 0
    assert tagger.model.get_layer("tags").levels == 0
