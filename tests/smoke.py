"""A day with tfxclass in a minute: fit, save, load, top k, export.

Run by hand against an installed wheel, outside of the checkout:

    cd / && python /path/to/tests/smoke.py
"""

import os
import pathlib
import sys
import tempfile

# `python tests/smoke.py` must find the installed package, not the checkout.
sys.path.pop(0)
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import tfxclass  # noqa: E402


def smoke(folder):
    head = tfxclass.layers.SampledSoftmax(1000, num_sampled=64)
    layers = [keras.Input((8,), name="x"), keras.layers.Dense(4), head]
    model = keras.Sequential(layers)
    model.compile("adam", loss=head.loss)
    x = np.random.default_rng(0).normal(size=(32, 8)).astype("float32")
    model.fit(x, np.arange(32), verbose=0)

    model.save(folder / "model.keras")
    loaded = keras.saving.load_model(folder / "model.keras")
    ids, scores = tfxclass.top_k(model, 5).predict(x, verbose=0)
    loaded_ids, _ = tfxclass.top_k(loaded, 5).predict(x, verbose=0)
    np.testing.assert_array_equal(ids, loaded_ids)

    names = [f"class {i}" for i in range(1000)]
    path = tfxclass.export.saved_model(
        loaded, folder / "served", top_k=5, labels=names
    )
    served = tf.saved_model.load(path).signatures["serving_default"]
    answers = served(x=tf.constant(x))
    np.testing.assert_array_equal(answers["ids"], ids)
    np.testing.assert_allclose(answers["scores"], scores, atol=1e-6)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        smoke(pathlib.Path(scratch))
    print(
        f"smoke test passed: Python {sys.version.split()[0]}, TensorFlow "
        f"{tf.__version__}, Keras {keras.__version__}, {tfxclass.__file__}"
    )
