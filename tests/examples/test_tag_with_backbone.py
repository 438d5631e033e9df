"""The example with a transformer, on few texts."""

import numpy as np
import pytest
import tensorflow as tf

from examples import tag_with_backbone


@pytest.mark.slow
def test_runs_and_is_exported(tmp_path, capsys):
    pytest.importorskip("wn")
    out = str(tmp_path / "kinds")
    scores = tag_with_backbone.main(["--texts=600", "--dim=16", f"--out={out}"])
    # The commonest of 26 kinds is 0.15 of them.
    assert min(scores.values()) > 0.25
    assert "exported" in capsys.readouterr().out
    assert (tmp_path / "kinds" / "1" / "saved_model.pb").exists()


def test_numbers_of_words():
    layer = tag_with_backbone.HashedWords(50, 4)
    texts = tf.constant(["A bird, a b\u00c4r", "", "x x x x x"])
    found = layer(texts).numpy()
    assert found.shape == (3, 4)
    assert found[0, 0] == found[0, 2] and found[0].min() > 0
    assert not found[1].any() and len(set(found[2])) == 1
    assert found.max() < 50


def test_features_of_texts():
    encoder = tag_with_backbone.small_transformer(8, 50, 4)
    texts = tf.constant(["a bird", "bird a", "", "a bird , !"])
    found = encoder(texts).numpy()
    assert found.shape == (4, 8) and np.isfinite(found).all()
    np.testing.assert_allclose(found[0], found[3], atol=1e-6)
    # Order counts.
    assert np.abs(found[0] - found[1]).max() > 1e-3
