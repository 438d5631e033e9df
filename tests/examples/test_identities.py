"""The example on figures that it draws, and on a file."""

import numpy as np
import tensorflow as tf

from examples import identities


def test_end_to_end(tmp_path):
    accuracy, rate, rank1 = identities.main(epochs=5, path=str(tmp_path))
    assert accuracy > 0.9 and 0.2 < rate <= 1
    # By chance it is 1 of 50.
    assert rank1 > 0.6
    embed = tf.saved_model.load(str(tmp_path / "1")).signatures["embed"]
    (name,) = embed.structured_input_signature[1]
    images = tf.zeros([2, identities.SIDE, identities.SIDE, 1])
    features = embed(**{name: images})["features"].numpy()
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1, rtol=1e-3)


def test_reads_a_file(tmp_path):
    path = tmp_path / "images.npz"
    images = np.full((3, 4, 5), 255, np.uint8)
    np.savez(path, images=images, identities=["ann", "bob", "ann"])
    read, labels = identities.read(path)
    assert read.shape == (3, 4, 5, 1) and read.max() == 1
    assert labels.tolist() == [0, 1, 0]
