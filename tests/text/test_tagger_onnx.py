"""A tagger in ONNX Runtime: features of texts in, ids of tags out."""

import os

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.text.test_tagger_files import TAGS
from tests.text.test_tagger_files import TEXTS
from tfxclass_text import Tagger
from tfxclass_text import sparse_linear
from tfxclass_text import tagger_onnx
from tfxclass_text.linear_ops import SparseWeights
from tfxclass_text.tagger_model import ENCODED
from tfxclass_text.tagger_model import Layers
from tfxclass_text.tagger_model import MixedScores

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("tf2onnx")


def answers(path, features):
    session = onnxruntime.InferenceSession(path)
    given = dict(zip(("feature_ids", "feature_values"), features))
    return session.run(["ids", "scores"], given)


@pytest.mark.parametrize(
    "tags, options",
    [
        (TAGS, {"neighbors": 2, "embedding_dim": 8}),
        ([own[0] for own in TAGS], {"embedding_dim": 8}),
    ],
)
def test_onnx_runtime_answers_as_the_tagger(tmp_path, tags, options):
    texts, tags = TEXTS * 60, tags * 60
    tagger = Tagger(effort="fast", verbose=0, **options).fit(texts, tags)
    path = tagger.export_onnx(tmp_path / "m", k=3)
    given = [*TEXTS, "", "a red milk", "what nobody knows"]
    ids, scores = answers(path, tagger.features(given))
    with open(tmp_path / "m" / "labels.txt", encoding="utf-8") as f:
        names = f.read().splitlines()
    for best, found, answer in zip(ids, scores, tagger.predict(given, k=3)):
        expected = dict(answer)
        np.testing.assert_allclose(found, list(expected.values()), atol=1e-4)
        for i, score in zip(best, found):
            assert score == pytest.approx(
                expected.get(names[i], score), 1e-3, 1e-6
            )
    assert sorted(os.listdir(tmp_path / "m")) == ["labels.txt", "model.onnx"]
    with pytest.raises(ValueError, match="must not exist"):
        tagger.export_onnx(tmp_path / "m")


def test_votes_of_too_few_texts_to_judge_them(tmp_path):
    """They were left out, and the answers differed from the tagger's."""
    tagger = Tagger(effort="fast", neighbors=2, verbose=0).fit(TEXTS, TAGS)
    assert tagger.summary["neighbors"] == 2
    # Verified by ONNX Runtime.
    tagger.export_onnx(tmp_path / "m", k=3)


def test_margins_of_long_and_short_lists_and_groups():
    """Some features have dense rows, some lists, some nothing."""
    random = np.random.default_rng(0)
    dense = random.standard_normal((9, 60)).astype(np.float32)
    dense[random.random(dense.shape) < 0.98] = 0
    dense[:2], dense[4] = random.standard_normal((2, 60)), 0
    features, columns = np.nonzero(dense)
    weights = SparseWeights(
        np.searchsorted(features, np.arange(10)),
        columns.astype(np.int32),
        dense[features, columns],
        random.standard_normal(60).astype(np.float32),
    )
    groups = random.integers(10, size=50).astype(np.int32)
    for activation in (None, "sigmoid", "softmax"):
        layer = sparse_linear.from_weights(weights, 50, activation, groups)
        assert 0 < layer.num_dense < 9 and layer.num_entries
        ids = random.integers(9, size=(4, 7))
        values = random.random(ids.shape).astype(np.float32)
        values[0], values[1, 3:] = 0, 0
        found = tagger_onnx.probabilities(
            Layers(None, layer), tf.constant(ids), tf.constant(values)
        )
        np.testing.assert_allclose(
            found, layer(ids, values), rtol=1e-4, atol=1e-6
        )


def test_what_reads_texts_is_refused(tmp_path):
    tagger = Tagger(effort="fast", verbose=0).fit(TEXTS, TAGS)
    inputs, found = tagger.model.input, tagger.model.output
    # As with an encoder.
    tagger.model = keras.Model(inputs, MixedScores(name=ENCODED)(found, found))
    with pytest.raises(ValueError, match="no ops for texts"):
        tagger.export_onnx(tmp_path / "m")
    with pytest.raises(ValueError, match="is not fitted"):
        Tagger().export_onnx(tmp_path / "m")
